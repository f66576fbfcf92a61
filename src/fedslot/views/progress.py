"""Live progress of runs: bars on a terminal and in a notebook, plain lines when piped."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedslot.learning.tasks import score_of
from fedslot.rounds.round import Round
from fedslot.scenario import Scenario
from fedslot.support.display import in_notebook
from fedslot.support.errors import say_time

MOST_BARS = 12  # number of runs that are shown at a time
REFRESH = 0.2  # seconds between updates of a notebook


class Display:
    """Shows the progress of several runs: round, accuracy, slots spent, time left.

    labels, scenarios: the name and the scenario of each run.
    console: by default standard error, or the output of the cell in a notebook.
    """

    def __init__(self, labels: Sequence[str], scenarios: Sequence[Scenario], console: Console | None = None) -> None:
        self.labels, self.scenarios = labels, scenarios
        self.console = console or Console(stderr=True)
        self._over = 0
        self._under_way: dict[int, Round] = {}
        self._spent: dict[int, tuple[int, float, float]] = {}  # rounds that were seen, their seconds and joules
        self._began, self._given = time.monotonic(), 0.0
        self._shown: list[int] = []  # runs that have a bar
        self._printed: Round | None = None  # the round of the last line
        self._bars: _TerminalBars | _NotebookBars | None = None
        if console is None and in_notebook():
            self._bars = _NotebookBars()
        elif self.console.is_terminal:
            self._bars = _TerminalBars(self.console)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
            self._show_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        elif kind is None and len(self.labels) == 1:  # the time budget may end a run before its part done is 1
            self._print_once(0, self._under_way.get(0))

    def __call__(self, index: int, round: Round | None) -> None:
        """Record a round of a run; None means that the run is over."""
        if index not in self._under_way:  # rounds before --resume do not count in the estimate of the time left
            self._given += 1 if round is None else self._part(index, round) * round.round / (round.round + 1)
        before = max(self._done, self._given)
        if round is None:
            self._over += 1
            last = self._under_way.pop(index, None)
        else:
            self._under_way[index] = last = round
            count, seconds, joules = self._spent.get(index, (0, 0.0, 0.0))
            self._spent[index] = count + 1, seconds + (round.air_seconds or 0.0), joules + (round.joules or 0.0)
        if self._bars is not None:
            self._draw(self._bars, index, round)
        elif round is None or (len(self.labels) == 1 and math.floor(10 * self._done) > math.floor(10 * before)):
            self._print_once(index, last)  # a line per run, and ten lines in all for a single run

    def _draw(self, bars: _TerminalBars | _NotebookBars, index: int, round: Round | None) -> None:
        self._show_all()
        if round is None:
            if index in self._shown and len(self.labels) > 1:  # its bar is free for another run
                self._shown.remove(index)
                bars.hide(index)
            return
        if index not in self._shown and len(self._shown) < MOST_BARS:
            self._shown.append(index)
        if index in self._shown:
            count = f"{round.round + 1}/{self.scenarios[index].most_rounds}"
            note = f"{self._score(index, round)}  slots {self._slots(index, round)}"
            bars.show(index, self.labels[index], self._part(index, round), count, note)

    def _score(self, index: int, round: Round) -> str:
        return f"{score_of(self.scenarios[index]).label} {round.score:.3f}"

    def _show_all(self) -> None:
        """Draw the bar of all runs, if there are several."""
        runs = len(self.labels)
        if self._bars is not None and runs > 1:
            self._bars.show(None, "all runs", self._done / runs, f"{int(self._done)}/{runs}", "")

    def _print_once(self, index: int, last: Round | None) -> None:
        """Print the line of a round, unless that was the last line."""
        if last is None or last is self._printed:
            return
        self._printed = last
        fresh = self._done - self._given
        left = (time.monotonic() - self._began) / fresh * (len(self.labels) - self._done) if fresh > 0 else 0.0
        count = f"[{self._over}/{len(self.labels)}] " if len(self.labels) > 1 else ""
        self.console.print(
            f"{count}{self.labels[index]}: round {last.round + 1}/{self.scenarios[index].most_rounds}, "
            f"{self._score(index, last)}, slots {self._slots(index, last)}, {left:.0f} s left",
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    @property
    def _done(self) -> float:
        """Number of runs that are done, with fractions of those under way."""
        return self._over + sum(self._part(index, round) for index, round in self._under_way.items())

    def _part(self, index: int, round: Round) -> float:
        """Return the part of a run that is done after a round."""
        count, seconds, joules = self._spent.get(index, (1, round.air_seconds or 0.0, round.joules or 0.0))
        whole = (round.round + 1) / count  # of the rounds before --resume, the mean is taken to be the same
        return self.scenarios[index].part_done(round.round + 1, round.slots_spent, whole * seconds, whole * joules)

    def _slots(self, index: int, round: Round) -> str:
        budget = self.scenarios[index].time_budget
        return say_time(round.slots_spent) + ("" if budget is None else f"/{budget}")


class _TerminalBars:
    """Bars on a terminal, by rich, each known by the index of its run; None for that of all runs."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[note]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks: dict[int | None, TaskID] = {}

    def start(self) -> None:
        self._progress.start()

    def show(self, index: int | None, label: str, part: float, count: str, note: str) -> None:
        if index not in self._tasks:
            self._tasks[index] = self._progress.add_task(label, total=1.0, count=count, note=note)
        self._progress.update(self._tasks[index], completed=part, count=count, note=note)

    def hide(self, index: int) -> None:
        self._progress.remove_task(self._tasks.pop(index))

    def stop(self) -> None:
        self._progress.stop()


class _NotebookBars:
    """Bars in the output of a cell, without widgets, so that a saved notebook shows how the runs ended."""

    def __init__(self) -> None:
        self._rows: dict[int | None, tuple[str, float, str, str]] = {}
        self._handle: Any = None
        self._began = self._drawn = time.monotonic()

    def start(self) -> None:
        from IPython import display

        self._display: Any = display
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def show(self, index: int | None, label: str, part: float, count: str, note: str) -> None:
        self._rows[index] = (label, part, count, note)
        if time.monotonic() - self._drawn > REFRESH:
            self.draw()

    def hide(self, index: int) -> None:
        del self._rows[index]

    def stop(self) -> None:
        self.draw()

    def draw(self) -> None:
        self._drawn = time.monotonic()
        rows = "".join(self._row(*row) for row in self._rows.values())
        self._handle.update(self._display.HTML(f'<table style="font-variant-numeric: tabular-nums">{rows}</table>'))

    def _row(self, label: str, part: float, count: str, note: str) -> str:
        left = (1 - part) * (self._drawn - self._began) / part if part else 0.0
        bar, ending = f'<progress value="{part:.3f}"></progress>', f"{left:.0f} s left" if part < 1 else "done"
        cells = [html.escape(label), bar, count, html.escape(note), ending]
        return "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells) + "</tr>"
