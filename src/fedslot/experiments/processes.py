"""Tasks over local processes. A process that is killed costs its own run and no other.

Workers are started as fresh interpreters, which never import the user's main module: scripts need no `__main__` guard.
Parent and worker exchange pickles over the worker's standard input and output. The end of its input tells a worker that
the parent is gone.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from fedslot.parts.registry import pack, unpack
from fedslot.support.errors import RefusedError, reason

if TYPE_CHECKING:
    from fedslot.experiments.tasks import Listener, Over, Settings, Task
    from fedslot.rounds.round import Round

# the parent's sys.path comes as arguments, so that the worker finds the same modules; -P adds nothing to it
_START = "import sys; sys.path[:] = sys.argv[1:]; from fedslot.experiments.processes import serve; serve()"
_News = queue.SimpleQueue[tuple["_Worker", Any]]
PATIENCE = 5  # seconds in which a process that closed its output must have ended
_is_worker = False


def run_in_processes(
    tasks: Sequence[Task], todo: Sequence[int], workers: int, settings: Settings, listener: Listener, over: Over
) -> None:
    """Run the tasks of the indices `todo`, `workers` at a time."""
    if _is_worker:
        raise RefusedError("a module of your own starts runs when it is imported; put that under `if __name__ == ...`")
    news: _News = queue.SimpleQueue()
    parts = pack({name for index in todo for name in tasks[index].scenario.own_parts})
    waiting: list[int] = list(reversed(todo))
    idle: list[_Worker] = []
    busy: dict[_Worker, int] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _Worker(parts, news)
                busy[worker] = index = waiting.pop()
                worker.send((tasks[index], settings))
            worker, message = news.get()
            if message is None:
                how = worker.end(PATIENCE)
                if worker in busy:
                    over(busy.pop(worker), f"its process {how}; --resume tries again")
                else:
                    idle.remove(worker)
            elif isinstance(message, _Over):
                over(busy.pop(worker), message.failure)
                idle.append(worker)
            else:
                listener(busy[worker], message)
    finally:
        for worker in [*idle, *busy]:
            worker.end()  # where stopped within a run, its checkpoint is a few seconds behind


@dataclass
class _Over:
    """Says that a task is over and, if it failed, why."""

    failure: str | None


class _Worker:
    """A process that does one task after the other, seen from the parent.

    parts: the user's classes that it needs. news: gets this worker with each message of it, and None when it has ended.
    """

    def __init__(self, parts: bytes, news: _News) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, *map(str, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the parent only, which ends the others
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        threading.Thread(target=self._listen, args=(self._process.stdout, news), daemon=True).start()
        self.send(parts)

    def send(self, message: object) -> None:
        with suppress(OSError):  # the process has ended, which reading from it will tell
            _write(self._input, message)

    def end(self, patience: float = 0) -> str:
        """Kill the process, if it does not end by itself within `patience` seconds, and return how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.kill()
        code = self._process.wait()
        with suppress(OSError):
            self._input.close()
        if code == -9:
            return "was killed, perhaps for lack of memory"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _listen(self, output: IO[bytes], news: _News) -> None:
        with output, suppress(EOFError, OSError, pickle.UnpicklingError):  # the process ended, perhaps within a message
            while True:
                news.put((self, pickle.load(output)))
        news.put((self, None))


def serve() -> None:
    """Do the tasks that come from the parent, until it ends."""
    global _is_worker
    _is_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows, Ctrl-C reaches every process of a terminal
    sys.argv[1:] = []
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pipe_in, pipe_out = _take_pipes()
    threading.Thread(target=_receive, args=(pipe_in, messages), daemon=True).start()
    from fedslot.experiments.tasks import attempt

    def report(round: Round) -> None:
        _write(pipe_out, round)

    lacking = None
    try:
        unpack(messages.get())  # the user's classes
    except Exception as error:  # whatever their modules raise when they are imported
        lacking = reason(error)
    while True:
        task, settings = messages.get()
        _write(pipe_out, _Over(lacking or attempt(task, settings, report)))


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return standard input and output for messages; whatever the user's code prints goes to standard error."""
    pipes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    with suppress(OSError):  # it is closed
        os.dup2(2, 1)
    return pipes


def _receive(pipe: IO[bytes], messages: queue.SimpleQueue[Any]) -> None:
    """Queue the messages of the parent; end this process when the parent has ended."""
    try:
        while True:
            messages.put(pickle.load(pipe))
    finally:
        os._exit(1)  # nobody waits for this run any more


def _write(pipe: IO[bytes], message: object) -> None:
    pipe.write(pickle.dumps(message))
    pipe.flush()
