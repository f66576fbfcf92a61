"""The display of many runs: how many are over, how long it takes, and few lines."""

from __future__ import annotations

import io

import pytest
from IPython.display import HTML
from rich.console import Console

import fedslot
from fedslot import Scenario
from fedslot.rounds.round import Round
from fedslot.views.progress import MOST_BARS, Display

FOUR = Scenario(rounds=4)


def done(round: int) -> Round:
    return Round(
        round, 0.5, 1.0, 1.0, 10, 5, 0, 5, 5, 2, 3, 0, 0, 0.0, 10, 11, 11, 60, 11 * (round + 1), 3.5, None, None, 0, 0.0
    )


@pytest.fixture
def piped() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, height=60)


def lines(console: Console) -> list[str]:
    """The lines when piped, or those on the terminal at the end."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.split("\x1b[2K")[-1].splitlines()


def test_a_line_for_each_of_several_runs_when_piped(piped: Console) -> None:
    display = Display([f"run {index}" for index in range(30)], [FOUR] * 30, piped)
    display(29, None)  # finished by an earlier command
    with display:
        for round in range(4):
            for index in range(29):
                display(index, done(round))
        for index in range(29):
            display(index, None)
    printed = lines(piped)
    assert len(printed) == 29
    assert printed[0].startswith("[2/30] run 0: round 4/4, accuracy 0.500, slots 44")
    assert printed[-1].startswith("[30/30] run 28")
    assert printed[-1].endswith("0 s left")


@pytest.mark.parametrize(
    ("scenario", "rounds", "first", "last"),
    [
        (Scenario(rounds=100), 100, "round 10/100, accuracy 0.500, slots 110", "round 100/100"),
        # 4200 slots are 381 frames of 11 slots, and 9 slots in which no further frame fits
        (
            Scenario(rounds=4200, time_budget=4200, frame={"slots": 10, "pull": 5}),
            381,
            "round 39/4200, accuracy 0.500, slots 429/4200",
            "round 381/4200, accuracy 0.500, slots 4191/4200",
        ),
    ],
    ids=["rounds", "time budget"],
)
def test_ten_lines_for_one_run_when_piped(
    piped: Console, scenario: Scenario, rounds: int, first: str, last: str
) -> None:
    with Display(["alone"], [scenario], piped) as display:
        for round in range(rounds):
            display(0, done(round))
    printed = lines(piped)
    assert len(printed) == 10
    assert printed[0].startswith(f"alone: {first}")
    assert printed[-1].startswith(f"alone: {last}")


@pytest.mark.parametrize(
    "scenario",
    [Scenario(rounds=100), Scenario(rounds=4200, time_budget=1100)],
    ids=["rounds", "time budget"],
)
@pytest.mark.parametrize("resumed", [0, 20])
def test_the_time_left_follows_from_the_part_done(
    piped: Console, scenario: Scenario, resumed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 11 slots takes a second here, so the other 60 of 100 rounds take a minute."""
    clock = 0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    display = Display(["alone"], [scenario], piped)
    for round in range(resumed, 40):
        clock += 1
        display(0, done(round))
    assert lines(piped)[-1].endswith(", 60 s left")


def test_each_run_is_measured_by_its_own_scenario(terminal: Console) -> None:
    alone = Scenario(rounds=60, strategy={"name": "ps-alone"})
    with Display(["a=[/x]", "b"], [alone, Scenario(rounds=60)], terminal) as display:
        display(0, done(0))
        display(1, done(29))
    both, first, second = lines(terminal)[:3]
    assert "1/2" in both, "1 + 30 / 60"
    assert "1/1" in first
    assert "30/60" in second
    assert "a=[/x]" in first, "labels are shown as they are"


def test_few_bars_for_many_runs(terminal: Console) -> None:
    with Display([f"run {index}" for index in range(300)], [FOUR] * 300, terminal) as display:
        for index in range(300):
            display(index, done(0))
        display(0, done(3))
        display(0, None)
        display(200, done(1))  # takes the bar of the run that is over
    bars = [line for line in lines(terminal) if "run" in line]
    labels = [f"run {index} " for index in (*range(1, MOST_BARS), 200)]
    assert len(bars) == 1 + MOST_BARS
    assert bars[0].startswith("all runs")
    assert "76/300" in bars[0], "1 + 298 / 4 + 2 / 4"
    assert all(line.startswith(label) for label, line in zip(labels, bars[1:], strict=True))


def test_a_run_that_begins_again_counts_once(terminal: Console) -> None:
    """As when the worker that did it was lost."""
    with Display(["a", "b"], [FOUR] * 2, terminal) as display:
        for round in (0, 1, 2, 3, 0, 1, 2, 3):
            display(0, done(round))
    assert "1/2" in lines(terminal)[0]


class Cell:
    """The output of a cell of a notebook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[str] = []
        for module in ("support.display", "views.progress"):
            monkeypatch.setattr(f"fedslot.{module}.in_notebook", lambda: True)
        monkeypatch.setattr("IPython.display.display", self._display)

    def _display(self, shown: HTML, display_id: bool) -> Cell:
        assert display_id
        return self

    def update(self, shown: HTML) -> None:
        self.pages.append(shown.data)


def test_bars_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch)
    with Display(["a<b", "c"], [FOUR] * 2) as display:
        display(0, done(3))
        display(0, None)
        display(1, done(1))
    page = cell.pages[-1]
    assert page.count("<progress") == 2, "all runs, and the one under way"
    assert '<progress value="0.750">' in page
    assert "2/4" in page
    assert "accuracy 0.500  slots 22" in page
    with Display(["a<b"], [FOUR]) as display:
        display(0, done(3))
    assert "a&lt;b" in cell.pages[-1]
    assert "done" in cell.pages[-1]


def test_notebooks_show_progress_by_themselves_and_scripts_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = fedslot.Scenario.load("quickstart", {"rounds": 2, "data.ues": 20, "training.epochs": 1})
    fedslot.run(scenario)
    fedslot.compare(scenario, ["fedavg"], 1, workers=1)
    assert capsys.readouterr().err == ""
    fedslot.run(scenario, progress=True)
    fedslot.compare(scenario, ["fedavg"], 2, workers=1, progress=True)
    fedslot.sweep(scenario, {"frame.pull": [2, 5]}, 1, workers=1, progress=True)
    errors = capsys.readouterr().err
    assert "push-pull, seed 0: round 2/2" in errors
    assert "[2/2] fedavg, seed 1: round 2/2" in errors
    assert "frame.pull=5, seed 0" in errors
    cell = Cell(monkeypatch)
    fedslot.sweep(scenario, {"frame.pull": [2, 5]}, 1, workers=1)
    assert all("all runs" in page for page in cell.pages), "one display, not one for each run"
    assert "2/2" in cell.pages[-1]
    count = len(cell.pages)
    fedslot.run(scenario, progress=False)
    assert len(cell.pages) == count
