"""The comparisons at equal slots: settings that can run, measures against hand-made runs, the page."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import SLOTS, Estimate
from fedslot.experiments.tasks import check
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.studies.curves import load_curves, save_curves
from fedslot.studies.equal_slots.folder import EqualSlots
from fedslot.studies.equal_slots.measures import Aim, Measures, aims
from fedslot.studies.equal_slots.page import write
from fedslot.studies.equal_slots.settings import FIRST_SEED, FORMER_SEED, REFERENCE, SETTINGS, WINNERS, Setting, chosen
from fedslot.support.errors import InputError, RefusedError


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_run(name: str) -> None:
    setting = SETTINGS[name]
    for scenario in setting.study().scenarios:
        check(scenario, data=False)
        assert scenario.time_budget == setting.budget
        assert scenario.rounds >= setting.budget, "frames of a slot would fit as often"
        assert scenario.seed == setting.first_seed >= FORMER_SEED, "none of those that the defaults were chosen on"


def test_settings_are_called_by_name() -> None:
    assert list(chosen(["skewed", "mnist-200"])) == ["skewed", "mnist-200"]
    assert list(chosen([])) == list(SETTINGS)
    assert {setting.budget for setting in chosen([], budget=300).values()} == {300}
    with pytest.raises(InputError, match="one of mnist-200"):
        chosen(["mnist-2000"])


RESULT, DATA = "equal-slots", "equal-slots-data"  # the pages


def _run(accuracies: list[float], cost_max: int, cost_frame: int) -> Result:
    """A run whose frames all cost the same."""
    costs = {"cost_max": cost_max, "cost_frame": cost_frame, "cost_sum": 0, "seconds": 2.0}
    rounds = pd.DataFrame({"test_accuracy": accuracies, **costs})
    return Result(Scenario(rounds=len(accuracies)), rounds.assign(slots_spent=rounds["cost_max"].cumsum()))


def _made_up(setting: Setting, reference: list[float], winner: list[float]) -> Comparison:
    """A comparison in which the winners' frames take 4 slots by the clock and 5 in all, the others' 20 slots."""
    own = dict.fromkeys(WINNERS, _run(winner, 4, 5)) | {"ps-alone": _run([0.5], 0, 0)}
    runs = {label: [own.get(label, _run(reference, 20, 20))] * 3 for label in setting.labels}
    return Comparison(setting.scenario(), [FIRST_SEED + i for i in range(3)], runs, setting.targets)


SMALL = replace(SETTINGS["mnist-200"], budget=100)
MEASURES = Measures(SMALL, _made_up(SMALL, [0.5, 0.6, 0.85, 0.89, 0.9], [0.4, 0.88, 0.9, *[0.93] * 22]))


def test_measures_of_hand_made_runs() -> None:
    winner = WINNERS[0]
    assert MEASURES.accuracy(winner, 8).mean == pytest.approx(0.88)
    assert MEASURES.accuracy(winner, 9, "frame").mean == pytest.approx(0.4), (
        "the second frame ends after 10 announced slots"
    )
    assert MEASURES.gain(winner).mean == pytest.approx(0.03)
    assert MEASURES.slots(winner, 0.9).mean == pytest.approx(12)
    assert MEASURES.slots(winner, 0.9, "frame").mean == pytest.approx(15)
    assert MEASURES.share(winner, 0.9).mean == pytest.approx(12 / 100)
    assert MEASURES.share(winner, 0.9, "frame").mean == pytest.approx(15 / 100)
    assert MEASURES.catch_up(winner).mean == pytest.approx(12 / 100)
    assert MEASURES.catch_up(REFERENCE).mean == pytest.approx(1)
    assert MEASURES.slots("ps-alone", 0.9).count == 0
    assert MEASURES.accuracy("ps-alone", 1).mean == pytest.approx(0.5)
    assert MEASURES.seconds(winner) == pytest.approx(50)


def test_slots_beyond_the_budget_do_not_count() -> None:
    """The winner's 25 frames take 100 slots by the clock and announce 125: runs end by the clock."""
    late = Measures(SMALL, _made_up(SMALL, [0.5, 0.5, 0.5, 0.5, 0.9], [0.5] * 24 + [0.92]))
    assert late.slots(WINNERS[0], 0.92).mean == pytest.approx(100)
    assert late.slots(WINNERS[0], 0.92, "frame").count == 0
    assert late.catch_up(WINNERS[0], "frame").count == 0


def test_a_reference_that_falls_short_counts_with_all_slots() -> None:
    short = Measures(SMALL, _made_up(SMALL, [0.5, 0.6, 0.7, 0.8, 0.89], [0.4, 0.88, 0.9]))
    assert short.share(WINNERS[0], 0.9).mean == pytest.approx(12 / 100)


def test_frames_that_wait() -> None:
    late = MEASURES.waiting(5)  # frames of 9, 10 announced, and 25 slots
    assert late.slots(WINNERS[0], 0.9).mean == pytest.approx(27)
    assert late.slots(WINNERS[0], 0.9, "frame").mean == pytest.approx(30)
    assert late.accuracy(REFERENCE).mean == pytest.approx(0.89), "only four of its frames fit"
    assert late.accuracy("ps-alone").mean == pytest.approx(0.5), "it has no frames"


def test_smoothed_accuracies() -> None:
    """The mean over the frames that ended in the last 12 slots: three of the winner's, one of the others'."""
    smooth = MEASURES.smoothed(12)
    assert smooth.accuracy(WINNERS[0], 8).mean == pytest.approx((0.4 + 0.88) / 2)
    assert smooth.accuracy(WINNERS[0], 16).mean == pytest.approx((0.88 + 0.9 + 0.93) / 3)
    assert smooth.accuracy(REFERENCE).mean == pytest.approx(0.9)
    assert smooth.catch_up(WINNERS[0]).mean == pytest.approx(16 / 100)


def test_aims_of_hand_made_runs() -> None:
    rows = aims({"mnist-200": MEASURES})
    assert [len({(aim.what, aim.name, aim.rule) for aim in row}) for row in rows] == [4, 4], "two winners, two costs"
    assert all(aim.reached for row in rows for aim in row)
    slow = Measures(SMALL, _made_up(SMALL, [0.9] * 5, [0.5] * 24 + [0.91]))
    assert not any(aim.reached for row in aims({"mnist-200": slow}) for aim in row)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.2, 0.24, 0.22], "reached"),
        ([0.3, 0.26, 0.34], "missed by 5.0"),
        ([0.2, float("nan"), 0.2], "missed: 2 of 3"),
    ],
)
def test_verdicts(values: list[float], verdict: str) -> None:
    aim = Aim("MNIST", "slots", "scout", "max", Estimate.of(values, SLOTS), 0.25, at_most=True)
    assert aim.verdict.startswith(verdict)


def test_the_page_has_a_table_for_everything() -> None:
    """Every table is well-formed: as many cells in each line as in its header."""
    made_up = {name: (setting, _made_up(setting, [0.7, 0.9], [0.6, 0.91, 0.95])) for name, setting in SETTINGS.items()}
    pages = write(made_up)
    for setting in SETTINGS.values():
        assert setting.title in pages[DATA]
    assert "What has not been measured" not in pages[DATA]
    assert "Not measured" not in pages[RESULT]
    tables = {name: re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE) for name, page in pages.items()}
    assert len(tables[RESULT]) == 2, "of two figures each"
    groups = [setting.group for setting in SETTINGS.values()]
    assert len(tables[DATA]) == 1 + 2 * groups.count("main") + groups.count("airtime") + groups.count("time") + 3
    for table in chain(*tables.values()):
        lines = table.strip().split("\n")
        assert len(lines) > 2
        assert len({line.count("|") for line in lines}) == 1, lines[0]
        assert set(lines[1]) == {"|", "-"}


def test_the_page_shows_what_was_measured() -> None:
    """And nothing else: settings without runs are left out, and it says so."""
    pages = write({"mnist-200": (SMALL, MEASURES.comparison)})
    page = pages[DATA]
    assert "| `merit-push+filtered` | 12 [12, 12] | 15 |" in page.replace("8 [8, 8] | 10 | ", "")
    assert "### Fashion" not in page
    assert "Where nobody tuned" not in page
    assert "more than this page shows: MNIST, 5000 labelled samples; MNIST" in page
    assert "MNIST, 200 labelled samples |\n|---|\n" in pages[RESULT], "its figure alone"
    assert "12 [12, 12]% of the slots, 15 [15, 15]% with idle slots; at the end +3.00" in pages[RESULT]
    assert "Not measured here: MNIST, 5000 labelled samples; MNIST" in pages[RESULT]
    assert "equally noisy" not in pages[RESULT]


def test_the_pages_in_the_documentation_are_those_of_their_curves() -> None:
    """Up to the last digit of a number, in which sums may differ between processors."""
    docs = Path(__file__).parents[2] / "docs" / "explanation"
    for name, page in write(EqualSlots(docs).comparisons()).items():
        shown, made = (re.split(r"(\d+\.?\d*)", text) for text in ((docs / f"{name}.md").read_text("utf-8"), page))
        assert shown[::2] == made[::2]
        for number, other in zip(shown[1::2], made[1::2], strict=True):
            assert abs(float(number) - float(other)) < 1.1 * 10.0 ** -len(number.partition(".")[2])


@pytest.mark.parametrize(
    ("name", "lost"), [("mnist-200", WINNERS[1]), ("table", "planned+average"), ("irsa", "ps-alone")]
)
def test_a_setting_without_its_strategies_is_not_shown(name: str, lost: str) -> None:
    """As after a change of the settings, with curves of earlier runs."""
    setting = SETTINGS[name]
    comparison = _made_up(setting, [0.7, 0.9], [0.6, 0.91, 0.95])
    del comparison.runs[lost]
    page = write({name: (setting, comparison)})[DATA]
    assert f"### {setting.title}" not in page
    assert f"{setting.title}: also {lost}" in page


def test_the_page_says_which_runs_are_older() -> None:
    page = write({"mnist-200": (SMALL, MEASURES.comparison)})[DATA]
    assert "Seeds 200 to 202." in page
    assert "older code" not in page
    older = replace(MEASURES.comparison, seeds=[199, 200, 201])
    assert "by older code: MNIST, 200 labelled samples." in write({"mnist-200": (SMALL, older)})[DATA]
    runs = {name: results[:1] for name, results in MEASURES.comparison.runs.items()}
    assert "\nSeed 200.\n" in write({"mnist-200": (SMALL, replace(MEASURES.comparison, seeds=[200], runs=runs))})[DATA]


def _save(comparison: Comparison, out: Path) -> Path:
    """Write the curves of a comparison that was made up for 100 slots."""
    file = out / "curves" / "equal-slots" / "mnist-200-100-slots.csv.gz"
    runs = {
        f"{name}, seed {seed}": result.rounds
        for name, results in comparison.runs.items()
        for seed, result in zip(comparison.seeds, results, strict=True)
    }
    save_curves(runs, file)
    return file


def test_the_page_is_made_from_curves(tmp_path: Path) -> None:
    """The measures of a comparison can be read back from its curves, to the last digit."""
    _save(MEASURES.comparison, tmp_path)
    assert EqualSlots(tmp_path).comparisons() == {}, "another budget"
    ((setting, read),) = EqualSlots(tmp_path, SMALL.budget).comparisons().values()
    assert (setting, read.seeds) == (SMALL, MEASURES.comparison.seeds)
    assert write({"mnist-200": (SMALL, read)}) == write({"mnist-200": (SMALL, MEASURES.comparison)})


def test_seeds_count_that_all_strategies_have(tmp_path: Path) -> None:
    file = _save(MEASURES.comparison, tmp_path)
    runs = load_curves(file)
    del runs[f"{REFERENCE}, seed {FIRST_SEED + 1}"]
    save_curves(runs, file)
    ((_, read),) = EqualSlots(tmp_path, SMALL.budget).comparisons().values()
    assert read.seeds == [FIRST_SEED, FIRST_SEED + 2]
    assert {len(results) for results in read.runs.values()} == {2}
    assert "Seeds 200 and 202.\n" in write({"mnist-200": (SMALL, read)})[DATA]
    save_curves({name: rounds for name, rounds in runs.items() if not name.startswith(f"{REFERENCE},")}, file)
    lost = load_curves(file) | {f"{REFERENCE}, seed 99": MEASURES.comparison.runs[REFERENCE][0].rounds}
    save_curves(lost, file)
    with pytest.raises(RefusedError, match="has no seed with runs of all its strategies"):
        EqualSlots(tmp_path, SMALL.budget).comparisons()


def test_published_runs_are_not_repeated() -> None:
    study = EqualSlots(Path(__file__).parents[2] / "docs" / "explanation")
    left = {key for key in SETTINGS if study.tasks(key, seeds=5)}
    assert left == {"table", "airtime-cifar10"}, "three seeds, and without compressed greedy-shap"


def test_runs_with_curves_are_not_repeated(tmp_path: Path) -> None:
    _save(MEASURES.comparison, tmp_path)
    assert EqualSlots(tmp_path, SMALL.budget).tasks("mnist-200", 3) == {}
    left = EqualSlots(tmp_path, SMALL.budget).tasks("mnist-200", 4)
    assert [task.scenario.seed for task in left.values()] == [FIRST_SEED + 3] * len(SMALL.strategies)
    assert len(EqualSlots(tmp_path).tasks("mnist-200", 1)) == len(SMALL.strategies), "another budget"


def test_the_command_measures_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On digits, so that no data set need be there; the second call finds all runs finished."""
    from fedslot.cli import main

    tiny = Setting("Digits", "quickstart", {"training.epochs": 1}, (WINNERS[1], REFERENCE), (0.1, 0.9), budget=30)
    monkeypatch.setitem(SETTINGS, "skewed", tiny)
    words = ["equal-slots", "skewed", "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    page = (tmp_path / "equal-slots-data.md").read_text("utf-8")
    assert "### Digits" in page
    assert (tmp_path / "images" / "equal-slots" / "skewed.png").is_file()
    runs, curves = tmp_path / "runs" / "skewed" / "runs", tmp_path / "curves" / "equal-slots" / "skewed.csv.gz"
    first, kept = sorted(runs.iterdir()), curves.read_bytes()
    assert len(first) == 2
    assert main(words) == 0
    assert (tmp_path / "equal-slots-data.md").read_text("utf-8") == page
    assert (sorted(runs.iterdir()), curves.read_bytes()) == (first, kept)
    assert main(["equal-slots", "nonsense", "--out", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()
    other = runs / f"{REFERENCE}-seed{FIRST_SEED}"
    before = sorted(other.iterdir())
    assert main([*words[:-1], str(other)]) == 2, "the folder of a run"
    assert sorted(other.iterdir()) == before
    assert main([*words[:-1], str(tmp_path / "no"), "--curves", str(tmp_path / "nowhere")]) == 2
    assert not (tmp_path / "no").exists()
    known = ["--curves", str(tmp_path / "curves")]
    monkeypatch.setitem(SETTINGS, "irsa", replace(tiny, title="Again"))
    assert main(["equal-slots", "irsa", *words[2:-1], str(tmp_path / "second"), *known]) == 0
    page = (tmp_path / "second" / "equal-slots-data.md").read_text("utf-8")
    assert "### Digits" in page
    assert "### Again" in page
    assert main([*words[:3], "2", *words[4:-1], str(tmp_path / "third"), *known]) == 0, "one more seed"
    more = sorted(folder.name for folder in (tmp_path / "third" / "runs" / "skewed" / "runs").iterdir())
    assert more == [f"{name}-seed{FIRST_SEED + 1}" for name in (REFERENCE, WINNERS[1])]
    page = (tmp_path / "third" / "equal-slots-data.md").read_text("utf-8")
    assert f"Seeds {FIRST_SEED} and {FIRST_SEED + 1}." in page


def test_runs_beside_the_best_of_another_setting() -> None:
    """Of the seeds that both have, by the budget of the other: here 100 slots, and 15 announced ones to 0.9."""
    airtime = replace(SETTINGS["airtime"], budget=25)
    name, other = airtime.labels[:2]
    runs = {name: [_run([0.2, 0.9, 0.95], 1, 2)] * 2, other: [_run([0.3, 0.4, 0.5], 1, 2)] * 2}
    seeds = [FIRST_SEED + 1, FIRST_SEED + 9]
    one = Measures(airtime, Comparison(airtime.scenario(), seeds, runs, airtime.targets)).beside(MEASURES)
    assert (one.names, one.comparison.seeds) == ([REFERENCE, WINNERS[0], name, other], [FIRST_SEED + 1])
    assert one.slots(name, 0.9, "frame").mean == pytest.approx(4)
    assert one.share(name, 0.9, "frame").mean == pytest.approx(4 / 100)
    assert one.share(name, 0.9, "frame", WINNERS[0]).mean == pytest.approx(4 / 15)
    assert one.slots(other, 0.9, "frame").count == 0
    assert one.loss(name, 6).mean == pytest.approx(0.4 - 0.95), "the winner's first frame has ended, its second not"
