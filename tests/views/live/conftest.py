"""Folders of small runs, comparisons and sweeps, shared by the tests of the live view."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fedslot
from fedslot.views.live import watched

QUICK = {"rounds": 4, "data.ues": 20, "strategy.warmup": 1, "training.epochs": 1, "push.contenders": 6}
Copy = Callable[[str], Path]


@pytest.fixture(scope="session")
def _results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    scenario = fedslot.Scenario.load("quickstart", QUICK)
    fedslot.run(scenario, root / "run")
    fedslot.compare(scenario, ["push-pull", "fedavg"], 2, root / "comparison", workers=1)
    fedslot.sweep(scenario, {"frame.pull": [2, 5]}, 2, root / "sweep", workers=1)
    return root


@pytest.fixture
def results(_results: Path, tmp_path: Path) -> Copy:
    """Copies finished results, which the test may change: results("run"), results("comparison"), results("sweep")."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(_results / name, tmp_path / name))

    return copy


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every poll reads, however soon after the last."""
    monkeypatch.setattr(watched, "PERIOD", 0.0)
    monkeypatch.setattr(watched, "BUSY", 1e9)
