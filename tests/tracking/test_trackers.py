"""Trackers of many runs: which of them are told of an end, and whose error is shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedslot import Callback, Event, Result, Round, Scenario
from fedslot.cli import main
from fedslot.experiments.tasks import Task
from fedslot.tracking import TRACKERS
from fedslot.tracking.numbers import numbers
from fedslot.tracking.trackers import RunTrackers

DONE = Round(0, 0.5, 1.0, 1.0, 10, 5, 0, 5, 5, 2, 3, 0, 0, 0.0, 10, 11, 11, 60, 11, 3.5, None, None, 0, 0.0)


def test_a_comparison_says_which_tool_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("mlflow.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    words = ["compare", "quickstart", "-o", "rounds=1", "-o", "data.ues=20", "--strategies", "fedavg", "--seeds", "2"]
    assert main([*words, "--track", "mlflow", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("type: pip install 'fedslot[mlflow]'")
    assert not (tmp_path / "out").exists()


def test_idle_slots_are_counted_whether_or_not_the_frame_lists_them() -> None:
    """Ten slots: 5 with pulls, one with a push, one with a collision of two, so 3 are idle; a barred UE has no slot."""
    slots = {"pulled": [1, 2, 3, 4, 5], "pushed": [6], "collided": [8, 8], "barred": [0], "idle": [7]}
    frame = [Event(0, slot, event, None, None, None, None) for event, slots in slots.items() for slot in slots]
    assert numbers(DONE, frame)["idle_slots"] == 3
    assert "idle_slots" not in numbers(DONE, [])


def test_only_those_that_started_are_told_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    class Notes(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
            told.append((self.name, "start"))
            if self.name == "second":
                raise ValueError("no start")

        def on_round(self, round: Round, frame: Sequence[Event]) -> None:
            told.append((self.name, "round"))

        def on_end(self, result: Result | None) -> None:
            told.append((self.name, "end"))

    for name in ("first", "second"):
        monkeypatch.setitem(TRACKERS, name, lambda label, folder, name=name: Notes(name))
    runs = [Task(Scenario(), tmp_path / "a"), Task(Scenario(), tmp_path / "b")]
    trackers = RunTrackers(["first", "second"], runs, ["a", "b"], tmp_path)
    with pytest.raises(ValueError, match="no start"):
        trackers(0, DONE)
    trackers(1, None)  # was finished before
    trackers.close()
    assert told == [("first", "start"), ("second", "start"), ("first", "end")]
