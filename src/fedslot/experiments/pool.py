"""Run many independent tasks: in this process, in several local processes or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from fedslot.experiments.processes import run_in_processes
from fedslot.experiments.tasks import Listener, Settings, Task, attempt
from fedslot.support.errors import InputError, RefusedError, SystemFault


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    tasks: Sequence[Task],
    settings: Settings = Settings(),  # noqa: B008
    *,
    workers: int | None = None,
    dask: str | None = None,
    listener: Listener | None = None,
) -> dict[int, str]:
    """Run all tasks, and return the one-line reason of each that failed, by index; a failure does not stop the others.

    settings: how to run them; with `resume`, finished runs are not repeated.
    workers: number of local processes, by default one per core.
    dask: address of a Dask scheduler, whose workers then run the tasks. Results do not depend on where a task runs.
    listener: called with each round of each task.
    """
    check_workers(workers)
    listener = listener or (lambda index, round: None)
    failures: dict[int, str] = {}

    def over(index: int, failure: str | None = None) -> None:
        if failure is not None:
            failures[index] = failure
        listener(index, None)

    done = [index for index, task in enumerate(tasks) if settings.resume and task.is_done]
    for index in done:
        over(index)
    todo = sorted({*range(len(tasks))} - {*done})
    workers = min(workers or cores(), len(todo))
    if dask is not None:
        from fedslot.experiments.cluster import run_on_cluster

        run_on_cluster(dask, tasks, todo, settings, listener, over)
    elif workers <= 1:
        for index in todo:
            over(index, attempt(tasks[index], settings, partial(listener, index)))
    else:
        run_in_processes(tasks, todo, workers, settings, listener, over)
    return dict(sorted(failures.items()))


def failure_of(tasks: Sequence[Task], failures: Mapping[int, str]) -> RefusedError | OSError:
    """Return the error to raise about failed runs: an OSError if the first failed because of the system."""
    index, reason = min(failures.items())
    count = "a run" if len(tasks) == 1 else f"{len(failures)} of {len(tasks)} runs"
    line = f"{count} failed; {tasks[index].folder.name}: {reason}"
    return OSError(line) if isinstance(reason, SystemFault) else RefusedError(line)


def check_workers(workers: int | None, dask: str | None = None) -> None:
    """Refuse a number of processes below one, and a Dask cluster that cannot be used."""
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1")
    if dask is not None:
        from fedslot.experiments.cluster import find_workers

        find_workers(dask)
