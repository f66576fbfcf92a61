"""Run many independent tasks: in this process, in several local processes or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fedslot.errors import InputError, RefusedError, SystemFault
from fedslot.experiments.processes import run_in_processes
from fedslot.experiments.tasks import Listener, Settings, Task, attempt
from fedslot.round import Round


def run_all(
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    dask: str | None = None,
    listener: Listener | None = None,
) -> dict[int, str]:
    """Run all tasks, and return the one-line reason of each that failed, by index; a failure does not stop the others.

    workers: number of local processes, by default one per core.
    threads: number of threads of each run.
    resume: continue the runs in the folders; finished runs are not repeated.
    dask: address of a Dask scheduler, whose workers then run the tasks. Results do not depend on where a task runs.
    listener: called with each round of each task.
    """
    check_workers(workers)
    settings = Settings(threads, resume)
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

        run_on_cluster(dask, tasks, todo, settings, hear, over)
    elif workers <= 1:
        for index in todo:

            def on_round(round: Round, index: int = index) -> None:
                hear(index, round)

            over(index, attempt(tasks[index], settings, on_round))
    else:
        run_in_processes(tasks, todo, workers, settings, hear, over)
    return dict(sorted(failures.items()))


def describe_failures(tasks: Sequence[Task], failures: Mapping[int, str]) -> str:
    """Return how many runs failed, and the reason of the first, in one line."""
    index, reason = min(failures.items())
    count = "a run" if len(tasks) == 1 else f"{len(failures)} of {len(tasks)} runs"
    return f"{count} failed; {tasks[index].folder.name}: {reason}"


def failure_of(tasks: Sequence[Task], failures: Mapping[int, str]) -> RefusedError | OSError:
    """Return the error to raise about failed runs: an OSError if the first failed because of the system."""
    line = describe_failures(tasks, failures)
    return OSError(line) if isinstance(failures[min(failures)], SystemFault) else RefusedError(line)


def check_workers(workers: int | None) -> None:
    """Refuse a number of processes below one."""
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1")
