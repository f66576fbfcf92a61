"""Many runs at once: independent scenarios, each into a folder of its own, spread over local processes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

from fedslot.errors import InputError, RefusedError
from fedslot.runs import is_finished, run
from fedslot.scenario import Scenario
from fedslot.simulation import Round

Listener = Callable[[int, Round], object]
"""Called with the index of a task and each of its rounds as they are done."""

POLL = 0.1  # seconds between looks at what the workers have done


@dataclass(frozen=True)
class Task:
    """One run: what, and where to."""

    scenario: Scenario
    folder: Path


def run_all(
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    listener: Listener | None = None,
) -> dict[int, str]:
    """Run every task; results are in the folders, the same for any number of workers.

    workers: processes, by default one per core.
    threads: threads in each of them.
    resume: continue what the folders hold; finished runs are left alone.
    returns: index and one-line reason of each task that failed; a failure does not stop the others.
    """
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1")
    hear = listener or (lambda index, round: None)
    todo = [index for index, task in enumerate(tasks) if not (resume and is_finished(task.folder))]
    workers = min(workers or os.cpu_count() or 1, len(todo))
    if workers <= 1:
        return _one_by_one(tasks, todo, threads, resume, hear)

    # fresh processes: forking after PyTorch has started its threads is not safe
    context = multiprocessing.get_context("spawn")
    news: Queue[tuple[int, Round]] = context.Queue()
    failures: dict[int, str] = {}
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (news,))
    try:
        pending: dict[Future[None], int] = {
            pool.submit(_work, index, tasks[index], threads, resume): index for index in todo
        }
        while pending:
            done, _ = wait(pending, timeout=POLL, return_when=FIRST_COMPLETED)
            _pass_on(news, hear)
            for future in done:
                index, error = pending.pop(future), future.exception()
                if error is not None:
                    failures[index] = _reason(error)
        _pass_on(news, hear)
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()  # checkpoints are behind by a few rounds at most
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return failures


def _one_by_one(tasks: Sequence[Task], todo: list[int], threads: int, resume: bool, hear: Listener) -> dict[int, str]:
    failures: dict[int, str] = {}
    for index in todo:
        try:
            run(
                tasks[index].scenario,
                tasks[index].folder,
                resume=resume,
                threads=threads,
                on_round=lambda round, index=index: hear(index, round),  # type: ignore[misc]
            )
        except Exception as error:
            failures[index] = _reason(error)
    return failures


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError | RefusedError) else f"{type(error).__name__}: {text}"


def _pass_on(news: Queue[tuple[int, Round]], hear: Listener) -> None:
    while True:
        try:
            hear(*news.get_nowait())
        except queue.Empty:
            return


_news: Queue[tuple[int, Round]]


def _begin_worker(news: Queue[tuple[int, Round]]) -> None:
    global _news
    _news = news
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # killed without a word: go on for no one


def _work(index: int, task: Task, threads: int, resume: bool) -> None:
    run(
        task.scenario,
        task.folder,
        resume=resume,
        threads=threads,
        on_round=lambda round: _news.put((index, round)),
    )
