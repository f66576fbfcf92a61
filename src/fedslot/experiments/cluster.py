"""Run many scenarios, or the local training of one, on a Dask cluster. No other module imports Dask.

The result of a task depends only on its arguments: a scenario with its seed, and a few numbers and arrays. So Dask can
repeat a task on another worker when a worker dies.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import queue
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.experiments.tasks import Listener, Over, Settings, Task, attempt
from fedslot.messages import UEs
from fedslot.parts.registry import pack, unpack
from fedslot.rounds.local_training import LocalTraining, Trained
from fedslot.rounds.round import Round
from fedslot.rounds.simulation import Distribute
from fedslot.runs.records import RunFolder
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError, reason
from fedslot.support.extras import lacking
from fedslot.support.threads import Threads

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE = 5  # seconds in which a scheduler must answer
JUDGED = 9  # rounds after which a run on a cluster is compared with one without; in the first, workers load data
SAME = ("fedslot", "torch", "numpy", "scipy", "numba")  # packages on whose versions the digits of a result depend
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)
Versions = Mapping[str, str | None]
Note = Callable[[str], object]
Sent = tuple[dict[str, Any], bytes]
"""The fields of a scenario, and the user's classes that it needs."""

_cache: list[tuple[tuple[Sent, Versions], LocalTraining]] = []  # the latest local training of a worker
# PyTorch has one number of threads and one random generator per process, so a worker runs one task at a time
_one_task = threading.Lock()


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to a cluster, and refuse one whose packages have other versions than ours."""
    try:
        from distributed import Client
    except ImportError:
        raise lacking("--dask", "distributed", "dask") from None
    try:
        with ThreadPoolExecutor(1) as thread:  # the main thread of a notebook already runs an event loop
            thread.submit(asyncio.run, _check_scheduler(address)).result()
    except Exception as error:  # a server of another kind may answer anything
        why = str(error) if isinstance(error, ValueError) else f"no such answer in {PATIENCE} s"
        allowed = f"the address of a Dask scheduler that runs, e.g. tcp://host:8786 ({why})"
        raise InputError("dask", address, allowed) from None
    with _quiet(), Client(address, timeout=PATIENCE, set_as_default=False) as client:
        with _report_loss(address):
            answers = client.get_versions(packages=SAME)
        servers = {f"scheduler {address}": answers["scheduler"]}  # it unpickles tasks too
        servers |= {f"worker {worker}": answer for worker, answer in answers["workers"].items()}
        for server, answer in servers.items():
            _check_versions(_versions(), answer["packages"], server)
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's own messages about lost connections and large models; errors become one line of ours."""
    import dask

    levels = {logger: logger.level for logger in map(logging.getLogger, ("distributed", "distributed.client"))}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


async def _check_scheduler(address: str) -> None:
    """Raise an error unless a scheduler answers; Dask's client would hang, or complain in many lines."""
    from distributed import Security
    from distributed.core import rpc

    async with (
        asyncio.timeout(PATIENCE),
        rpc(address, connection_args=Security().get_connection_args("client")) as peer,
    ):
        if (await peer.identity())["type"] != "Scheduler":
            raise ValueError("no scheduler, but something else is there")


def find_workers(address: str) -> dict[str, int]:
    """Return the number of threads of each worker, by address; a cluster that cannot be used is refused."""
    with connect(address) as client, _report_loss(address):
        return dict(client.nthreads())


def run_on_cluster(
    address: str, tasks: Sequence[Task], todo: Sequence[int], settings: Settings, listener: Listener, over: Over
) -> None:
    """Run the tasks with the indices `todo` on a cluster, and write the files of each run as it comes back."""
    with connect(address) as client:
        news: queue.SimpleQueue[tuple[int, list[Any] | None]] = queue.SimpleQueue()
        topic = f"fedslot-{client.id}"
        with _report_loss(address):
            client.subscribe_topic(topic, lambda event: news.put(event[1]))
        pending: dict[int, Future[Any]] = {}
        for index in todo:
            folder = RunFolder(tasks[index].folder)
            try:
                folder.check(tasks[index].scenario, settings.resume)
            except RefusedError as error:
                over(index, str(error))
                continue
            arguments = (_send(tasks[index].scenario), folder.pack(), settings, _versions(), topic, index)
            with _report_loss(address):
                pending[index] = future = client.submit(_run, *arguments, key=f"{topic}-{index}", pure=False)
            future.add_done_callback(lambda future, index=index: news.put((index, None)))
        while pending:
            index, round = news.get()
            if index not in pending:
                continue  # the last rounds of a run may arrive after its result
            if round is not None:
                listener(index, Round(*round))
                continue
            result, failure = _outcome(pending.pop(index), address)
            if result is not None:
                files, failure = result
                try:
                    RunFolder(tasks[index].folder).unpack(files)
                except RefusedError as error:
                    failure = str(error)
            over(index, failure)


@contextmanager
def distributed_training(address: str, note: Note = warnings.warn) -> Iterator[Distribute]:
    """Spread the local training of a run over a cluster; the result is the same as on one machine.

    note: is told in a line if that turns out to be slower than training on this machine.

    with distributed_training("tcp://host:8786") as distribute:
        run(scenario, distribute=distribute)
    """
    with connect(address) as client:
        yield lambda local: _Distributed(local, client, note)


class _Distributed:
    """Trains UEs on the workers of a cluster."""

    def __init__(self, local: LocalTraining, client: Client, note: Note) -> None:
        self._local, self._client, self._address, self._note = local, client, client.scheduler.address, note
        self._scenario, self._versions = _send(local.scenario), _versions()
        self._rounds: list[tuple[float, float]] = []  # seconds of computing, and seconds that the round took
        with _report_loss(self._address):
            self._most_tasks = 2 * len(client.nthreads())  # in a round, where UEs are trained one by one

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        stacks, began = merge_stacks(self._local.stacks(received, round), self._most_tasks), time.perf_counter()
        with _report_loss(self._address):
            # the model is a task of its own: it is sent once, and computed again if its worker dies
            sent = self._client.submit(np.asarray, start.cpu().numpy(), pure=False)
            futures = [
                self._client.submit(_train, self._scenario, sent, received[stack], round, self._versions, pure=False)
                for stack in stacks
            ]
        models, seconds = start.new_empty(len(received), len(start)), 0.0
        for stack, future in zip(stacks, futures, strict=True):
            trained, failure = _outcome(future, self._address)
            if failure is not None:
                raise RefusedError(failure)
            models[stack] = torch.from_numpy(trained[0]).to(start)
            seconds += trained[1]
        self._judge(seconds, time.perf_counter() - began)
        return Trained(models, received, self._local.fleet.sizes[received])

    def _judge(self, seconds: float, taken: float) -> None:
        """Note once if rounds are slower on the cluster than on the threads of this machine."""
        self._rounds.append((seconds, taken))
        if len(self._rounds) == JUDGED and (loss := extra_seconds(self._rounds, self._local.trainer.threads.count)) > 0:
            self._note(
                f"rounds of this run take {loss:.2g} s longer on the Dask cluster than by training here, without it"
            )


def extra_seconds(rounds: Sequence[tuple[float, float]], threads: int) -> float:
    """Return by how much longer (median) rounds take on a cluster than their computing takes on threads here.

    rounds: seconds of computing, summed over the workers, and seconds that the round took.

    >>> rounds = [(1.0, 0.75), (1.0, 1.0), (1.0, 0.5)]
    >>> extra_seconds(rounds, threads=1), extra_seconds(rounds, threads=2)
    (-0.25, 0.25)
    """
    return statistics.median(taken - seconds / threads for seconds, taken in rounds)


def merge_stacks(stacks: list[list[int]], most: int) -> list[list[int]]:
    """Merge stacks of one UE each into at most `most`; larger stacks are trained in one batch and stay as they are.

    >>> merge_stacks([[4], [0], [3], [1], [2]], 2)
    [[4, 3, 2], [0, 1]]
    """
    if any(len(stack) > 1 for stack in stacks):
        return stacks
    return [[ue for (ue,) in stacks[first::most]] for first in range(min(most, len(stacks)))]


def _outcome(future: Future[Any], address: str) -> tuple[Any, str | None]:
    """Return the result of a task and None, or None and the reason why it failed."""
    from distributed import KilledWorker

    with _report_loss(address):
        error = future.exception()
        if future.cancelled():
            raise CancelledError
        if error is None:
            return future.result(), None
    if isinstance(error, KilledWorker):
        return None, "each worker that tried it died, perhaps for lack of memory"
    return None, reason(error)


@contextmanager
def _report_loss(address: str) -> Iterator[None]:
    """Turn the various errors by which Dask reports a lost scheduler into one line."""
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, CancelledError, ClosedClientError):
        raise RefusedError(
            f"the Dask scheduler at {address} is gone; finished runs are saved, and --resume continues"
        ) from None


def _run(
    scenario: Sent, files: dict[str, bytes], settings: Settings, versions: Versions, topic: str, index: int
) -> tuple[dict[str, bytes], str | None]:
    """Start or continue a run on a worker; return its files and, if it failed, the reason."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def report(round: Round) -> None:
        worker.log_event(topic, [index, list(astuple(round))])
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise RefusedError("the task was cancelled")

    with _one_task, TemporaryDirectory() as path:
        _check_versions(versions, _versions(), f"worker {worker.address}")
        _keep_memory()
        folder = RunFolder(Path(path) / "run")
        folder.unpack(files)
        failure = attempt(Task(_receive(scenario), folder.path), replace(settings, resume=True), report)
        return folder.pack(), failure


def _train(
    scenario: Sent, start: NDArray[np.float32], ues: UEs, round: int, versions: Versions
) -> tuple[NDArray[np.float32], float]:
    """Train UEs (n,) on a worker; return their models (n, P) and the seconds that this took."""
    from distributed import get_worker

    with _one_task, Threads():
        if not _cache or _cache[0][0] != (scenario, versions):
            _check_versions(versions, _versions(), f"worker {get_worker().address}")
            _keep_memory()
            _cache[:] = [((scenario, versions), LocalTraining.of(_receive(scenario)))]
        train, began = _cache[0][1], time.perf_counter()
        trained = train.train(torch.tensor(start).to(train.trainer.model.initial), ues, round)
        models: NDArray[np.float32] = trained.models.cpu().numpy()
        return models, time.perf_counter() - began


def _keep_memory() -> None:
    """Let the C library keep freed memory for the next tensors, as it does outside of Dask.

    Dask's nanny sets MALLOC_TRIM_THRESHOLD_ to 64 kB. Then the system maps and clears the memory of each large tensor
    anew, with which the training of a CNN takes 1.6 times as long.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, 1 << 29)
        library.mallopt(MMAP_THRESHOLD, 1 << 25)  # the largest that glibc allows


def _send(scenario: Scenario) -> Sent:
    return scenario.model_dump(), pack(scenario.own_parts)


def _receive(sent: Sent) -> Scenario:
    fields, parts = sent
    unpack(parts)
    return Scenario(**fields)


def _versions() -> Versions:
    """Return the versions of the packages in `SAME` that are installed."""
    versions = {}
    for name in SAME:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _check_versions(ours: Versions, theirs: Versions, who: str) -> None:
    for name in SAME:
        there, here = (versions.get(name) or "not installed" for versions in (theirs, ours))
        if there != here:
            raise RefusedError(f"{name} is {there} on Dask {who}, but {here} here; equal results need equal versions")
