"""Run tasks in several local processes; if a process is killed, only its own run is lost."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext

from fedslot.experiments.tasks import Listener, Over, Settings, Task, attempt
from fedslot.round import Round


def run_in_processes(
    tasks: Sequence[Task], todo: Sequence[int], workers: int, settings: Settings, hear: Listener, over: Over
) -> None:
    """Run the tasks with the indices `todo` in a number of processes, `workers`."""
    # spawn, since forking a process in which PyTorch has started threads is not safe
    context = multiprocessing.get_context("spawn")
    waiting, idle = list(reversed(todo)), [_Worker(context) for _ in range(workers)]
    busy: dict[Connection, tuple[int, _Worker]] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                index, worker = waiting.pop(), idle.pop()
                worker.pipe.send((tasks[index], settings))
                busy[worker.pipe] = index, worker
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                index, worker = busy[pipe]
                try:
                    message: Round | _Over = pipe.recv()
                except (EOFError, ConnectionResetError):
                    worker.end()
                    worker = _Worker(context)
                    message = _Over("its process was killed, perhaps for lack of memory; --resume tries again")
                if isinstance(message, Round):
                    hear(index, message)
                else:
                    del busy[pipe]
                    idle.append(worker)
                    over(index, message.failure)
    finally:
        for worker in [*idle, *(worker for _, worker in busy.values())]:
            worker.end()  # a run that is stopped here has a checkpoint that is at most a few rounds old


class _Over:
    """Message of a worker that its task is over and, if it failed, the reason."""

    def __init__(self, failure: str | None) -> None:
        self.failure = failure


class _Worker:
    """A process that runs tasks one after the other."""

    def __init__(self, context: SpawnContext) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # so that reading from the pipe fails once the process has ended

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """Run the tasks that arrive on a pipe, and send back their rounds."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        while True:
            task, settings = pipe.recv()
            pipe.send(_Over(attempt(task, settings, pipe.send)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent process has ended, or Ctrl-C
        return


def _die_with_parent() -> None:
    """End this process once its parent has ended, since its run is then of no use."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
