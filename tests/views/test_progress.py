"""The display of many runs: how many are over, how long it takes, and few lines."""

from __future__ import annotations

import io

from rich.console import Console

from fedslot.round import Round
from fedslot.views.progress import MOST_BARS, Display


def done(round: int) -> Round:
    return Round(round, 0.5, 1.0, 1.0, 10, 5, 0, 5, 2, 3, 11, 11, 60, 11 * (round + 1), 0, 0.0, 0.1)


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


def last_frame(console: Console) -> str:
    """Return the text on the terminal at the end."""
    return console.file.getvalue().split("\x1b[2K")[-1]  # type: ignore[attr-defined]


def test_few_bars_for_many_runs() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=60)
    with Display([f"run {index}" for index in range(300)], 4, console) as display:
        for index in range(300):
            display(index, done(0))
        display(0, done(3))
        display(0, None)
        display(200, done(1))  # takes the bar of the run that is over
    lines = [line for line in last_frame(console).splitlines() if "run" in line]
    shown = [f"run {index} " for index in (*range(1, MOST_BARS), 200)]
    assert len(lines) == 1 + MOST_BARS
    assert lines[0].startswith("all runs")
    assert "76/300" in lines[0], "1 + 298 / 4 + 2 / 4"
    assert all(line.startswith(label) for label, line in zip(shown, lines[1:], strict=True))


def test_labels_are_shown_as_they_are() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    shown(Display(["a=[/x]"], 4, console), 1, 4)
    assert "a=[/x]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_begins_again_counts_once() -> None:
    """As when the worker that did it was lost."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Display(["a", "b"], 4, console) as display:
        for round in (0, 1, 2, 3, 0, 1, 2, 3):
            display(0, done(round))
    assert "1/2" in last_frame(console).splitlines()[0]
