"""The display of many runs: how many are over, how long it takes, and few lines."""

from __future__ import annotations

import io

from rich.console import Console

from fedslot.round import Round
from fedslot.views.progress import MOST_BARS, Display


def done(round: int) -> Round:
    return Round(round, 0.5, 1.0, 1.0, 5, 0, 5, 2, 3, 11, 60, 11 * (round + 1), 0, 0.0, 0.1)


def shown(display: Display, runs: int, rounds: int) -> None:
    with display:
        for round in range(rounds):
            for index in range(runs):
                display(index, done(round))
        for index in range(runs):
            display(index, None)


def test_a_line_for_each_of_several_runs_when_piped() -> None:
    console = Console(file=io.StringIO(), width=200)
    display = Display([f"run {index}" for index in range(30)], 4, console)
    display(29, None)  # finished by an earlier command
    shown(display, 29, 4)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 29
    assert lines[0].startswith("[2/30] run 0: round 4/4, accuracy 0.500, slots 44")
    assert lines[-1].startswith("[30/30] run 28")
    assert lines[-1].endswith("0 s left")


def test_ten_lines_for_one_run_when_piped() -> None:
    console = Console(file=io.StringIO(), width=200)
    shown(Display(["alone"], 100, console), 1, 100)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 10
    assert lines[0].startswith("alone: round 10/100")


def test_few_bars_for_many_runs() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=60)
    display = Display([f"run {index}" for index in range(300)], 4, console)
    with display:
        for index in range(300):
            display(index, done(0))
        assert display._progress is not None
        assert len(display._progress.tasks) == 1 + MOST_BARS
        display(0, done(3))
        display(0, None)
        assert len(display._progress.tasks) == MOST_BARS, "a run that is over makes room"
        display(200, done(1))
        assert display._progress.tasks[-1].description == "run 200"
        everything = display._progress.tasks[0]
        assert (everything.total, everything.completed) == (300, 1 + 298 / 4 + 2 / 4)


def test_labels_are_shown_as_they_are() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    shown(Display(["a=[/x]"], 4, console), 1, 4)
    assert "a=[/x]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_begins_again_counts_once() -> None:
    """As when the worker that did it was lost."""
    display = Display(["a", "b"], 4, Console(file=io.StringIO()))
    for round in (0, 1, 2, 0, 1):
        display(0, done(round))
    assert display._done == 0.5
