"""Work on a Dask cluster: whole runs, or the local training of one run. All that knows of Dask is here.

What a worker is given is a scenario, a seed in it and a few numbers, all that a result depends on; so a task
that is lost with its worker is simply done again by another one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.errors import InputError, RefusedError, reason
from fedslot.experiments.tasks import Listener, Over, Settings, Task, attempt
from fedslot.local_training import LocalTraining, Trained
from fedslot.messages import UEs
from fedslot.records import RunFolder
from fedslot.round import Round
from fedslot.scenario import Scenario
from fedslot.simulation import Distribute
from fedslot.threads import Threads

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE = 5  # seconds in which a scheduler must answer
SAME = ("fedslot", "torch", "numpy", "scipy", "numba")  # packages on whose versions the digits of a result depend

_turn = threading.Lock()  # threads and generators of PyTorch are the process's: the tasks of a worker take turns


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """A client of a cluster that has our versions."""
    try:
        from distributed import Client
    except ImportError:
        raise RefusedError("--dask needs Dask; type: pip install 'fedslot[dask]'") from None
    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a loop already
            thread.submit(asyncio.run, _greet(address)).result()
    except Exception as error:  # whatever else may listen there says nearly anything
        why = str(error) if isinstance(error, ValueError) else f"no such answer in {PATIENCE} s"
        allowed = f"the address of a Dask scheduler that runs, e.g. tcp://host:8786 ({why})"
        raise InputError("dask", address, allowed) from None
    with _quiet(), Client(address, timeout=PATIENCE, set_as_default=False) as client:
        with _there(address):
            found = client.get_versions(packages=SAME)
        _check_versions(_versions(), found["scheduler"]["packages"], f"scheduler {address}")  # it reads tasks too
        for worker, here in found["workers"].items():
            _check_versions(_versions(), here["packages"], f"worker {worker}")
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Dask's own tales of connections that were lost and models that are large: we say what matters."""
    import dask

    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


async def _greet(address: str) -> None:
    """Ask who is there: a client that finds no scheduler would hang or complain in many lines."""
    from distributed import Security
    from distributed.core import rpc

    async with (
        asyncio.timeout(PATIENCE),
        rpc(address, connection_args=Security().get_connection_args("client")) as peer,
    ):
        if (await peer.identity())["type"] != "Scheduler":
            raise ValueError("no scheduler, but something else is there")


def find_workers(address: str) -> dict[str, int]:
    """The workers of a cluster with their numbers of threads; a cluster that cannot be used is refused."""
    with connect(address) as client, _there(address):
        return dict(client.nthreads())


def run_on_cluster(
    address: str,
    tasks: Sequence[Task],
    todo: Sequence[int],
    settings: Settings,
    hear: Listener,
    over: Over,
) -> None:
    """Run the tasks of the indices `todo` on the cluster; their files are written here, as they come back."""
    with connect(address) as client:
        news: queue.SimpleQueue[tuple[int, list[Any] | None]] = queue.SimpleQueue()
        topic = f"fedslot-{client.id}"
        with _there(address):
            client.subscribe_topic(topic, lambda event: news.put(event[1]))
        pending: dict[int, Future[Any]] = {}
        for index in todo:
            folder = RunFolder(tasks[index].folder)
            try:
                folder.check(tasks[index].scenario, settings.resume)
            except RefusedError as error:
                over(index, str(error))
                continue
            fields, held = tasks[index].scenario.model_dump(), folder.pack()
            with _there(address):
                pending[index] = future = client.submit(
                    _run, fields, held, settings.threads, _versions(), topic, index, key=f"{topic}-{index}", pure=False
                )
            future.add_done_callback(lambda future, index=index: news.put((index, None)))
        while pending:
            index, round = news.get()
            if index not in pending:
                continue  # the last rounds of a run may come after its result
            if round is not None:
                hear(index, Round(*round))
                continue
            result, failure = _outcome(pending.pop(index), address)
            if result is not None:
                files, failure = result
                RunFolder(tasks[index].folder).unpack(files)
            over(index, failure)


@contextmanager
def distributed_training(address: str) -> Iterator[Distribute]:
    """Spread the local training of a run over a cluster; the result is that of one machine.

    with distributed_training("tcp://host:8786") as distribute:
        run(scenario, distribute=distribute)
    """
    with connect(address) as client:
        yield lambda local: _Distributed(local, client)


class _Distributed:
    """Trains UEs on the workers of a cluster."""

    def __init__(self, local: LocalTraining, client: Client) -> None:
        self._local, self._client, self._address = local, client, client.scheduler.address
        self._fields = local.scenario.model_dump()
        with _there(self._address):
            self._tasks = 2 * len(client.nthreads())  # of a round

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        stacks = _fewer(self._local.stacks(received, round), self._tasks)
        with _there(self._address):
            # a task of its own, so that the model travels once and is not lost with a worker that held it
            sent = self._client.submit(np.asarray, start.cpu().numpy(), pure=False)
            futures = [
                self._client.submit(_train, self._fields, sent, received[stack], round, _versions(), pure=False)
                for stack in stacks
            ]
        models = start.new_empty(len(received), len(start))
        for stack, future in zip(stacks, futures, strict=True):
            trained, reason = _outcome(future, self._address)
            if reason is not None:
                raise RefusedError(reason)
            models[stack] = torch.from_numpy(trained).to(start)
        return Trained(models, received, self._local.fleet.sizes[received])


def _fewer(stacks: list[list[int]], most: int) -> list[list[int]]:
    """At most so many tasks, where UEs are trained one by one; larger stacks stay as they are."""
    if any(len(stack) > 1 for stack in stacks):
        return stacks
    return [[place for (place,) in stacks[first::most]] for first in range(min(most, len(stacks)))]


def _outcome(future: Future[Any], address: str) -> tuple[Any, str | None]:
    """What came of a task: its result, or why there is none."""
    from distributed import KilledWorker

    with _there(address):
        error = future.exception()
        if future.cancelled():
            raise CancelledError
        if error is None:
            return future.result(), None
    if isinstance(error, KilledWorker):
        return None, "each worker that tried it died, perhaps for want of memory"
    return None, reason(error)


@contextmanager
def _there(address: str) -> Iterator[None]:
    """What is asked of Dask: one line if the scheduler is gone, in whatever way Dask notices."""
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, CancelledError, ClosedClientError):
        raise RefusedError(
            f"the Dask scheduler at {address} is gone; what is finished is kept, and --resume goes on from there"
        ) from None


def _run(
    fields: dict[str, Any], held: dict[str, bytes], threads: int, versions: dict[str, str], topic: str, index: int
) -> tuple[dict[str, bytes], str | None]:
    """On a worker: go on with the run whose files are held, and give back its files and why it failed, if it did."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def report(round: Round) -> None:
        worker.log_event(topic, [index, list(astuple(round))])
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise RefusedError("nobody waits for it any more")

    with _turn, TemporaryDirectory() as path:
        _check_versions(versions, _versions(), f"worker {worker.address}")
        folder = RunFolder(Path(path) / "run")
        folder.unpack(held)
        failure = attempt(Task(Scenario(**fields), folder.path), Settings(threads, resume=True), report)
        return folder.pack(), failure


def _train(
    fields: dict[str, Any], start: NDArray[np.float32], ues: UEs, round: int, versions: dict[str, str]
) -> NDArray[np.float32]:
    """On a worker: train some UEs."""
    from distributed import get_worker

    with _turn, Threads():
        _check_versions(versions, _versions(), f"worker {get_worker().address}")
        train = _local_training(Scenario(**fields))
        trained = train(torch.tensor(start).to(train.trainer.model.initial), ues, round)
        models: NDArray[np.float32] = trained.models.cpu().numpy()
        return models


_cache: dict[str, LocalTraining] = {}


def _local_training(scenario: Scenario) -> LocalTraining:
    """Return the local training of a scenario, cached for the next round."""
    if scenario.digest not in _cache:
        _cache.clear()
        _cache[scenario.digest] = LocalTraining.of(scenario)
    return _cache[scenario.digest]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in SAME}


def _check_versions(ours: Mapping[str, str], theirs: Mapping[str, str | None], who: str) -> None:
    for name in SAME:
        if ours[name] != theirs[name]:
            has = f"has {name} {theirs[name]}, not {ours[name]}" if theirs[name] else f"lacks {name} {ours[name]}"
            raise RefusedError(f"Dask {who} {has}; equal results need equal versions")
