"""Many runs: a process that is killed loses its own run only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fedslot.experiments.comparison import compare
from fedslot.experiments.pool import run_all
from fedslot.experiments.tasks import Settings, Task
from fedslot.runs.execution import is_finished
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError

DEADLY = """
import os, signal, sys
from fedslot.strategies.fedavg import FedAvg

class Killed(FedAvg):
    def schedule(self, state, round, rng):
        if round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().schedule(state, round, rng)

class Leaving(FedAvg):
    def schedule(self, state, round, rng):
        sys.exit(3)

class Gone(FedAvg):
    def schedule(self, state, round, rng):
        os._exit(4)
"""


def test_a_killed_process_loses_its_own_run_only(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    deadly = [
        Task(scenario.replace({"strategy.name": f"deadly:{name}"}), tmp_path / name)
        for name in ("Killed", "Leaving", "Gone")
    ]
    others = [Task(scenario.replace({"seed": seed}), tmp_path / str(seed)) for seed in range(3)]
    over: list[int] = []
    failures = run_all(
        [*deadly, *others], workers=2, listener=lambda index, round: over.append(index) if round is None else None
    )
    assert failures == {
        0: "its process was killed, perhaps for lack of memory; --resume tries again",
        1: "a part of your own called sys.exit(3); let it raise an error instead",
        2: "its process ended with exit code 4; --resume tries again",
    }
    assert all(is_finished(task.folder) for task in others)
    assert sorted(over) == [0, 1, 2, 3, 4, 5], "each is over once"


def test_errors_of_every_kind_come_back_and_stop_no_other_run(scenario: Scenario, tmp_path: Path) -> None:
    impossible, diverging = scenario.replace({"data.ues": 5000}), scenario.replace({"training.lr": 1e6})
    (tmp_path / "file").write_text("")
    tasks = [Task(impossible, tmp_path / "a"), Task(diverging, tmp_path / "b"), Task(scenario, tmp_path / "file")]
    tasks.append(Task(scenario, tmp_path / "good"))
    failures = run_all(tasks, workers=2)
    assert is_finished(tmp_path / "good")
    assert failures == run_all(tasks, Settings(resume=True), workers=1)
    assert [failures[0][:8], failures[1][:8]] == ["data.ues", "round 0:"]
    assert "is a file" in failures[2]


def test_a_process_that_ends_before_its_first_run_is_replaced(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class KillsTheFirst(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            if not started:
                self.kill()
                self.wait()
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", KillsTheFirst)
    tasks = [Task(scenario.replace({"seed": seed}), tmp_path / str(seed)) for seed in range(3)]
    failures = run_all(tasks, workers=2)
    assert len(failures) == 1
    assert [is_finished(task.folder) for task in tasks].count(True) == 2
    assert all(process.poll() is not None for process in started), "no process is left behind"


PLAIN_SCRIPT = """
import fedslot
from fedslot.strategies.fedavg import FedAvg

print("once")
ROUND = 1  # a variable of the script, which its class uses

class Mine(FedAvg):
    def schedule(self, state, round, rng):
        print("from a worker")
        assert round < ROUND
        return super().schedule(state, round, rng)

def model(shape, classes):
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))

scenario = fedslot.Scenario.load("quickstart", {"rounds": 1, "training.model": model})
compared = fedslot.compare(scenario, [Mine, "script:Mine", "fedavg"], seeds=1, workers=2)
mine, by_name, fedavg = (runs[0].final_accuracy for runs in compared.runs.values())
assert mine == by_name == fedavg
swept = fedslot.sweep(scenario.replace({"strategy.name": Mine}), {"frame.pull": [2, 5]}, seeds=1, workers=2)
print(swept.study.scenario.strategy.name, swept.failures)
"""


def test_a_plain_script_works_without_a_guard(tmp_path: Path) -> None:
    """Its processes do not run it again, and get its classes and functions; it may also name itself."""
    (tmp_path / "script.py").write_text(PLAIN_SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "once\n__main__:Mine {}\n"), done.stderr
    # four runs, whose first round is computed twice; two workers may write at the same time
    assert sorted(done.stderr) == sorted("from a worker\n" * 8)


def test_a_worker_starts_no_workers(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a module that calls `compare` when it is imported would start processes without end."""
    monkeypatch.setattr("fedslot.experiments.processes._is_worker", True)
    tasks = [Task(scenario.replace({"seed": seed}), tmp_path / str(seed)) for seed in (0, 1)]
    with pytest.raises(RefusedError, match="when it is imported"):
        run_all(tasks, workers=2)


def test_a_cluster_that_does_not_answer_is_refused_before_the_folder_is_claimed(tmp_path: Path) -> None:
    with pytest.raises((InputError, RefusedError), match=r"(?i)dask"):  # or is not installed
        compare("quickstart", ["fedavg"], 1, tmp_path / "out", dask="tcp://127.0.0.1:1")
    assert not (tmp_path / "out").exists()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """Also if it is killed and can tell them nothing."""
    (tmp_path / "script.py").write_text(KILLED_PARENT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    workers = [int(word) for word in (tmp_path / "workers").read_text().split()]
    assert workers
    patience = time.monotonic() + 60
    while any(map(_is_alive, workers)):
        assert time.monotonic() < patience
        time.sleep(0.1)


KILLED_PARENT = """
import os, signal
from pathlib import Path
import fedslot
from fedslot.strategies.fedavg import FedAvg

class Endless(FedAvg):
    def schedule(self, state, round, rng):
        with Path("workers").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        return super().schedule(state, round, rng)

scenario = fedslot.Scenario.load("quickstart", {"rounds": 10**6, "strategy.name": Endless})
stop = lambda index, round: os.kill(os.getpid(), signal.SIGKILL)
fedslot.sweep(scenario, {"frame.pull": [2, 5]}, 1, workers=2, listener=stop)
"""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):  # there may be no /proc
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()  # a zombie has ended
    return True
