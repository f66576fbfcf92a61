"""Comparisons: pairing, measures by hand, any number of workers, failures, resuming."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedslot.experiments.comparison import Comparison, compare
from fedslot.experiments.measures import common_horizon, measure
from fedslot.experiments.variants import VariantStudy, make_variants
from fedslot.runs.execution import is_finished, run
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError

Make = Callable[..., Result]


@pytest.fixture
def by_hand(result: Make) -> Comparison:
    runs = {
        "push-pull": [result([0.5, 0.8], 10, 10), result([0.6, 0.7], 10, 20), result([0.4, 0.9], 10, 12)],
        "fedavg": [result([0.4, 0.7], 20, 20), result([0.5, 0.8], 20, 20), result([0.5, 0.6], 20, 20)],
    }
    return Comparison(Scenario(), [0, 1, 2], runs, (0.5, 0.8))


def test_measures_by_hand(by_hand: Comparison) -> None:
    assert by_hand.horizon == 20, "the least that any run spent"
    estimates = by_hand.estimates()
    assert estimates["push-pull"]["final_accuracy"].mean == pytest.approx(0.8)
    assert estimates["push-pull"]["accuracy_at_horizon"].mean == pytest.approx((0.8 + 0.6 + 0.4) / 3)
    assert estimates["fedavg"]["accuracy_at_horizon"].mean == pytest.approx((0.4 + 0.5 + 0.5) / 3)
    reached = estimates["push-pull"]["slots_to_0.8_max"]
    assert (reached.count, reached.total, reached.median) == (2, 3, 22.0), (
        "the run that missed it counts as the slowest"
    )
    assert np.isnan(reached.mean)
    assert estimates["push-pull"]["slots_to_0.5_sum"].mean == pytest.approx(50 * (1 + 1 + 2.2) / 3)


def test_measures_are_computed_once(by_hand: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever gets them may change them."""
    measured: list[Result] = []

    def counting(result: Result, horizon: int, targets: Sequence[float]) -> dict[str, float]:
        measured.append(result)
        return measure(result, horizon, targets)

    monkeypatch.setattr("fedslot.experiments.measures.measure", counting)
    before = by_hand.measures()
    by_hand.difference_table()
    by_hand.table()
    changed = by_hand.measures()
    changed["final_accuracy"] = 0.0
    pd.testing.assert_frame_equal(by_hand.measures(), before)
    assert len(measured) == 6


def test_differences_are_paired(by_hand: Comparison) -> None:
    difference = by_hand.differences("final_accuracy")["fedavg"]
    by_seed = [0.7 - 0.8, 0.8 - 0.7, 0.6 - 0.9]
    assert difference.mean == pytest.approx(np.mean(by_seed))
    assert np.arctanh(difference.high) - np.arctanh(difference.mean) == pytest.approx(
        4.303 * np.std(by_seed, ddof=1) / 3**0.5 / (1 - np.mean(by_seed) ** 2), rel=1e-3
    )
    assert by_hand.differences("final_accuracy", reference="fedavg")["push-pull"].mean == pytest.approx(
        -np.mean(by_seed)
    )
    with pytest.raises(InputError, match=r"measure: 'accuracy' is not allowed.*did you mean final_accuracy"):
        by_hand.differences("accuracy")
    with pytest.raises(InputError, match=r"reference: 'fedvg' .* did you mean fedavg"):
        by_hand.differences(reference="fedvg")


def test_tables_have_differences_to_the_first(by_hand: Comparison, tmp_path: Path) -> None:
    by_hand.save(tmp_path)
    written = pd.read_csv(tmp_path / "differences.csv").set_index(["strategy", "measure"])
    difference = by_hand.differences("slots_to_0.5_max")["fedavg"]
    assert written.loc[("fedavg", "slots_to_0.5_max"), "mean"] == pytest.approx(difference.mean)
    assert difference.mean == pytest.approx((40 - 10 + 20 - 10 + 20 - 22) / 3)
    written = pd.read_csv(tmp_path / "comparison.csv").set_index(["strategy", "measure"])
    missed = written.loc[("push-pull", "slots_to_0.8_max")]
    assert missed[["mean", "low", "high"]].isna().all()
    assert missed[["median", "count", "total"]].tolist() == [22, 2, 3]


def test_slots_are_shown_by_the_rule_that_spends_them(by_hand: Comparison) -> None:
    assert by_hand.slots_measure(0.5) == "slots_to_0.5_max"
    by_frames = Comparison(Scenario(cost_rule="frame"), by_hand.seeds, by_hand.runs, by_hand.targets)
    assert by_frames.slots_measure(0.5) == "slots_to_0.5_frame"
    assert by_frames.slots_measure(0.5) in by_frames.estimates()["fedavg"]


@pytest.mark.parametrize(
    ("runs", "expected"),  # each run: the slots of its two rounds, its time budget and the number of rounds it may have
    [
        ([(20, None, 2), (30, None, 2)], 20),
        ([(20, 29, 5), (25, 29, 5)], 29),
        ([(20, 29, 2), (25, 29, 5)], 20),
        ([(0, None, 2), (30, None, 2)], 30),
        ([(0, None, 2)], 0),
    ],
    ids=["least spent", "stopped by the budget", "one ran out of rounds", "one spends nothing", "all spend nothing"],
)
def test_accuracies_are_compared_where_all_are_known(
    result: Make, runs: list[tuple[int, int | None, int]], expected: int
) -> None:
    frame = {"frame.slots": 9, "frame.pull": 5}
    results = [
        result([0.5, 0.8], 0, slots, **{**frame, "time_budget": budget, "rounds": rounds})
        for slots, budget, rounds in runs
    ]
    assert common_horizon(results) == expected


def test_seeds_are_paired(scenario: Scenario, tmp_path: Path) -> None:
    """Strategies differ in nothing but their name, seeds in nothing but their number."""
    tasks = VariantStudy(scenario.replace({"seed": 7}), make_variants("fedavg,only-pull"), 2).tasks(tmp_path)
    assert [(task.scenario.strategy.name, task.scenario.seed) for task in tasks] == [
        ("fedavg", 7),
        ("fedavg", 8),
        ("only-pull", 7),
        ("only-pull", 8),
    ]
    assert len({task.scenario.replace({"seed": 0, "strategy.name": "x"}).digest for task in tasks}) == 1
    assert len({task.folder for task in tasks}) == 4


def test_a_comparison_without_a_single_round_leaves_nothing_behind(scenario: Scenario, tmp_path: Path) -> None:
    """If only some runs fail in their first round, the others stay, and --resume tries again."""
    failing, out = scenario.replace({"training.lr": 1e6}), tmp_path / "out"
    with pytest.raises(RefusedError, match=r"2 of 2 runs failed; fedavg-seed0: round 0: .*training\.lr"):
        compare(failing, ["fedavg", "round-robin"], seeds=1, out=out, workers=1)
    assert not out.exists()
    mixed = ["fedavg", "fedavg{training.lr: 0.1}"]
    for resume in (False, True):
        with pytest.raises(RefusedError, match=r"1 of 2 runs failed.* round 0:"):
            compare(failing, mixed, seeds=1, out=out, workers=1, resume=resume)
        (left,) = (out / "runs").iterdir()
        assert is_finished(left)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    """The files of a finished comparison."""
    folder = tmp_path_factory.mktemp("done")
    compare(Scenario.load("quickstart", {"rounds": 1}), ["fedavg"], 1, folder, workers=1)
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.ues", 5000),
        ("data.validation_samples", 100_000),
        ("data.unlabelled_samples", 100_000),
        ("valuation.samples", 100_000),
        ("training.device", "cuda:99"),
        ("training.epochs_by_strategy", {"foo": 3}),
        ("training.pooled", True),
        ("time_budget", 11),  # enough for a frame, not for asking
        ("training.engine", "compiled"),  # for no network but perceptrons
    ],
)
def test_what_does_not_fit_the_data_or_the_strategy_is_refused_before_results_are_deleted(
    scenario: Scenario, done: dict[Path, bytes], field: str, value: object
) -> None:
    folder = next(file.parent for file in done if file.name == "comparison.yaml")
    changes = {field: value, **({"training.model": "cnn"} if field == "training.engine" else {})}
    with pytest.raises(InputError, match=field):
        compare(scenario.replace(changes), ["greedy-shap", "power-of-choice"], 1, folder, force=True)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == done


def test_resuming_takes_no_results_of_another_scenario(scenario: Scenario, tmp_path: Path) -> None:
    compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    with pytest.raises(RefusedError, match=r"another scenario: its frame.pull is 5, not 4"):
        compare(scenario.replace({"frame.pull": 4}), ["fedavg"], 1, tmp_path, workers=1, resume=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"strategies": []}, "strategies"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": 10**30}, "seeds: .*at most 50000, since 100000 runs"),
        ({"targets": [1.5]}, "targets"),
        ({"targets": [0.7, 0.7000001]}, "different from each other"),
        ({"targets": [float("nan")]}, "targets"),
        ({"targets": [n / 1000 for n in range(1, 900)]}, "899 values.* at most 20 values"),
        ({"strategies": ["fedavg", "nothing:Here"]}, r"strategy\.name"),
        ({"strategies": ["fedavg", "centralized+krum"]}, r"aggregation\.name"),
        ({"strategies": ["fedavg", "ucb{explorations: 1}"]}, r"strategy\.options\.explorations"),
        ({"strategies": {"a": "fedavg", "b": {"cost_rule": "frame"}}}, "cost_rule: 'frame'.* max for all"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_run(
    scenario: Scenario, tmp_path: Path, arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        compare(scenario, **{"strategies": ["fedavg", "ucb"], "out": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()


def test_runs_of_variants(scenario: Scenario, tmp_path: Path) -> None:
    """Each is the run of its own scenario, under its label, in a folder that every file system takes."""
    strategies = ["fedavg", "fedavg{training.epochs: 2}", {"Adam: 1/2": {"aggregation.name": "fedadam"}}]
    found = compare(scenario, strategies, 1, tmp_path, workers=1)
    assert found.strategies == ["fedavg", "fedavg{training.epochs: 2}", "Adam: 1/2"]
    assert [runs[0].scenario.training.epochs for runs in found.runs.values()] == [1, 2, 1]
    assert found.runs["Adam: 1/2"][0].scenario.strategy.name == "push-pull"
    assert list(pd.read_csv(tmp_path / "runs.csv")["strategy"]) == found.strategies
    folders = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert all(re.fullmatch(r"[a-z0-9._+-]+", name) for name in folders)
    assert "fedavg-seed0" in folders
    alone = run(scenario.replace({"strategy.name": "fedavg", "training.epochs": 2}))
    assert found.runs["fedavg{training.epochs: 2}"][0].final_accuracy == alone.final_accuracy


def test_a_preset_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean quickstart"):
        compare("quickstrat", ["fedavg"], 1, tmp_path / "out")
    with pytest.raises(InputError, match="a Scenario, a preset or a YAML file"):
        compare(3, ["fedavg"], 1, tmp_path / "out")
    file = tmp_path / "mine.yaml"
    file.write_text("rounds: 1\ndata: {ues: 20}\n")
    assert compare(file, "fedavg,ucb", 1, workers=1).strategies == ["fedavg", "ucb"]
