"""Many runs: a process that is killed loses its own run only."""

from __future__ import annotations

from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from fedslot.experiments.pool import run_all
from fedslot.experiments.tasks import Task
from fedslot.runs import is_finished
from fedslot.scenario import Scenario

DEADLY = """
import os, signal
from fedslot.strategies.fedavg import FedAvg

class Deadly(FedAvg):
    def schedule(self, state, round, rng):
        if round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().schedule(state, round, rng)
"""


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", {"rounds": 3, "data.ues": 20, "strategy.name": "fedavg", "training.epochs": 1})


def test_a_killed_process_loses_its_own_run_only(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    deadly = Task(scenario.replace({"strategy.name": "deadly:Deadly"}), tmp_path / "deadly")
    others = [Task(scenario.replace({"seed": seed}), tmp_path / str(seed)) for seed in range(4)]
    over: list[int] = []
    failures = run_all(
        [deadly, *others], workers=2, listener=lambda index, round: over.append(index) if round is None else None
    )
    assert list(failures) == [0]
    assert "killed" in failures[0]
    assert all(is_finished(task.folder) for task in others)
    assert sorted(over) == [0, 1, 2, 3, 4], "each is over once"


def test_errors_of_every_kind_come_back_from_processes(scenario: Scenario, tmp_path: Path) -> None:
    impossible = scenario.replace({"data.ues": 5000})
    diverging = scenario.replace({"training.lr": 1e6})
    (tmp_path / "file").write_text("")
    tasks = [Task(impossible, tmp_path / "a"), Task(diverging, tmp_path / "b"), Task(scenario, tmp_path / "file")]
    failures = run_all(tasks, workers=2)
    assert failures == run_all(tasks, workers=1, resume=True)
    assert [failures[0][:8], failures[1][:8]] == ["data.ues", "round 0:"]
    assert "is a file" in failures[2]


def test_a_process_that_ends_before_its_first_run_is_replaced(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say, it was killed as it started, so that sending it a task fails."""
    start, killed = SpawnProcess.start, []

    def start_and_kill_the_first(process: SpawnProcess) -> None:
        start(process)
        if not killed:
            process.kill()
            process.join()
            killed.append(process)

    monkeypatch.setattr(SpawnProcess, "start", start_and_kill_the_first)
    tasks = [Task(scenario.replace({"seed": seed}), tmp_path / str(seed)) for seed in range(3)]
    failures = run_all(tasks, workers=2)
    assert len(failures) == 1
    assert [is_finished(task.folder) for task in tasks].count(True) == 2
