"""Live progress of runs: bars on a terminal, plain lines when piped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedslot.round import Round

MOST_BARS = 12  # number of runs that are shown at a time


class Display:
    """Shows the progress of several runs: round, accuracy, slots spent, time left.

    labels: a name per run; rounds: the largest number of rounds of a run.
    """

    def __init__(self, labels: Sequence[str], rounds: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.labels, self.rounds = labels, rounds
        self._over = 0
        self._under_way: dict[int, Round] = {}
        self._began, self._given = time.monotonic(), 0.0
        self._bars: dict[int, TaskID] = {}
        self._all: TaskID | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TextColumn("left"),
                TimeRemainingColumn(compact=True),
                console=self.console,
            )
            self._progress.start()
            if len(self.labels) > 1:
                self._all = self._progress.add_task("all runs", total=len(self.labels), note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, index: int, round: Round | None) -> None:
        """Record a round of a run; None means that the run is over."""
        if index not in self._under_way:  # rounds before --resume do not count in the estimate of the time left
            self._given += 1 if round is None else round.round / self.rounds
        if round is None:
            self._over += 1
            last = self._under_way.pop(index, None)
        else:
            self._under_way[index] = last = round
        if self._progress is not None:
            self._draw(self._progress, index, round)
        elif last is not None and self._is_worth_a_line(round):
            self._print(index, last)

    def _draw(self, progress: Progress, index: int, round: Round | None) -> None:
        if self._all is not None:
            progress.update(self._all, completed=self._done)
        if round is None:
            if index in self._bars and self._all is not None:  # its bar is free for another run
                progress.remove_task(self._bars.pop(index))
            return
        note = f"accuracy {round.test_accuracy:.3f}  slots {round.slots_spent}"
        if index not in self._bars and len(self._bars) < MOST_BARS:
            self._bars[index] = progress.add_task(self.labels[index], total=self.rounds, note=note)
        if index in self._bars:
            progress.update(self._bars[index], completed=round.round + 1, note=note)

    def _is_worth_a_line(self, round: Round | None) -> bool:
        """Return whether to print a line: ten lines in all for a single run, else one line per run."""
        if len(self.labels) > 1:
            return round is None
        return round is not None and (round.round + 1) % max(1, self.rounds // 10) == 0

    def _print(self, index: int, last: Round) -> None:
        fresh = self._done - self._given
        left = (time.monotonic() - self._began) / fresh * (len(self.labels) - self._done) if fresh > 0 else 0.0
        count = f"[{self._over}/{len(self.labels)}] " if len(self.labels) > 1 else ""
        self.console.print(
            f"{count}{self.labels[index]}: round {last.round + 1}/{self.rounds}, accuracy {last.test_accuracy:.3f}, "
            f"slots {last.slots_spent}, {left:.0f} s left",
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    @property
    def _done(self) -> float:
        """Number of runs that are done, with fractions of those under way."""
        return self._over + sum((round.round + 1) / self.rounds for round in self._under_way.values())
