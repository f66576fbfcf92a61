"""On a real Dask cluster, processes on the loopback: the same tables, whatever dies on the way."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from torch import nn

from fedslot.experiments import cluster
from fedslot.experiments.cluster import distributed_training, find_workers
from fedslot.experiments.comparison import compare
from fedslot.experiments.sweeps import FailedRunsError, sweep
from fedslot.messages import Grant, NoState
from fedslot.rounds.round import Round
from fedslot.runs.callbacks import Report
from fedslot.runs.execution import is_finished, load, run
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError, RefusedError

PATIENCE = 180  # seconds after which a test is stuck
Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[bytes]]
GRID = {"frame.pull": [2, 5], "push.contenders": [2, 4]}


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """No test waits for ever."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"the test took more than {PATIENCE} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.load("quickstart", {"rounds": 20, "data.ues": 30, "training.epochs": 4})


@pytest.fixture(scope="module")
def local(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep over GRID with two seeds, on this machine and undisturbed."""
    out = tmp_path_factory.mktemp("local") / "sweep"
    sweep(scenario, GRID, 2, out, workers=1)
    return out


class Cluster:
    """A scheduler and workers with the given numbers of threads, each a process."""

    def __init__(self, start: Start, folder: Path, *threads: int) -> None:
        self.start, self.folder, self.file = start, folder, folder / "scheduler.json"
        self.scheduler = self.launch("scheduler", "--port", "0")
        _wait(self.file.is_file, self.scheduler)
        self.address = str(json.loads(self.file.read_text())["address"])
        self.workers = [self.launch("worker", "--no-nanny", "--nthreads", str(n)) for n in threads]
        _wait(lambda: len(find_workers(self.address)) == len(threads), *self.workers)

    def launch(self, module: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(self.file)]
        command = [sys.executable, "-m", f"distributed.cli.dask_{module}", *words, *common]
        with (self.folder / f"{module}.log").open("ab") as log:
            return self.start(*command, cwd=self.folder, stderr=log, **options)


def _wait(done: Callable[[], bool], *processes: subprocess.Popen[bytes]) -> None:
    while not done():
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)


@pytest.fixture
def fresh(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster of its own, for tests that break it."""
    return Cluster(start, tmp_path_factory.mktemp("cluster"), 1, 1)


@pytest.fixture(scope="module")
def shared(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster for the other tests; one worker has several threads, whose tasks must not disturb each other."""
    return Cluster(start_shared, tmp_path_factory.mktemp("cluster"), 1, 3)


def assert_same_files(one: Path, other: Path) -> None:
    """All but the seconds that rounds took."""
    assert (one / "runs.csv").read_bytes() == (other / "runs.csv").read_bytes()
    assert (one / "sweep.csv").read_bytes() == (other / "sweep.csv").read_bytes()
    folders = sorted(path.name for path in (one / "runs").iterdir())
    assert folders == sorted(path.name for path in (other / "runs").iterdir())
    for name in folders:
        here, there = one / "runs" / name, other / "runs" / name
        assert (here / "scenario.yaml").read_bytes() == (there / "scenario.yaml").read_bytes()
        with np.load(here / "checkpoint.npz") as ours, np.load(there / "checkpoint.npz") as others:
            for array in {*ours, *others} - {"rows", "checksum"}:  # the hash of rows, and all, has the seconds in it
                assert np.array_equal(ours[array], others[array])
        mine, theirs = (load(out / "runs" / name).rounds.drop(columns="seconds") for out in (one, other))
        assert mine.equals(theirs)


def assert_same_result(one: Result, other: Result) -> None:
    assert one.rounds.drop(columns="seconds").equals(other.rounds.drop(columns="seconds"))
    assert np.array_equal(one.model, other.model)  # type: ignore[arg-type]


def test_a_worker_is_killed_in_the_middle_of_a_sweep(
    fresh: Cluster, scenario: Scenario, local: Path, tmp_path: Path
) -> None:
    """The table is complete, and the same as that of one machine."""
    under_way: dict[int, int] = {}
    begun: list[int] = []

    def kill_when_both_are_busy(index: int, round: Round | None) -> None:
        if round is None:
            del under_way[index]
            return
        under_way[index] = round.round
        if round.round == 0:
            begun.append(index)
        if len(under_way) == 2 and max(under_way.values()) < 15 and fresh.workers[0].poll() is None:
            fresh.workers[0].kill()
            fresh.workers[0].wait()

    found = sweep(scenario, GRID, 2, tmp_path, dask=fresh.address, listener=kill_when_both_are_busy)
    assert fresh.workers[0].returncode == -signal.SIGKILL
    assert not found.failures
    assert len(found.measures()) == 8
    assert len(begun) > len(set(begun)), "a run was lost with its worker, and begun again"
    assert_same_files(tmp_path, local)


def test_the_caller_is_killed_and_goes_on(
    shared: Cluster, start: Start, fedslot_command: Command, scenario: Scenario, local: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(scenario.to_yaml())
    words = ["sweep", str(tmp_path / "mine.yaml"), "--seeds", "2", "--out", str(tmp_path / "dask")]
    words += ["--grid", "frame.pull=2,5", "--grid", "push.contenders=2,4"]
    words += ["--dask", shared.address]
    caller = start(sys.executable, "-m", "fedslot", *words, stderr=subprocess.DEVNULL)
    _wait(lambda: len(list((tmp_path / "dask").glob("runs/*/summary.json"))) >= 2, caller)
    caller.kill()
    caller.wait()
    finished = {file: file.stat().st_mtime_ns for file in (tmp_path / "dask").glob("runs/*/summary.json")}
    assert len(finished) < 8, "killed too late for this test to mean anything"
    again = fedslot_command(*words, "--resume")
    assert again.returncode == 0, again.stderr
    assert "4 combinations" in again.stdout
    assert {file: file.stat().st_mtime_ns for file in finished} == finished, "what was finished is left alone"
    assert_same_files(tmp_path / "dask", local)


def test_what_was_begun_here_is_continued_there(shared: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    grid = {"frame.pull": [5]}

    def stop(index: int, round: Round | None) -> None:
        if round is not None and round.round == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(scenario, grid, 1, tmp_path / "moved", workers=1, listener=stop)
    rounds: list[int] = []

    def note(index: int, round: Round | None) -> None:
        rounds.extend([round.round] if round else [])

    sweep(scenario, grid, 1, tmp_path / "moved", resume=True, dask=shared.address, listener=note)
    assert rounds[:1] == [7]
    sweep(scenario, grid, 1, tmp_path / "local", workers=1)
    assert_same_files(tmp_path / "moved", tmp_path / "local")


def test_an_interrupted_sweep_frees_the_workers(shared: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    """Runs that would take hours are given up within a round, so that the cluster is there for the next command."""
    busy: set[int] = set()

    def stop_when_both_are_busy(index: int, round: Round | None) -> None:
        busy.add(index)
        if len(busy) == 2:
            raise KeyboardInterrupt

    endless = scenario.replace({"rounds": 1_000_000})
    with pytest.raises(KeyboardInterrupt):
        sweep(endless, GRID, 2, tmp_path / "endless", dask=shared.address, listener=stop_when_both_are_busy)
    sweep(scenario, GRID, 1, tmp_path / "next", dask=shared.address)


def test_the_scheduler_is_lost(fresh: Cluster, scenario: Scenario, local: Path, tmp_path: Path) -> None:
    over: list[int] = []

    def kill_after_the_first_run(index: int, round: Round | None) -> None:
        if round is None:
            over.append(index)
            fresh.scheduler.kill()

    with pytest.raises(RefusedError, match=r"scheduler at .* is gone.*--resume"):
        sweep(scenario, GRID, 2, tmp_path / "lost", dask=fresh.address, listener=kill_after_the_first_run)
    finished = [path for path in (tmp_path / "lost" / "runs").iterdir() if is_finished(path)]
    assert len(finished) >= len(over) >= 1, "what is finished stays"
    sweep(scenario, GRID, 2, tmp_path / "lost", resume=True, workers=1)
    assert_same_files(tmp_path / "lost", local)


def run_on(cluster: Cluster, scenario: Scenario, **options: Any) -> Result:
    """Run a scenario here, its UEs trained on the cluster."""
    with distributed_training(cluster.address, lambda line: None) as distribute:
        return run(scenario, distribute=distribute, **options)


def test_a_run_that_is_too_small_for_a_cluster_is_noted(shared: Cluster) -> None:
    """Its UEs train for milliseconds, and each round sends them models."""
    notes: list[str] = []
    with distributed_training(shared.address, notes.append) as distribute:
        run(Scenario.load("quickstart", {"rounds": 12, "training.epochs": 1}), distribute=distribute)
    (note,) = notes
    assert re.fullmatch(r"rounds of this run take \S+ s longer on the Dask cluster than .*", note)


def test_the_scheduler_is_lost_while_a_run_trains(fresh: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"scheduler at .* is gone.*--resume"):
        run_on(fresh, scenario, out=tmp_path / "lost", callbacks=[Report(lambda round: fresh.scheduler.kill())])
    assert_same_result(run(scenario, tmp_path / "lost", resume=True), run(scenario))


def test_a_failing_combination_stops_no_other(shared: Cluster, fedslot_command: Command, tmp_path: Path) -> None:
    words = ["sweep", "quickstart", "-o", "rounds=2", "--grid", "training.lr=0.05,1e6", "--grid", "data.ues=100,50"]
    words += ["--seeds", "1", "--out"]
    on_dask = fedslot_command(*words, str(tmp_path / "dask"), "--dask", shared.address)
    assert on_dask.returncode == 1, on_dask.stderr
    assert "2 of 4 runs failed" in on_dask.stderr
    assert "a worker has 3 threads" in on_dask.stderr
    assert "training.lr=1000000.0, data.ues=100, seed 0: round 0: training diverged" in on_dask.stderr
    assert "Traceback" not in on_dask.stderr
    grid = {"training.lr": [0.05, 1e6], "data.ues": [100, 50]}
    rounds = Scenario.load("quickstart", {"rounds": 2})
    here = sweep(rounds, grid, 1, tmp_path / "local", workers=1, on_failure="record")
    assert len(here.failures) == 2
    assert (tmp_path / "dask" / "runs.csv").read_bytes() == (tmp_path / "local" / "runs.csv").read_bytes()


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("strategy", ["push-pull", "centralized"])
def test_one_run_trained_on_the_cluster(shared: Cluster, scenario: Scenario, model: str, strategy: str) -> None:
    scenario = scenario.replace({"training.model": model, "strategy.name": strategy, "rounds": 4})
    assert_same_result(run_on(shared, scenario), run(scenario))


def test_a_worker_is_killed_while_it_trains(fresh: Cluster, scenario: Scenario) -> None:
    scenario = scenario.replace({"training.model": "cnn", "rounds": 4})

    def kill(round: Round) -> None:
        if round.round == 1:
            fresh.workers[1].kill()  # noticed in the next round, when it has been given work or not

    assert_same_result(run_on(fresh, scenario, callbacks=[Report(kill)]), run(scenario))
    assert fresh.workers[1].wait() == -signal.SIGKILL


def test_a_run_that_diverges_on_the_cluster(shared: Cluster, scenario: Scenario) -> None:
    with pytest.raises(RefusedError, match=r"^round 0: training diverged"):
        run_on(shared, scenario.replace({"training.lr": 1e6}))


def test_classes_of_a_script_are_sent(shared: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    """The workers cannot import `__main__`, neither of whole runs nor of the training of one."""

    def schedule(self: FedAvg, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(rng.permutation(self.cell.ues)[:2])

    def model(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    own = type("Own", (FedAvg,), {"__module__": "__main__", "__qualname__": "Own", "schedule": schedule})
    mine = scenario.replace({"strategy.name": own, "training.model": model})
    found = compare(mine, [own], 1, tmp_path, dask=shared.address)
    here = run(mine)
    assert_same_result(run_on(shared, mine), here)
    assert found.runs["Own"][0].rounds.drop(columns="seconds").equals(here.rounds.drop(columns="seconds"))


def test_what_the_workers_lack_is_said(shared: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    """A data set that is here and not there is the failure of a run, not of the sweep."""
    grid = {"data.dataset": ["digits", "not/there.npz"]}
    found = sweep(scenario, grid, 1, tmp_path, dask=shared.address, on_failure="record")
    assert list(found.failures) == [1]
    assert re.search("data.dataset: '.*not/there.npz' is not allowed", found.failures[1])


@pytest.mark.parametrize(
    ("package", "here", "line"),
    [
        ("fedslot", "9.9", r"fedslot is .* on Dask .*, but 9.9 here; equal results need equal versions"),
        ("numba", None, r"numba is .* on Dask .*, but not installed here"),  # PyTorch would give other digits
    ],
)
def test_other_versions_are_refused(
    package: str, here: str | None, line: str, shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(find_workers(shared.address).values()) == [1, 3]
    installed = metadata.version

    def version(name: str) -> str:
        if name == package and here is None:
            raise metadata.PackageNotFoundError(name)
        return here if name == package else installed(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(RefusedError, match=line):
        find_workers(shared.address)


def test_a_worker_of_another_version_that_comes_late(start: Start, scenario: Scenario, tmp_path: Path) -> None:
    """It does not spoil the table: its runs fail."""
    (tmp_path / "cluster").mkdir()
    other = Cluster(start, tmp_path / "cluster")
    about = tmp_path / "numpy-1.0.dist-info"  # which is found first
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    out = tmp_path / "sweep"
    sweeping = ThreadPoolExecutor(1).submit(sweep, scenario, {"frame.pull": [5]}, 1, out, dask=other.address)
    with Client(other.address, set_as_default=False) as client:
        _wait(lambda: bool(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))))
    other.launch("worker", "--no-nanny", "--nthreads", "1", env=env)
    with pytest.raises(FailedRunsError, match=r"numpy is 1\.0 on Dask worker"):
        sweeping.result()


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://127.0.0.1", "ftp://127.0.0.1:8786", "tcp://127.0.0.1:1"])
def test_addresses_without_a_scheduler(address: str) -> None:
    with pytest.raises(InputError, match=r"dask: .* must be the address of a Dask scheduler"):
        find_workers(address)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", bytes(64)])
def test_something_else_listens_there(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(says)
                connection.recv(1 << 16)

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(InputError, match="Dask scheduler that runs"):
            find_workers(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - began < 4 * cluster.PATIENCE
