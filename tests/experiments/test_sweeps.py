"""Sweeps: tables by hand, failures among successes, resuming and growing, folders that belong to others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedslot.experiments.estimates import ACCURACY, Estimate
from fedslot.experiments.grid import GridStudy
from fedslot.experiments.sweeps import FailedRunsError, Sweep, sweep
from fedslot.rounds.round import Round
from fedslot.runs.execution import run
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.strategies import Cell
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError, RefusedError


class Own(FedAvg):
    """A strategy of one's own with an option of any kind."""

    def __init__(self, cell: Cell, *, what: object = None) -> None:
        super().__init__(cell)


OWN = f"{__name__}:Own"


Make = Callable[..., Result]


@pytest.fixture
def by_hand(scenario: Scenario, result: Make) -> Sweep:
    study = GridStudy(scenario, {"frame.pull": [2, 5]}, 2)
    runs = [result([0.5, 0.8], 10, 10), result([0.6, 0.9], 10, 10), result([0.5, 0.7], 20, 20), None]
    return Sweep(study, runs, {3: "it rained"}, (0.8,))


def test_measures_by_hand(by_hand: Sweep) -> None:
    assert by_hand.horizon == 20, "the least that any run spent"
    table = by_hand.measures()
    assert list(table["frame.pull"]) == [2, 2, 5, 5]
    assert list(table["seed"]) == [0, 1, 0, 1]
    assert list(table["failure"]) == ["", "", "", "it rained"]
    assert list(table["accuracy_at_horizon"])[:3] == [0.8, 0.9, 0.5]
    assert list(table["slots_to_0.8_max"])[:2] == [20, 20]
    assert table.iloc[3][["final_accuracy", "slots_spent"]].isna().all()
    by_hand.estimates()[0].clear()  # changes a copy
    assert by_hand.estimates()[0]["final_accuracy"] == Estimate.of([0.8, 0.9], ACCURACY)
    failed = by_hand.estimates()[1]["final_accuracy"]
    assert (failed.values[0], failed.count, failed.total) == (0.7, 1, 2)
    assert np.isnan(failed.mean), "no mean over the runs that did not fail"
    summary = by_hand.table().set_index(["frame.pull", "measure"])
    assert summary.loc[(2, "slots_to_0.8_sum"), "mean"] == 100


def test_leaders_are_those_that_may_be_the_best(scenario: Scenario, result: Make) -> None:
    """A cell that is far behind is ruled out; those within the noise of all cells are not."""
    study = GridStudy(scenario, {"frame.pull": [2, 5, 8, 9]}, 4)
    noise, common = [0.01, -0.02, 0.015, -0.01], [0.05, -0.04, 0.0, 0.02]
    levels = ([0.8 + n for n in reversed(noise)], [0.801] * 4, [0.801 + n for n in noise], [0.6] * 4)
    runs = [result([level + c], 10) for cell in levels for level, c in zip(cell, common, strict=True)]
    found = Sweep(study, [*runs], {}, (0.5,))
    assert sorted(found.leaders("final_accuracy")) == [0, 1, 2]
    assert found.leaders("final_accuracy", among=[0, 3]) == [0]
    lame = Sweep(study, [*runs[:4], None, *runs[5:]], {4: "it rained"}, (0.5,))
    assert sorted(lame.leaders("final_accuracy")) == [0, 2]


def test_two_seeds_rule_out_nothing(by_hand: Sweep, result: Make) -> None:
    runs = [result([accuracy], 10) for accuracy in (0.1, 0.1, 0.9, 0.9)]
    assert Sweep(by_hand.study, [*runs], {}).leaders("final_accuracy") == [1, 0]
    assert Sweep(by_hand.study, [None] * 4, dict.fromkeys(range(4), "it rained")).leaders("final_accuracy") == []
    with pytest.raises(InputError, match=r"measure: 'accuracy' is not allowed.*did you mean final_accuracy"):
        by_hand.leaders("accuracy")


def test_the_table_holds_what_the_runs_alone_give(scenario: Scenario, tmp_path: Path) -> None:
    grid = {"strategy.name": ["push-pull", "fedavg"], "frame.pull": [2, 5]}
    found = sweep(scenario, grid, 2, tmp_path, workers=2)
    assert not found.failures
    row = found.measures().iloc[5]
    assert (row["strategy.name"], row["frame.pull"], row["seed"]) == ("fedavg", 2, 1)
    alone = run(scenario.replace({"strategy.name": "fedavg", "frame.pull": 2, "seed": 1}))
    assert row["final_accuracy"] == alone.final_accuracy
    assert row["slots_spent"] == alone.slots_spent
    written = pd.read_csv(tmp_path / "runs.csv", keep_default_na=False, na_values={"failure": []})
    assert list(written.columns) == list(found.measures().columns)
    assert len(written) == 8
    elsewhere = tmp_path / "elsewhere"
    sweep(scenario, grid, 2, elsewhere, workers=1)
    for name in ("runs.csv", "sweep.csv", "study.yaml"):
        assert (elsewhere / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_run_that_fails_is_in_the_table_and_leaves_no_folder(scenario: Scenario, tmp_path: Path) -> None:
    found = sweep(scenario, {"training.lr": [1e6, 0.05]}, 1, tmp_path, workers=1, on_failure="record")
    assert list(found.failures) == [0]
    table = pd.read_csv(tmp_path / "runs.csv")
    assert list(table["failure"].str.contains("diverged", na=False)) == [True, False]
    assert list(table["final_accuracy"].isna()) == [True, False]
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["training.lr=0.05-seed0"]


def test_failed_runs_are_a_failure_of_the_call(scenario: Scenario, tmp_path: Path) -> None:
    """When all runs are over and saved; the error has the results."""
    with pytest.raises(
        FailedRunsError, match=r"2 of 4 runs failed; training.lr=.*-seed0: round 0: .*diverged"
    ) as caught:
        sweep(scenario, {"training.lr": [1e6, 0.05]}, 2, tmp_path / "half", workers=1)
    assert [run is None for run in caught.value.sweep.runs] == [True, True, False, False]
    assert len(pd.read_csv(tmp_path / "half" / "runs.csv")) == 4
    with pytest.raises(FailedRunsError, match="a run failed"):
        sweep(scenario, {"training.lr": [1e6]}, 1, tmp_path / "all", workers=1, on_failure="record")
    assert (tmp_path / "all" / "runs.csv").is_file()


def test_a_sweep_whose_runs_all_failed_can_be_shown(scenario: Scenario) -> None:
    failed = Sweep(GridStudy(scenario, {"frame.pull": [2, 5]}, 2), [None] * 4, dict.fromkeys(range(4), "it rained"))
    page = failed._repr_html_()
    assert "Sweep, 2 combinations" in page
    assert "4 of 4 runs failed." in page
    for measure in ("accuracy_at_horizon", failed.slots_measure(0.7)):
        with pytest.raises(RefusedError, match=r"^there is nothing to draw: 4 of 4 runs failed$"):
            failed.plot(measure)
    with pytest.raises(InputError, match="measure"):
        failed.plot("accuracy")


def test_tables_have_a_header_when_all_runs_fail(scenario: Scenario, tmp_path: Path) -> None:
    Sweep(GridStudy(scenario, {"frame.pull": [2]}, 1), [None], {0: "it rained"}).save(tmp_path)
    assert (tmp_path / "sweep.csv").read_text() == "frame.pull,measure,mean,low,high,median,count,total\n"
    assert (tmp_path / "runs.csv").read_text() == "frame.pull,seed,failure\n2,0,it rained\n"


def test_an_axis_may_be_called_as_a_measure(scenario: Scenario, result: Make) -> None:
    named = Sweep(GridStudy(scenario, {"rounds": [1, 2]}, 1), [result([0.5], 10)] * 2, {})
    assert list(named.measures()["rounds"]) == [1, 2]


def test_values_that_look_alike_are_told_apart(scenario: Scenario, result: Make) -> None:
    values = [None, "null", 1, "1", "[1]", [1], True, "true", "", "'1'", "a: [", "two words"]
    study = GridStudy(scenario.replace({"strategy.name": OWN}), {"strategy.options.what": values}, 1)
    found = Sweep(study, [result([0.5], 10)] * len(values), {})
    expected = ["null", "'null'", "1", "'1'", "'[1]'", "[1]", "True", "'true'", "''", "\"'1'\"", "'a: ['", "two words"]
    assert list(found.measures()["strategy.options.what"].map(str)) == expected
    assert list(found.table()["strategy.options.what"].map(str).unique()) == expected


def test_a_stopped_sweep_goes_on(scenario: Scenario, tmp_path: Path) -> None:
    grid = {"frame.pull": [2, 5, 8]}
    sweep(scenario, grid, 1, tmp_path / "whole", workers=1)

    def stop(index: int, round: object) -> None:
        if index == 1 and round is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(scenario, grid, 1, tmp_path / "stopped", workers=1, listener=stop)
    assert not (tmp_path / "stopped" / "runs.csv").exists()
    heard: list[tuple[int, int]] = []

    def listen(index: int, round: Round | None) -> None:
        if round is not None:
            heard.append((index, round.round))

    sweep(scenario, grid, 1, tmp_path / "stopped", workers=1, resume=True, listener=listen)
    assert heard == [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)], "no finished round is computed again"
    assert (tmp_path / "stopped" / "runs.csv").read_bytes() == (tmp_path / "whole" / "runs.csv").read_bytes()


def test_a_sweep_may_grow(scenario: Scenario, tmp_path: Path) -> None:
    sweep(scenario, {"frame.pull": [2]}, 1, tmp_path / "grown", workers=1)
    heard: set[int] = set()

    def listen(index: int, round: Round | None) -> None:
        if round is not None:
            heard.add(index)

    more = {"frame.pull": [5, 2]}
    sweep(scenario, more, 2, tmp_path / "grown", workers=1, resume=True, listener=listen)
    assert heard == {0, 1, 3}, "what was there is reused"
    sweep(scenario, more, 2, tmp_path / "whole", workers=1)
    assert (tmp_path / "grown" / "runs.csv").read_bytes() == (tmp_path / "whole" / "runs.csv").read_bytes()


def test_folders_that_are_not_ours_to_take(scenario: Scenario, tmp_path: Path) -> None:
    grid = {"frame.pull": [2]}
    done = tmp_path / "done"
    sweep(scenario, grid, 1, done, workers=1)
    before = sorted((file, file.read_bytes()) for file in done.rglob("*") if file.is_file())
    with pytest.raises(RefusedError, match="--resume"):
        sweep(scenario, grid, 1, done)
    with pytest.raises(RefusedError, match=r"another scenario: its fleet.noise is 0.3, not 0.2"):
        sweep(scenario.replace({"fleet.noise": 0.2}), grid, 1, done, resume=True)
    with pytest.raises(RefusedError, match=r"over frame.pull, not over push.contenders"):
        sweep(scenario, {"push.contenders": [2]}, 1, done, resume=True)
    with pytest.raises(RefusedError, match=r"rounds already, more than rounds=1"):
        sweep(scenario.replace({"rounds": 1}), grid, 1, done, resume=True)
    with pytest.raises(InputError, match=r"data\.validation_samples"):
        sweep(scenario, {"data.validation_samples": [10, 100_000]}, 1, done, force=True)
    with pytest.raises(InputError, match="cost_rule"):
        sweep(scenario, {"cost_rule": ["max", "frame"]}, 1, done, force=True)
    assert sorted((file, file.read_bytes()) for file in done.rglob("*") if file.is_file()) == before
    run(scenario, tmp_path / "run")
    with pytest.raises(RefusedError, match="holds a run, not a sweep"):
        sweep(scenario, grid, 1, tmp_path / "run", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="is a file"):
        sweep(scenario, grid, 1, tmp_path / "file")


def test_a_kill_during_the_first_write_leaves_a_folder_that_can_be_taken(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / ".study.yaml.123.tmp").write_text("sce")
    sweep(scenario, {"frame.pull": [2]}, 1, tmp_path, workers=1, resume=True)
    assert (tmp_path / "runs.csv").is_file()
    assert [file.name for file in tmp_path.glob(".*")] == [".lock"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"grid": {"data.dataset": ["nope.npz", "digits"]}}, "nope.npz"),
        ({"targets": [5]}, "targets"),
        ({"workers": 0}, "workers"),
        ({"on_failure": "ignore"}, "on_failure"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    scenario: Scenario, tmp_path: Path, arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        sweep(scenario, **{"grid": {"frame.pull": [5]}, "seeds": 1, "out": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()
