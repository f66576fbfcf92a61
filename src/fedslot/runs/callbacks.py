"""Callbacks: objects that are told when a run starts, after each of its rounds, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

from fedslot.rounds.round import Round
from fedslot.rounds.trace import Event
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

LOGGED = ("round", "test_accuracy", "test_score", "pulled", "push_received", "collided", "slots_spent", "seconds")
logger = getLogger(__name__)
METHODS = ("on_start", "on_round", "on_end")


class Callback:
    """Is told what happens in a run; a subclass overrides what it needs.

    >>> import fedslot
    >>> class Enough(Callback):
    ...     def on_round(self, round, frame):
    ...         return round.slots_spent > 50
    >>> result = fedslot.run("quickstart", callbacks=[Enough()])
    >>> len(result.rounds), result.stopped
    (5, True)

    Callbacks are called in the order in which they are given. One that raises an error ends the run, which `resume`
    continues; the error has a note that names the callback.
    """

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        """Be told that a run starts.

        done: number of its rounds that were done before, if it is resumed. folder: where it is saved, if it is.
        """

    def on_round(self, round: Round, frame: Sequence[Event]) -> bool | None:
        """Be told of a round that is done and saved; return True to stop the run.

        A run that was stopped is one that was interrupted: `resume` continues it.

        round: its row in `rounds.csv`. frame: the rows of its frame in `frames.csv`.
        """

    def on_end(self, result: Result | None) -> None:
        """Be told that a run ended that had started.

        result: None if it failed or was interrupted; `result.stopped` says whether a callback stopped it.
        """


class Report(Callback):
    """Calls a function with each round of a run."""

    def __init__(self, report: Callable[[Round], object]) -> None:
        self._report = report

    def on_round(self, round: Round, frame: Sequence[Event]) -> None:
        self._report(round)


class RoundLog(Callback):
    """Writes a line of the log for every round, with its numbers as the record's `fields`."""

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        self._rounds = scenario.rounds

    def on_round(self, round: Round, frame: Sequence[Event]) -> None:
        fields = {name: value for name in LOGGED if (value := getattr(round, name)) is not None}
        logger.info("round %d of %d is closed", round.round + 1, self._rounds, extra={"fields": fields})


class Callbacks:
    """The callbacks of one run."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._all: list[Callback] = list(callbacks)
        for callback in self._all:
            if isinstance(callback, type) or not all(callable(getattr(callback, name, None)) for name in METHODS):
                raise InputError("callbacks", callback, f"objects with {', '.join(METHODS)}, as fedslot.Callback has")
        self._started: list[Callback] = []

    def start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        """Tell all that the run starts."""
        for callback in self._all:
            _call(callback.on_start, scenario, done, folder)
            self._started.append(callback)

    def round(self, round: Round, frame: Sequence[Event]) -> bool:
        """Tell all of a round, and return whether one of them stops the run."""
        answers = [_call(callback.on_round, round, frame) for callback in self._all]
        return any(answer is True for answer in answers)

    def end(self, result: Result | None, error: BaseException | None = None) -> None:
        """Call `on_end` once on every started callback.

        error: the error that ended it; those of callbacks become notes of it.
        """
        while self._started:
            try:
                _call(self._started.pop(0).on_end, result)
            except Exception as another:
                if error is None:
                    error = another
                else:
                    error.add_note(f"then {type(another).__name__}: {another}")
        if isinstance(error, Exception) and result is not None:
            raise error


def _call(method: Callable[..., Any], *arguments: object) -> object:
    """Call a method of a callback; its error gets a note that says whose it is."""
    try:
        return method(*arguments)
    except Exception as error:
        owner = getattr(method, "__self__", method)
        error.add_note(f"raised by the callback {type(owner).__name__}, {getattr(method, '__name__', method)}")
        raise
