"""Comparisons: pairing, measures by hand, any number of workers, failures, resuming."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedslot.experiments.comparison import Comparison, compare
from fedslot.experiments.measures import common_horizon, measure
from fedslot.experiments.pool import run_all
from fedslot.experiments.tasks import Settings, Task
from fedslot.experiments.variants import VariantStudy, make_variants
from fedslot.runs.execution import is_finished, run
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError

QUICK = {"rounds": 3, "data.ues": 20, "strategy.warmup": 1, "training.epochs": 1}


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", QUICK)


def result(accuracies: list[float], costs: list[int]) -> Result:
    rounds = pd.DataFrame(
        {
            "test_accuracy": accuracies,
            "cost_max": costs,
            "cost_frame": costs,
            "cost_sum": [5 * cost for cost in costs],
            "slots_spent": np.cumsum(costs),
        }
    )
    return Result(Scenario(), rounds)


@pytest.fixture
def by_hand() -> Comparison:
    runs = {
        "push-pull": [result([0.5, 0.8], [10, 10]), result([0.6, 0.7], [10, 20]), result([0.4, 0.9], [10, 12])],
        "fedavg": [result([0.4, 0.7], [20, 20]), result([0.5, 0.8], [20, 20]), result([0.5, 0.6], [20, 20])],
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


def spending(slots: int, *, budget: int | None, rounds: int) -> Result:
    """A run of two rounds that was to have some number of them."""
    made = result([0.5, 0.8], [slots // 2, slots - slots // 2])
    return Result(
        Scenario().replace({"rounds": rounds, "time_budget": budget, "frame.slots": 9, "frame.pull": 5}), made.rounds
    )


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([spending(20, budget=None, rounds=2), spending(30, budget=None, rounds=2)], 20),
        ([spending(20, budget=29, rounds=5), spending(25, budget=29, rounds=5)], 29),
        ([spending(20, budget=29, rounds=2), spending(25, budget=29, rounds=5)], 20),
        ([spending(0, budget=None, rounds=2), spending(30, budget=None, rounds=2)], 30),
        ([spending(0, budget=None, rounds=2)], 0),
    ],
    ids=["least spent", "stopped by the budget", "one ran out of rounds", "one spends nothing", "all spend nothing"],
)
def test_accuracies_are_compared_where_all_are_known(runs: list[Result], expected: int) -> None:
    assert common_horizon(runs) == expected


def test_same_for_any_number_of_workers(scenario: Scenario, tmp_path: Path) -> None:
    strategies = ["push-pull", "fedavg"]
    one = compare(scenario, strategies, 2, tmp_path / "one", workers=1)
    two = compare(scenario, strategies, 2, tmp_path / "two", workers=2)
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    assert (tmp_path / "one" / "comparison.csv").read_text() == (tmp_path / "two" / "comparison.csv").read_text()
    written = pd.read_csv(tmp_path / "one" / "runs.csv")
    assert list(written["strategy"]) == ["push-pull"] * 2 + ["fedavg"] * 2
    assert list(written["seed"]) == [0, 1, 0, 1]


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


def test_a_failure_does_not_stop_the_others(scenario: Scenario, tmp_path: Path) -> None:
    diverging = scenario.replace({"training.lr": 1e6})
    tasks = [Task(diverging, tmp_path / "bad"), Task(scenario, tmp_path / "good")]
    for workers in (1, 2):
        failures = run_all(tasks, Settings(resume=True), workers=workers)
        assert list(failures) == [0]
        assert "training.lr" in failures[0]
        assert is_finished(tmp_path / "good")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_comparison_without_a_single_round_leaves_nothing_behind(
    scenario: Scenario, tmp_path: Path, workers: int
) -> None:
    """If only some runs fail in their first round, the others stay, and --resume tries again."""
    failing, out = scenario.replace({"training.lr": 1e6}), tmp_path / "out"
    with pytest.raises(RefusedError, match=r"2 of 2 runs failed.* round 0:"):
        compare(failing, ["fedavg", "round-robin"], seeds=1, out=out, workers=workers)
    assert not out.exists()
    mixed = ["fedavg", "fedavg{training.lr: 0.1}"]
    for resume in (False, True):
        with pytest.raises(RefusedError, match=r"1 of 2 runs failed.* round 0:"):
            compare(failing, mixed, seeds=1, out=out, workers=workers, resume=resume)
        (left,) = (out / "runs").iterdir()
        assert is_finished(left)


def test_a_failed_comparison_says_which_run(scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"fedavg-seed0.*training\.lr"):
        compare(scenario.replace({"training.lr": 1e6}), ["fedavg"], 1, tmp_path, workers=1)


def test_resuming_leaves_finished_runs_alone(scenario: Scenario, tmp_path: Path) -> None:
    compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    before = (tmp_path / "runs" / "fedavg-seed0" / "rounds.csv").stat().st_mtime_ns
    heard: list[tuple[int, int | None]] = []
    both = compare(
        scenario,
        ["fedavg", "only-pull"],
        1,
        tmp_path,
        workers=1,
        resume=True,
        listener=lambda index, round: heard.append((index, round and round.round)),
    )
    assert both.strategies == ["fedavg", "only-pull"]
    assert heard == [(0, None), (1, 0), (1, 1), (1, 2), (1, None)]
    assert (tmp_path / "runs" / "fedavg-seed0" / "rounds.csv").stat().st_mtime_ns == before


BAD_FIELDS = {
    "data.ues": 5000,
    "data.validation_samples": 100_000,
    "data.unlabelled_samples": 100_000,
    "valuation.samples": 100_000,
    "training.device": "cuda:99",
    "training.epochs_by_strategy": {"foo": 3},
    "training.pooled": True,
    "time_budget": 11,  # enough for a frame, not for asking
}


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_what_does_not_fit_the_data_or_the_strategy_is_refused_before_results_are_deleted(
    scenario: Scenario, tmp_path: Path, field: str
) -> None:
    compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    strategies = ["greedy-shap", "power-of-choice"]
    with pytest.raises(InputError, match=field):
        compare(scenario.replace({field: BAD_FIELDS[field]}), strategies, 1, tmp_path, workers=1, force=True)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_compiled_engine_for_another_network_is_refused_before_results_are_deleted(
    scenario: Scenario, tmp_path: Path
) -> None:
    compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    compiled = scenario.replace({"training.engine": "compiled", "training.model": "cnn"})
    with pytest.raises(InputError, match=r"training\.engine"):
        compare(compiled, ["fedavg"], 1, tmp_path, workers=1, force=True)
    assert is_finished(tmp_path / "runs" / "fedavg-seed0")


def test_resuming_with_fewer_rounds_leaves_the_comparison_as_it_was(scenario: Scenario, tmp_path: Path) -> None:
    compare(scenario, ["fedavg", "round-robin"], 2, tmp_path, workers=1)
    before = (tmp_path / "comparison.yaml").read_bytes()
    with pytest.raises(RefusedError, match=r"holds 3 rounds already, more than rounds=2"):
        compare(scenario.replace({"rounds": 2}), ["fedavg"], 1, tmp_path, workers=1, resume=True)
    assert (tmp_path / "comparison.yaml").read_bytes() == before


def test_resuming_takes_no_results_of_another_scenario(scenario: Scenario, tmp_path: Path) -> None:
    compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    with pytest.raises(RefusedError, match=r"another scenario: its frame.pull is 5, not 4"):
        compare(scenario.replace({"frame.pull": 4}), ["fedavg"], 1, tmp_path, workers=1, resume=True)


@pytest.mark.parametrize(
    ("strategies", "seeds", "targets", "field"),
    [
        ([], 1, [0.5], "strategies"),
        (["fedavg", "fedavg"], 1, [0.5], "strategies"),
        (["fedavg"], 0, [0.5], "seeds"),
        (["fedavg"], 1, [1.5], "targets"),
        (["fedavg"], 1, [0.7, 0.7000001], "different from each other"),
        (["fedavg"], 1, [float("nan")], "targets"),
    ],
)
def test_bad_arguments(
    scenario: Scenario, tmp_path: Path, strategies: list[str], seeds: int, targets: list[float], field: str
) -> None:
    with pytest.raises(InputError, match=field):
        compare(scenario, strategies, seeds, tmp_path / "out", targets=targets)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seeds", [1_000_000, 10**30])
def test_too_many_seeds_are_refused_before_anything_is_built(scenario: Scenario, tmp_path: Path, seeds: int) -> None:
    with pytest.raises(InputError, match=r"seeds: .*at most 50000, since 100000 runs"):
        compare(scenario, ["fedavg", "ucb"], seeds, tmp_path / "out")


@pytest.mark.parametrize(
    ("overrides", "strategies", "field"),
    [
        ({}, ["push-pull", "os:system"], "strategy.name"),
        ({}, ["push-pull", "nothing:Here"], "strategy.name"),
        ({}, ["fedavg", "fedavg+krumm"], "aggregation.name"),
        ({}, ["fedavg", "fedavg{valuation.name: fast}"], "valuation.name"),
        ({}, ["fedavg", "fedavg{training.optimizer: adam}"], "training.optimizer"),
        ({}, ["fedavg", "fedavg{data.dataset: nope.npz}"], "data.dataset"),
        ({}, ["fedavg", "centralized+krum"], "aggregation.name"),
        ({}, ["fedavg", "ucb{explorations: 1}"], "strategy.options.explorations"),
        ({"strategy.options": {"explorations": 2.0}}, ["ucb", "fedavg"], "strategy.options.explorations"),
    ],
)
def test_what_one_of_the_strategies_cannot_do_is_refused_before_any_run(overrides, strategies, field, tmp_path):
    scenario = Scenario.load("quickstart", {"rounds": 1, **overrides})
    with pytest.raises(InputError) as caught:
        compare(scenario, strategies, 1, tmp_path / "out", workers=1)
    assert caught.value.field == field
    assert not (tmp_path / "out").exists()


def test_runs_of_variants(scenario: Scenario, tmp_path: Path) -> None:
    """Each is the run of its own scenario, under its label, in a folder that every file system takes."""
    strategies = ["fedavg", "fedavg{training.epochs: 2}", {"Adam: 1/2": {"aggregation.name": "fedadam"}}]
    found = compare(scenario, strategies, 1, tmp_path, workers=1)
    assert found.strategies == ["fedavg", "fedavg{training.epochs: 2}", "Adam: 1/2"]
    assert [runs[0].scenario.training.epochs for runs in found.runs.values()] == [1, 2, 1]
    assert found.runs["Adam: 1/2"][0].scenario.strategy.name == "push-pull"
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
