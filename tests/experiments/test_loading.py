"""Loading what a folder holds, also if it is not finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

import fedslot
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import RefusedError


@pytest.fixture
def scenario(scenario: Scenario) -> Scenario:
    return scenario.replace({"rounds": 2, "seed": 3})


def test_a_comparison_is_loaded_as_it_was(scenario: Scenario, tmp_path: Path) -> None:
    variants = ["fedavg", {"Long": {"strategy.name": "fedavg", "training.epochs": 2}}]
    compared = fedslot.compare(scenario, variants, 2, tmp_path, targets=(0.25,), workers=1)
    loaded = fedslot.load(tmp_path)
    assert isinstance(loaded, fedslot.Comparison)
    pd.testing.assert_frame_equal(loaded.table(), compared.table())
    assert (loaded.seeds, loaded.scenario, loaded.missing) == ([3, 4], scenario, ())


def test_an_unfinished_comparison_is_loaded_as_far_as_it_is_paired(scenario: Scenario, tmp_path: Path) -> None:
    fedslot.compare(scenario, ["fedavg", "round-robin", "ucb"], 2, tmp_path, workers=1)
    (tmp_path / "runs" / "round-robin-seed3" / "summary.json").unlink()
    for seed in (3, 4):
        shutil.rmtree(tmp_path / "runs" / f"ucb-seed{seed}")
    with pytest.warns(UserWarning, match="3 of 6 runs are not finished: round-robin-seed3, ucb-seed3, ucb-seed4"):
        loaded = fedslot.load(tmp_path)
    assert (loaded.strategies, loaded.seeds) == (["fedavg", "round-robin"], [4])
    assert loaded.missing == ("round-robin-seed3", "ucb-seed3", "ucb-seed4")
    assert loaded.differences()["round-robin"].count == 1
    for name in ("round-robin-seed4", "fedavg-seed3", "fedavg-seed4"):
        (tmp_path / "runs" / name / "summary.json").unlink()
    with pytest.raises(RefusedError, match="without a seed that was finished; continue it with --resume"):
        fedslot.load(tmp_path)


def test_a_sweep_is_loaded_with_its_failures(scenario: Scenario, tmp_path: Path) -> None:
    grid = {"strategy.name": ["fedavg", "ucb"], "training.lr": [0.05, 1_000_000]}
    swept = fedslot.sweep(scenario, grid, 1, tmp_path, targets=(0.25, 0.5), workers=1, on_failure="record")
    with pytest.warns(UserWarning, match="2 of 4 runs failed: strategy.name=fedavg_training.lr=1000000-seed3"):
        loaded = fedslot.load(tmp_path)
    assert isinstance(loaded, fedslot.Sweep)
    assert loaded.failures == swept.failures
    assert loaded.study.scenarios == swept.study.scenarios
    pd.testing.assert_frame_equal(loaded.measures(), swept.measures())
    shutil.rmtree(tmp_path / "runs" / "strategy.name=fedavg_training.lr=0.05-seed3")
    (tmp_path / "runs.csv").unlink()
    with pytest.warns(UserWarning, match="3 of 4 runs are not finished"):
        loaded = fedslot.load(tmp_path)
    assert loaded.failures == dict.fromkeys((0, 1, 3), "not finished")


def test_a_sweep_whose_runs_all_failed_says_why(scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        fedslot.sweep(scenario, {"training.lr": [1e6]}, 1, tmp_path, workers=1, on_failure="record")
    with pytest.raises(RefusedError, match=r"whose runs all failed; training\.lr=1000000\.0-seed3: round 0"):
        fedslot.load(tmp_path)


def test_classes_of_a_notebook_need_not_be_there(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at results, one does not need the code that made them."""
    own = type("Forgotten", (FedAvg,), {"__module__": "__main__", "__qualname__": "Forgotten"})
    fedslot.compare(scenario, [own], 1, tmp_path / "compared", workers=1)
    fedslot.sweep(scenario, {"strategy.name": [own]}, 1, tmp_path / "swept", workers=1)
    monkeypatch.setattr("fedslot.parts.registry._given", {})
    assert fedslot.load(tmp_path / "compared").strategies == ["Forgotten"]
    assert fedslot.load(tmp_path / "swept").study.grid == {"strategy.name": ["__main__:Forgotten"]}


def test_runs_and_other_folders(scenario: Scenario, tmp_path: Path) -> None:
    result = fedslot.run(scenario, tmp_path / "run")
    assert fedslot.load(tmp_path / "run").rounds.equals(result.rounds)
    with pytest.raises(RefusedError, match="holds no run, comparison or sweep"):
        fedslot.load(tmp_path)
    with pytest.raises(RefusedError, match=r"rnu is no folder; .*; did you mean .*run\?"):
        fedslot.load(tmp_path / "rnu")
