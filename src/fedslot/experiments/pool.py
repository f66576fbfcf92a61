"""Many runs at once: independent scenarios, each into a folder of its own, over local processes or a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from fedslot.errors import InputError, reason
from fedslot.records import RunFolder
from fedslot.runs import is_finished, run
from fedslot.scenario import Scenario
from fedslot.simulation import Round

Listener = Callable[[int, Round | None], object]
"""Called with the index of a task and each of its rounds as they are done; with None when the task is over."""
Over = Callable[[int, str | None], None]
"""Called with the index of a task that is over and, if it failed, the reason."""

POLL = 0.1  # seconds between looks at what the workers have done


@dataclass(frozen=True)
class Task:
    """One run: what, and where to."""

    scenario: Scenario
    folder: Path

    @property
    def is_done(self) -> bool:
        """Whether the folder holds this very run, complete."""
        return is_finished(self.folder) and RunFolder(self.folder).scenario() == self.scenario


def run_all(
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    dask: str | None = None,
    listener: Listener | None = None,
) -> dict[int, str]:
    """Run every task; results are in the folders, the same wherever they were computed.

    workers: local processes, by default one per core.
    threads: threads of each run.
    resume: continue what the folders hold; finished runs are left alone.
    dask: address of a Dask scheduler, whose workers then run the tasks.
    returns: index and one-line reason of each task that failed; a failure does not stop the others.
    """
    check_workers(workers)
    hear = listener or (lambda index, round: None)
    failures: dict[int, str] = {}

    def over(index: int, failure: str | None = None) -> None:
        if failure is not None:
            failures[index] = failure
        hear(index, None)

    todo = []
    for index, task in enumerate(tasks):
        if resume and task.is_done:
            over(index)
        else:
            todo.append(index)
    workers = min(workers or os.cpu_count() or 1, len(todo))
    if dask is not None:
        from fedslot.experiments.cluster import run_on_cluster

        run_on_cluster(dask, tasks, todo, threads, resume, hear, over)
    elif workers <= 1:
        for index in todo:
            over(index, attempt(tasks[index], threads, resume, lambda round, index=index: hear(index, round)))  # type: ignore[misc]
    else:
        _run_in_processes(tasks, todo, workers, threads, resume, hear, over)
    return dict(sorted(failures.items()))


def check_workers(workers: int | None) -> None:
    """Refuse a number of processes that is none."""
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1")


def attempt(task: Task, threads: int, resume: bool, on_round: Callable[[Round], object]) -> str | None:
    """Do one run; returns why it failed, if it did."""
    try:
        run(task.scenario, task.folder, resume=resume, threads=threads, on_round=on_round)
    except Exception as error:
        return reason(error)
    return None


def _run_in_processes(
    tasks: Sequence[Task], todo: list[int], workers: int, threads: int, resume: bool, hear: Listener, over: Over
) -> None:
    # fresh processes: forking after PyTorch has started its threads is not safe
    context = multiprocessing.get_context("spawn")
    waiting, idle = todo[::-1], [_Hand(context) for _ in range(workers)]
    busy: dict[Future[str | None], tuple[int, _Hand]] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                index, hand = waiting.pop(), idle.pop()
                busy[hand.pool.submit(_work, index, tasks[index], threads, resume)] = index, hand
            done, _ = wait(busy, timeout=POLL, return_when=FIRST_COMPLETED)
            for _, hand in busy.values():
                hand.pass_on(hear)
            for future in done:
                index, hand = busy.pop(future)
                try:
                    over(index, future.result())
                except BrokenProcessPool:
                    hand.dismiss()
                    hand = _Hand(context)
                    over(index, "its process was killed, perhaps for want of memory; --resume tries again")
                idle.append(hand)
    finally:
        for hand in [*idle, *(hand for _, hand in busy.values())]:
            hand.dismiss()  # where stopped in mid-run, checkpoints are behind by a few rounds at most


class _Hand:
    """A process that does one run after the other. If it is killed, no run but its own is lost."""

    def __init__(self, context: SpawnContext) -> None:
        self.news: SimpleQueue[tuple[int, Round]] = context.SimpleQueue()
        self.pool = ProcessPoolExecutor(1, context, _begin_worker, (self.news,))

    def pass_on(self, hear: Listener) -> None:
        while not self.news.empty():
            hear(*self.news.get())

    def dismiss(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.terminate()
        self.pool.shutdown(cancel_futures=True)


_news: SimpleQueue[tuple[int, Round]]


def _begin_worker(news: SimpleQueue[tuple[int, Round]]) -> None:
    global _news
    _news = news
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # killed without a word: go on for no one


def _work(index: int, task: Task, threads: int, resume: bool) -> str | None:
    return attempt(task, threads, resume, lambda round: _news.put((index, round)))
