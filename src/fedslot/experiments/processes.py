"""Tasks over local processes. A process that is killed costs its own run and no other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedslot.experiments.tasks import Listener, Over, Settings, Task
    from fedslot.round import Round


def run_in_processes(
    tasks: Sequence[Task], todo: Sequence[int], workers: int, settings: Settings, hear: Listener, over: Over
) -> None:
    """Run the tasks of the indices `todo`, `workers` at a time."""
    # fresh processes: forking after PyTorch has started its threads is not safe
    context = multiprocessing.get_context("spawn")
    waiting, idle = list(reversed(todo)), [_Worker(context) for _ in range(workers)]
    busy: dict[Connection, tuple[int, _Worker]] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                index, worker = waiting.pop(), idle.pop()
                with suppress(OSError):  # the process has ended, which reading from its pipe will tell
                    worker.pipe.send((tasks[index], settings))
                busy[worker.pipe] = index, worker
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                index, worker = busy[pipe]
                try:
                    message: Round | _Over = pipe.recv()
                except (EOFError, OSError):  # ended, perhaps within a message
                    worker.end()
                    worker = _Worker(context)
                    message = _Over("its process was killed, perhaps for lack of memory; --resume tries again")
                if isinstance(message, _Over):
                    del busy[pipe]
                    idle.append(worker)
                    over(index, message.failure)
                else:
                    hear(index, message)
    finally:
        for worker in [*idle, *(worker for _, worker in busy.values())]:
            worker.end()  # where stopped within a run, its checkpoint is a few rounds behind at most


class _Over:
    """Says that a task is over and, if it failed, why."""

    def __init__(self, failure: str | None) -> None:
        self.failure = failure


class _Worker:
    """A process that does one task after the other."""

    def __init__(self, context: SpawnContext) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # so that reading from the pipe ends when the process does

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    # Ctrl-C reaches every process of a terminal; the parent ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from fedslot.experiments.tasks import attempt  # takes seconds, in which Ctrl-C would print a traceback

    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        while True:
            task, settings = pipe.recv()
            pipe.send(_Over(attempt(task, settings, pipe.send)))
    except (EOFError, OSError):  # the parent has ended
        return


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody waits for this run any more
