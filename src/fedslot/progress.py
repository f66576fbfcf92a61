"""Live progress: bars on a terminal, plain lines when piped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedslot.simulation import Round


class Display:
    """Shows how far each of several runs is: round, accuracy, slots spent, time left.

    labels: a name per run. rounds: rounds of each run at most.
    """

    def __init__(self, labels: Sequence[str], rounds: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.labels, self.rounds = labels, rounds
        self.done = 0
        self._began: dict[int, tuple[float, int]] = {}
        self._bars: dict[int, TaskID] = {}
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TextColumn("left"),
                TimeRemainingColumn(compact=True),
                console=self.console,
            )
            self._progress.start()
            if len(self.labels) > 1:
                total = self.rounds * len(self.labels)
                self._bars[-1] = self._progress.add_task("all runs", total=total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, index: int, round: Round) -> None:
        """Note a round of a run."""
        if self._progress is not None:
            self._bar(self._progress, index, round)
        else:
            self._line(index, round)

    def _bar(self, progress: Progress, index: int, round: Round) -> None:
        note = f"accuracy {round.test_accuracy:.3f}  slots {round.slots_spent}"
        if index not in self._bars:
            self._bars[index] = progress.add_task(self.labels[index], total=self.rounds, note=note)
        progress.update(self._bars[index], completed=round.round + 1, note=note)
        if -1 in self._bars:
            progress.advance(self._bars[-1])
            if round.round + 1 == self.rounds:  # make room for those that go on
                progress.update(self._bars[index], visible=False)

    def _line(self, index: int, round: Round) -> None:
        now, done = time.monotonic(), round.round + 1
        began, first = self._began.setdefault(index, (now, done))
        often = self.rounds if len(self.labels) > 1 else max(1, self.rounds // 10)
        if done % often == 0 or done == self.rounds:
            left = (now - began) / (done - first) * (self.rounds - done) if done > first else 0.0
            self.console.print(
                f"{self.labels[index]}: round {done}/{self.rounds}, accuracy {round.test_accuracy:.3f}, "
                f"slots {round.slots_spent}, {left:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )
