"""`fedslot plan` as a user calls it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fedslot
from fedslot.cli import app
from fedslot.scenario import parse_overrides
from fedslot.support.errors import RefusedError


@pytest.fixture
def run():
    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["plan", *arguments], catch_exceptions=False)

    return call


@pytest.fixture
def numbers(run):
    def call(*arguments: str) -> dict[str, Any]:
        return json.loads(run(*arguments, "--json").stdout)

    return call


def test_one_split_as_json(numbers) -> None:
    answer = numbers("--slots", "20", "--pull", "10", "--contenders", "10")
    assert answer["success_probability"] == pytest.approx(0.9**9)
    assert answer["expected_received_push"] == pytest.approx(10 * 0.9**9)
    assert answer["expected_cost_exact"] == pytest.approx(18.4193, abs=1e-4)
    assert answer["expected_cost_paper"] == pytest.approx(18.4306, abs=1e-4)
    assert answer["expected_cost_max"] == pytest.approx(answer["expected_cost_exact"] + 1)


def test_table_marks_the_best(run) -> None:
    lines = run("--slots", "20", "--contenders", "10", "--value-ratio", "4").stdout.splitlines()
    marked = [line for line in lines if "▶" in line]
    assert marked[0].split()[:3] == ["▶", "6", "14"]
    assert "pull 6, leave 14 open" in marked[1]
    assert len([line for line in lines if line[:6].replace("▶", " ").strip().isdigit()]) == 21


def test_long_tables_are_cut_and_say_so(run, numbers) -> None:
    text = run("--slots", "200", "--contenders", "100", "--value-ratio", "3.2").stdout
    assert "of 201 splits shown" in text
    assert len(text.splitlines()) < 60
    best = numbers("--slots", "200", "--contenders", "100", "--value-ratio", "3.2")["best"]
    assert f"▶ {best['pull']} " in text


def test_one_split_as_text(run) -> None:
    text = run("--pull", "10", "--channel", "capture", "--frames", "200").stdout
    assert "expected received push" in text
    assert "±" in text


def test_simulated_channels(numbers) -> None:
    arguments = ("--slots", "6", "--contenders", "4", "--channel", "fedslot.access.channels:Capture", "--frames", "300")
    answer = numbers(*arguments)
    assert answer["frames"] == 300
    assert all(split["standard_errors"] for split in answer["splits"])
    assert answer == numbers(*arguments)
    assert answer != numbers(*arguments, "--seed", "1")


def test_arrivals_and_their_backlog(run, numbers) -> None:
    """The stationary cell, not the arrivals of a frame: this one has jammed."""
    jam = run("quickstart", "-o", "push.arrivals=0.5", "--pull", "5").stdout
    assert "backlog                 94.9" in jam
    assert "Unstable above 0.116 arrivals a slot." in jam
    coded = run("quickstart", "-o", "push.arrivals=0.2", "--pull", "3", "--channel", "irsa").stdout
    assert "(from a Markov chain, simulated; the same UEs are pulled in every frame).\nUnstable above 0.0" in coded
    few = numbers("quickstart", "-o", "push.arrivals=0.05", "--pull", "5")
    assert (few["arrivals"], "contenders" in few) == (0.05, False)
    # without a jam, as many are received as arrive at the UEs that are not pulled and not backlogged
    assert few["expected_received_push"] == pytest.approx(0.05 * few["expected_cost_max"] * 0.95, rel=0.01)
    assert few["most_arrivals"] == pytest.approx(0.116, abs=0.001)
    controlled = run("quickstart", "-o", "push.arrivals=0.2", "-o", "push.probability=auto").stdout
    assert "backlogged when a frame begins, in the long run\n(simulated; the same UEs" in controlled
    best = numbers("quickstart", "--pull", "5")  # with five contenders, of 95 UEs that are not pulled
    received, cost = best["expected_received_push"], best["expected_cost_max"]
    served = -100 * math.log1p(-received / (90 + received)) / cost
    assert f"The push slots serve up to {served:.3g} arrivals a slot, by the mean drift." in controlled
    assert "backlog" not in run("quickstart", "-o", "push.arrivals=0.3", "--contenders", "4").stdout


def test_large_cells_by_their_drift(run) -> None:
    text = run("--slots", "500", "--pull", "20", "--ues", "5000", "--arrivals", "0.3").stdout
    assert "(where the mean drift ends; the same UEs" in text
    assert "by the mean drift." in text


def test_options_of_a_simulation_have_no_effect_on_what_is_computed(run) -> None:
    exact = run("--slots", "6", "--frames", "50", "--seed", "1")
    assert exact.stdout == run("--slots", "6").stdout
    note = "note: {} has no effect on the collision channel, which is computed"
    assert exact.stderr.splitlines() == [note.format("--frames"), note.format("--seed")]
    assert run("--slots", "6", "--channel", "capture", "--frames", "50", "--seed", "1").stderr == ""


def test_a_limit_per_frame(run, numbers) -> None:
    answer = numbers("--frame-limit", "15", "--confidence", "0.95", "--value-ratio", "4")
    assert (answer["frame_limit"], answer["confidence"]) == (15, 0.95)
    assert (answer["best"]["pull"], answer["best"]["push"]) == (0, 14)
    assert all(split["within_limit"] >= 0.95 for split in answer["splits"])
    assert "P(within" in run("--frame-limit", "15", "--value-ratio", "4").stdout


def test_plot_is_written_and_its_name_printed_as_it_is(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, magic in [("[bold]plan.png", b"\x89PNG"), ("plan.pdf", b"%PDF"), ("plan.svg", b"<?xml")]:
        assert f"Drawn in {name}." in run("--plot", name).stdout
        assert Path(name).read_bytes().startswith(magic)


# From a scenario --------------------------------------------------------------------------------------


def test_a_scenario_gives_what_is_not_given(numbers) -> None:
    answer = numbers("quickstart")
    assert (answer["scenario"], answer["slots"], answer["contenders"], answer["ues"]) == ("quickstart", 10, "5", 100)
    assert (answer["by"], answer["best"]) == ("expected_value", answer["splits"][10])
    assert answer["taken"]["contenders"] == "push.contenders"
    assert answer["splits"] == numbers("--slots", "10", "--contenders", "5")["splits"]
    changed = numbers("quickstart", "-o", "push.contenders=30", "--slots", "8")
    assert (changed["slots"], changed["contenders"]) == (8, "30")
    assert "slots" not in changed["taken"]


def test_the_text_says_what_was_taken_and_marks_the_scenarios_split(run) -> None:
    text = run("quickstart").stdout
    assert "From quickstart: slots 10 (frame.slots), contenders 5 (push.contenders)" in text
    assert "▷ 5     5" in text
    assert "▷ the scenario's split: pull 5, leave 5 open, 70% of the most value." in text
    assert "From" not in run().stdout


def test_channels_and_their_options_come_from_the_scenario(numbers) -> None:
    words = ["quickstart", "--pull", "4", "--frames", "400", "-o", "push.channel=capture", "-o"]
    easy, hard = [*words, "push.channel.options={threshold_db: 0}"], [*words, "push.channel.options={threshold_db: 30}"]
    received = numbers(*easy)["expected_received_push"]
    assert numbers(*hard)["channel"] == "capture"
    assert received > numbers(*hard)["expected_received_push"] + 0.5
    assert numbers(*hard, "--channel", "collision")["standard_errors"] == {}
    assert numbers(*hard, "--threshold-db", "0")["expected_received_push"] == received


def test_ues_that_are_ready_late(numbers) -> None:
    late = numbers("late-fleet")
    assert (late["ready"], late["taken"]["ready"]) == (None, "fleet.computing")
    assert 8 < late["best"]["expected_received"] < 10  # the first slots of twelve are wasted
    assert late["best"]["frame_seconds"] == pytest.approx(0.13)
    sure = numbers("late-fleet", "--ready", "1")
    assert sure["best"]["expected_received"] == 12
    # slots ten times as long leave UEs more time
    slow = numbers("late-fleet", "--slot-ms", "100")
    assert slow["best"]["expected_received"] > 10.9


# Seconds and joules -----------------------------------------------------------------------------------

RADIO = ("--slot-ms", "1", "--bits-per-slot", "1000", "--send-mj", "0.5", "--listen-mj", "0.1")


def test_seconds_and_joules_of_the_scenarios_model(numbers) -> None:
    answer = numbers("quickstart", *RADIO)
    assert (answer["parameters"], answer["bits"], answer["update_slots"]) == (4785, 153_120, 154)
    best = answer["best"]
    assert best["frame_seconds"] == best["clock_seconds"] == pytest.approx(11 * 0.154)
    assert best["energy_mj"] == pytest.approx(100 * 154 * 0.1 + 10 * 154 * 0.5)
    assert best["energy_mj_per_update"] == pytest.approx(best["energy_mj"] / 10)
    open_split = answer["splits"][5]
    assert open_split["energy_mj"] == pytest.approx(best["energy_mj"])  # five contenders send, received or not
    assert open_split["energy_mj_per_update"] > best["energy_mj_per_update"]


def test_other_sizes_in_the_same_time(numbers) -> None:
    answer = numbers("quickstart", *RADIO)
    rows = {row["size"]: row for row in answer["resized"]}
    assert list(rows) == [0.25, 0.5, 1, 2, 4]
    for size, row in rows.items():
        slots = math.ceil(math.ceil(153_120 * size) / 1000)
        assert row["update_slots"] == slots
        assert row["slots"] == (11 * 154 - 154) // slots  # the downlink carries the model in full precision
        assert row["best"]["frame_seconds"] <= 11 * 0.154 + 1e-9
    assert rows[1]["best"] == answer["best"]
    small = numbers("quickstart", *RADIO, "--bits-per-parameter", "8")
    assert small["update_slots"] == rows[0.25]["update_slots"]


def test_updates_of_fewer_bits_do_not_shorten_the_downlink(numbers) -> None:
    """It carries the model: 154 slots of the radio, and ten updates of 39."""
    for words in (("quickstart",), ("--slots", "10", "--contenders", "5", "--parameters", "4785")):
        answer = numbers(*words, *RADIO, "--bits-per-parameter", "8", "--pull", "10")
        assert (answer["update_slots"], answer["downlink_slots"]) == (39, 154)
        assert answer["updates_per_second"] == pytest.approx(10 / (0.154 + 10 * 0.039))


COMPRESSED = ("-o", "compression={name: quantise, options: {bits: 2}}")
BROADCAST = ("-o", "broadcast_compression={name: quantise, options: {bits: 8}}")
BITS = 2 * 4785 + 6 * 32 + 6  # a scale of 32 bits for each of six tensors; whole bytes


def test_the_compression_of_a_scenario(run, numbers) -> None:
    answer = numbers("quickstart", *COMPRESSED, "--pull", "10")
    assert (answer["bits"], answer["full_bits"], answer["model_bits"]) == (BITS, 153_120, 153_120)
    assert (answer["uplink_length"], answer["downlink_length"]) == (pytest.approx(BITS / 153_120), 1)
    assert answer["clock_slots"] == pytest.approx(1 + 10 * BITS / 153_120)
    assert answer["taken"]["compression"] == "compression"
    text = run("quickstart", *COMPRESSED).stdout
    assert "An update: 4,785 parameters of 2.041 bits, 9,768 bits." in text
    assert "An uplink slot takes 0.06379 of the time of an update in full precision" in text
    assert "(see --accuracy-from)" in text


def test_a_compressed_broadcast_shortens_the_downlink(numbers) -> None:
    answer = numbers("quickstart", *COMPRESSED, *BROADCAST, *RADIO, "--pull", "10")
    assert answer["model_bits"] == 8 * 4785 + 6 * 32
    assert (answer["update_slots"], answer["downlink_slots"]) == (10, 39)
    assert answer["frame_seconds"] == pytest.approx(0.039 + 10 * 0.010)


def test_a_run_spends_what_its_plan_says(numbers, tmp_path: Path) -> None:
    words = ("quickstart", *COMPRESSED, *BROADCAST, "-o", "frame.pull=10", "-o", "push.contenders=0")
    answer = numbers(*words, "--pull", "10")
    fields = parse_overrides([word for word in words if "=" in word])
    rounds = fedslot.run(fedslot.Scenario.load("quickstart", {**fields, "rounds": 2})).rounds
    assert rounds["cost_max"].tolist() == [pytest.approx(answer["clock_slots"])] * 2
    assert rounds["bits"].tolist() == [10 * answer["bits"]] * 2


def test_a_time_budget_is_not_taken_with_compression(numbers) -> None:
    assert "budget" in numbers("quickstart", "-o", "time_budget=99")["taken"]
    assert "budget" not in numbers("quickstart", "-o", "time_budget=99", *COMPRESSED)["taken"]


def test_no_update_fits_if_it_is_too_long(run, numbers) -> None:
    words = ("--parameters", "100", "--bits-per-slot", "3200", "--slots", "2", "--ues", "12")
    rows = numbers(*words)["resized"]
    assert [row["slots"] for row in rows] == [2, 2, 2, 1, 0]
    assert rows[-1]["best"] is None
    assert "none" in run(*words).stdout


def test_a_faster_downlink(numbers) -> None:
    answer = numbers("quickstart", *RADIO, "--downlink-bits", "10000")
    assert (answer["downlink_slots"], answer["update_slots"]) == (16, 154)
    assert answer["best"]["frame_seconds"] == pytest.approx((16 + 10 * 154) / 1000)


# Goals ------------------------------------------------------------------------------------------------


def test_wanted_updates(run, numbers) -> None:
    words = ("quickstart", "-o", "push.contenders=30", "--ready", "0.5", "--want-updates", "8")
    rows = numbers(*words)["wanted"]
    frames = {(row["pull"], row["barring"]): row["frame"] for row in rows}
    assert list(frames) == [("best", 1.0), ("best", "best"), (5, 1.0), (5, "best"), (0, 1.0), (0, "best")]
    assert frames["best", "best"]["slots"] <= frames["best", 1.0]["slots"] <= frames[5, 1.0]["slots"]
    assert frames[0, "best"]["slots"] < frames[0, 1.0]["slots"]
    for (pull, _), frame in frames.items():
        assert frame["expected_received"] >= 8
        assert pull == "best" or frame["pull"] == pull
    text = run(*words).stdout
    assert "Shortest frames that receive 8 updates" in text
    assert "not with 1,000,000" in run("--contenders", "3", "--want-updates", "8").stdout  # push alone


def test_a_long_frame_is_not_called_impossible(run) -> None:
    """4000 updates of UEs of which three in ten are ready take over 13,000 pull slots, more than are searched."""
    assert "not with 10,000" in run("--contenders", "3", "--ready", "0.3", "--want-updates", "4000").stdout


def test_contenders_that_splits_bear(run, numbers) -> None:
    answer = numbers("--slots", "20", "--success", "0.5")
    assert [split["bears"] for split in answer["splits"]][:11:5] == [14, 11, 7]
    barred = numbers("--slots", "20", "--success", "0.2", "--pull", "10")
    assert (barred["bears"], barred["bears_with_best_barring"]) == (16, 18)
    assert "bears" in run("--success", "0.5").stdout


# The value ratio ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    fedslot.run(fedslot.Scenario.load("quickstart", {"rounds": 24, "training.epochs": 2}), path)
    return path


def test_a_value_ratio_from_a_run(run, numbers, folder: Path) -> None:
    found = fedslot.load(folder).value_ratio()
    answer = numbers("quickstart", "--value-from", str(folder))
    assert answer["value_estimate"] == found.as_dict()
    assert answer["value_ratio"] == max(0.0, found.ratio)
    text = run("quickstart", "--value-from", str(folder)).stdout
    assert f"In the run it was worth {found.ratio:.2f}, 95% interval [{found.low:.2f}, {found.high:.2f}]" in text


def test_the_break_even_ratio_is_told_and_what_is_assumed(run, numbers) -> None:
    assert numbers("quickstart")["break_even_value_ratio"] == pytest.approx(1.25**4)
    text = run("quickstart").stdout
    assert "Open slots pay if a pushed update is worth over 2.44 times a pulled one." in text
    assert "Assumed: 1, as much as a pulled one (see --value-ratio, --value-from)." in text
    assert "Assumed: 3." in run("quickstart", "--value-ratio", "3").stdout


def test_folders_of_no_single_run_are_refused(run, tmp_path: Path) -> None:
    scenario = fedslot.Scenario.load("quickstart", {"rounds": 2, "training.epochs": 1})
    fedslot.compare(scenario, ["fedavg"], seeds=1, out=tmp_path / "several", workers=1)
    for name, line in [("several", "holds several runs"), ("nowhere", "is no folder")]:
        with pytest.raises(RefusedError, match=line):
            run("--value-from", str(tmp_path / name))


# Refused input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--slots", "0"], "--slots: 0 is not allowed; it must be from 1 to"),
        (["--pull", "21"], "--pull: 21 is not allowed; it must be from 0 to 20"),
        (["--contenders", "many"], "--contenders: 'many' is not allowed; it must be a whole number, poisson:MEAN"),
        (["--contenders", "poisson:95", "--ues", "100"], "--contenders: 'poisson:95' is not allowed"),
        (["--ready", "2"], "--ready: 2.0 is not allowed; it must be a probability, from 0 to 1"),
        (["--arrivals", "0.3"], "--arrivals: 0.3 is not allowed; it must be given with --ues, or with a SCENARIO"),
        (
            ["quickstart", "-o", "push.arrivals=0.3", "-o", "push.retries=2"],
            "push.retries: 2 is not allowed; it must be null, to plan with arrivals",
        ),
        (
            ["quickstart", "-o", "push.arrivals=0.3", "-o", "cost_rule=sum"],
            "cost_rule: 'sum' is not allowed; it must be max or frame, to plan with arrivals",
        ),
        (
            ["--barring", "often"],
            "--barring: 'often' is not allowed; it must be a probability, from 0 to 1",
        ),
        (["--barring", "nan"], "--barring: nan is not allowed"),
        (["--budget", "-3"], "--budget: -3.0 is not allowed; it must be a number of slots from 21"),
        (["--value-ratio", "inf"], "--value-ratio: inf is not allowed"),
        (["--channel", "aloha"], "--channel: 'aloha' is not allowed; it must be one of collision, capture"),
        (["--threshold-db", "3"], "--threshold-db: 3.0 is not allowed; it must be left out"),
        (["--channel", "irsa", "--frames", "0"], "--frames: 0 is not allowed"),
        (["--plot", "plan.gif"], "--plot: 'plan.gif' is not allowed; it must be a file name that ends in .png"),
        (["--plot", "nowhere/plan.png"], "--plot: 'nowhere/plan.png' is not allowed; it must be in a folder"),
        (["--plot", "plan.png", "--pull", "3"], "--plot: 'plan.png' is not allowed; it must be left out with --pull"),
        (["quickstart", "-o", "time_budget=200", "--slots", "300"], "time_budget: 200 is not allowed"),
        (["quickstart", "--ues", "3"], "push.contenders: 5 is not allowed; it must be at most the number of UEs (3)"),
        (["quickstart", "-o", "cost_rule=frame", "--budget", "100"], "--budget: 100.0 is not allowed"),
        (["nothing"], "scenario: 'nothing' is not allowed; it must be a preset"),
        (["-o", "frame.pull=3"], "-o: 'frame.pull=3' is not allowed; it must be given with a SCENARIO"),
        (["quickstart", "-o", "frame.pull=30"], "frame.pull: 30 is not allowed"),
        (["quickstart", "--contenders", "101"], "--contenders: '101' is not allowed; it must be at most the number"),
        (["--bits-per-slot", "9"], "--bits-per-slot: 9.0 is not allowed; it must be given with --parameters"),
        (["--parameters", "9"], "--parameters: 9 is not allowed; it must be given with --bits-per-slot"),
        (["--slot-ms", "0"], "--slot-ms: 0.0 is not allowed; it must be a number from 1e-09"),
        (["--send-mj", "nan"], "--send-mj: nan is not allowed; it must be a number from 0"),
        (["--listen-mj", "1"], "--listen-mj: 1.0 is not allowed; it must be given with --send-mj"),
        (["--downlink-bits", "1"], "--downlink-bits: 1.0 is not allowed; it must be left out"),
        (
            ["quickstart", "--budget", "99", "--bits-per-slot", "9", "--downlink-bits", "9"],
            "--downlink-bits: 9.0 is not allowed; it must be left out with a budget",
        ),
        (["--want-updates", "0"], "--want-updates: 0.0 is not allowed; it must be a number above 0"),
        (["--success", "2"], "--success: 2.0 is not allowed; it must be a probability above 0"),
        (["--success", "0.5", "--channel", "irsa"], "--success: 0.5 is not allowed; it must be given with --pull"),
        (["late-fleet", "--success", "0.5"], "--success: 0.5 is not allowed; it must be given with --ready"),
        (["late-fleet", "--want-updates", "5"], "--want-updates: 5.0 is not allowed; it must be given with --ready"),
        (["late-fleet", "--frame-limit", "5"], "--frame-limit: 5.0 is not allowed; it must be left out where"),
        (["--value-from", "x", "--value-ratio", "2"], "--value-from: 'x' is not allowed; it must be left out"),
        (["quickstart", *COMPRESSED, "--budget", "99"], "--budget: 99.0 is not allowed; it must be left out where"),
        (["quickstart", *COMPRESSED, "--frame-limit", "9"], "--frame-limit: 9.0 is not allowed; it must be left out"),
        (["quickstart", *COMPRESSED, *RADIO, "--bits-per-parameter", "8"], "--bits-per-parameter: 8 is not allowed"),
        (["quickstart", "--accuracy-from", "."], "--accuracy-from: '.' is not allowed; it must be given with"),
        (["quickstart", *COMPRESSED, "--accuracy-from", "nowhere"], "nowhere is no folder"),
    ],
)
def test_bad_words_are_one_line(refusal: Callable[[list[str]], str], words: list[str], line: str) -> None:
    assert refusal(["plan", *words]).startswith(f"error: {line}")


@pytest.mark.parametrize(
    "words",
    [
        ("--budget", "1000", "--barring", "best", "--value-ratio", "2", "--channel", "crdsa", "--frames", "50"),
        ("--slots", "120", "--contenders", "poisson:60", "--ready", "0.5"),
        ("--frame-limit", "15", "--value-ratio", "4"),
        ("quickstart", *RADIO, "--want-updates", "8"),
        ("late-fleet", *RADIO, "--value-ratio", "3"),
        ("quickstart", "-o", "push.arrivals=0.3", "--value-ratio", "3", "--barring", "best"),
        ("paper", "--bits-per-slot", "100", "--frame-limit", "15", "--value-ratio", "3", "--success", "0.3"),
    ],
)
def test_all_lines_fit_80_columns(run, words: tuple[str, ...]) -> None:
    text = run(*words).stdout
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


# The page -----------------------------------------------------------------------------------------------


def _commands() -> list[tuple[str, str]]:
    """Commands of the page with the outputs that it shows."""
    (page,) = (Path(__file__).parents[2] / "docs").rglob("planning.md")
    blocks = re.findall(r"```console\n\$ fedslot (plan [^\n]*)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    return blocks


@pytest.mark.parametrize(("words", "shown"), _commands())
def test_the_page_shows_what_commands_print(run, folder: Path, words: str, shown: str) -> None:
    trained = "out/first" in words
    found = run(*shlex.split(words.replace("out/first", str(folder)))[1:]).stdout
    lines, expected = [[line.rstrip() for line in text.splitlines()] for text in (found, shown)]
    if trained:  # numbers of a training are those of one kind of processor
        lines, expected = [[re.sub(r"-?[\d.]+", "0", line) for line in text[-3:]] for text in (lines, expected)]
    parts = [part.strip("\n").splitlines() for part in re.split(r"^\.\.\.$", "\n".join(expected), flags=re.MULTILINE)]
    end = 0
    for part in filter(None, parts):  # the page may leave out lines
        start = lines.index(part[0], end)
        end = start + len(part)
        assert lines[start:end] == part
