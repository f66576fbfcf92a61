"""Callbacks: what they are told, that they can stop a run, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import fedslot
from fedslot import Callback, Event, Result, Round, Scenario
from fedslot.support.errors import InputError

SMALL = {"rounds": 5, "data.ues": 20, "training.epochs": 1, "strategy.warmup": 2}


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", SMALL)


class Notes(Callback):
    """Notes what it is told; stops after, or fails in, the rounds that it is given."""

    def __init__(self, stop: int = -1, fail: object = None) -> None:
        self.stop, self.fail = stop, fail
        self.notes: list[object] = []
        self.frames: list[Event] = []

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        self.notes.append(("start", scenario.strategy.name, done, folder and folder.name))
        if self.fail == "start":
            raise ValueError("no start")

    def on_round(self, round: Round, frame: Sequence[Event]) -> bool:
        self.notes.append(round.round)
        self.frames += frame
        if self.fail == round.round:
            raise ValueError("no more")
        return round.round == self.stop

    def on_end(self, result: Result | None) -> None:
        self.notes.append(("end", result and result.stopped))
        if self.fail == "end":
            raise ValueError("no end")


@pytest.mark.parametrize("folder", [True, False])
def test_callbacks_are_told_of_start_rounds_and_end(scenario: Scenario, tmp_path: Path, folder: bool) -> None:
    first, second = Notes(), Notes()
    result = fedslot.run(scenario, tmp_path / "run" if folder else None, callbacks=[first, second])
    told = [("start", "push-pull", 0, "run" if folder else None), 0, 1, 2, 3, 4, ("end", False)]
    assert first.notes == second.notes == told
    assert [event.slot for event in first.frames] == result.frames["slot"].tolist()
    without = Notes()
    fedslot.run(scenario, callbacks=[without], frames=False)
    assert without.frames == first.frames, "callbacks see frames, whether they are kept or not"


def test_a_stopped_run_goes_on_where_it_was(scenario: Scenario, tmp_path: Path) -> None:
    whole = fedslot.run(scenario)
    stopper = Notes(stop=1)
    stopped = fedslot.run(scenario, tmp_path / "run", callbacks=[stopper, Notes()])
    assert (len(stopped.rounds), stopped.stopped, stopped.summary()["stopped_by"]) == (2, True, "callback")
    assert not stopped.finished
    assert stopper.notes[-1] == ("end", True)
    assert not (tmp_path / "run" / "summary.json").exists(), "as after an interruption"
    again = Notes()
    result = fedslot.run(scenario, tmp_path / "run", resume=True, callbacks=[again])
    assert again.notes[:2] == [("start", "push-pull", 2, "run"), 2]
    assert (result.stopped, result.finished) == (False, True)
    pd.testing.assert_frame_equal(result.rounds.drop(columns="seconds"), whole.rounds.drop(columns="seconds"))
    pd.testing.assert_frame_equal(result.frames, whole.frames)


def test_a_stop_after_the_last_round_stops_nothing(scenario: Scenario, tmp_path: Path) -> None:
    result = fedslot.run(scenario, tmp_path / "run", callbacks=[Notes(stop=4)])
    assert not result.stopped
    assert (tmp_path / "run" / "summary.json").exists()


def test_only_true_stops(scenario: Scenario) -> None:
    class Chatty(Callback):
        def on_round(self, round: Round, frame: Sequence[Event]) -> bool:
            return "go on"  # type: ignore[return-value]

    assert len(fedslot.run(scenario, callbacks=[Chatty()]).rounds) == 5


@pytest.mark.parametrize("fail", ["start", 2, "end"])
def test_an_error_ends_the_run_and_names_the_callback(scenario: Scenario, tmp_path: Path, fail: object) -> None:
    """The others hear of the end, and the run can be continued."""
    first, last = Notes(), Notes()
    with pytest.raises(ValueError, match="no") as caught:
        fedslot.run(scenario, tmp_path / "run", callbacks=[first, Notes(fail=fail), last])
    method = f"on_{fail if isinstance(fail, str) else 'round'}"
    assert caught.value.__notes__ == [f"raised by the callback Notes, {method}"]
    assert first.notes[-1] == ("end", False if fail == "end" else None)
    assert last.notes[-1:] == ([] if fail == "start" else first.notes[-1:])
    assert (tmp_path / "run").exists() == (fail != "start")
    whole, resumed = fedslot.run(scenario), fedslot.run(scenario, tmp_path / "run", resume=True)
    pd.testing.assert_frame_equal(resumed.rounds.drop(columns="seconds"), whole.rounds.drop(columns="seconds"))


def test_an_error_at_the_end_does_not_hide_that_of_the_run(scenario: Scenario) -> None:
    class Spiteful(Notes):
        def on_end(self, result: Result | None) -> None:
            raise OSError("the disk is full")

    with pytest.raises(ValueError, match="no more") as caught:
        fedslot.run(scenario, callbacks=[Spiteful(fail=1)])
    assert caught.value.__notes__ == ["raised by the callback Spiteful, on_round", "then OSError: the disk is full"]


def test_ctrl_c_in_a_run_is_told(scenario: Scenario) -> None:
    class Interrupt(Callback):
        def on_round(self, round: Round, frame: Sequence[Event]) -> None:
            raise KeyboardInterrupt

    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario, callbacks=[notes, Interrupt()])
    assert notes.notes[-1] == ("end", None)


@pytest.mark.parametrize("wrong", [print, Notes, None, 3])
def test_what_is_no_callback_is_refused(scenario: Scenario, tmp_path: Path, wrong: object) -> None:
    with pytest.raises(InputError, match=r"callbacks: .* objects with on_start, on_round, on_end"):
        fedslot.run(scenario, tmp_path / "run", callbacks=[wrong])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()
