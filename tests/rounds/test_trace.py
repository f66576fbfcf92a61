"""The trace of frames: what happened in each slot, as the rows of the rounds count it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedslot
from fedslot.access.channels import CHANNELS, Collision, make_channel
from fedslot.access.frame import draw_backlogged, play
from fedslot.messages import Attempts, Grant, Merit, Receipt
from fedslot.rounds.trace import EVENTS, MOST_IDLE, MOST_ROWS, trace_frame
from fedslot.runs.records import frame_table
from fedslot.strategies import STRATEGIES
from fedslot.support.errors import RefusedError


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_a_frame_by_hand() -> None:
    """Seven slots: 4 and 2 are pulled, 2 in vain; 9 and 8 collide in slot 3, 7 is received in 5, 6 barred; 4 is old."""
    attempts = Attempts(_ues(9, 7, 8), np.array([[3, 0], [5, 0], [3, 6]]), _ues(6))
    receipt = Receipt(_ues(4), _ues(1), _ues(7), _ues(5), _ues(9, 8), _ues(2), 7, attempts=attempts)
    receipt = replace(receipt, wasted_slots=_ues(2), versions=_ues(1, 3))
    value = np.array([-np.inf] * 7 + [0.5, 0.25, -np.inf])
    assert [tuple(event) for event in trace_frame(3, receipt, value=value, update_values=np.array([0.75, -0.5]))] == [
        (3, 0, "barred", 6, None, None, None, None),
        (3, 1, "pulled", 4, None, None, 0.75, 2),
        (3, 2, "wasted", 2, None, None, None, None),
        (3, 3, "collided", 8, 0.25, None, None, None),
        (3, 3, "collided", 9, None, None, None, None),
        (3, 4, "idle", None, None, None, None, None),
        (3, 5, "pushed", 7, 0.5, None, -0.5, 0),
        (3, 6, "collided", 8, 0.25, None, None, None),
        (3, 7, "idle", None, None, None, None, None),
    ]


@pytest.mark.parametrize("name", CHANNELS)
@given(st.data())
def test_events_are_what_the_receipt_counts(name: str, data: st.DataObject) -> None:
    ues, slots = data.draw(st.integers(1, 15)), data.draw(st.integers(0, 10))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pull = rng.permutation(ues)[: data.draw(st.integers(0, min(ues, slots)))]
    backlogged = draw_backlogged(data.draw(st.integers(0, ues - len(pull))), ues, pull, rng)
    ready = data.draw(st.sampled_from([None, rng.random(ues) * 12]))
    merit = data.draw(st.sampled_from([None, Merit("samples", least=0.5)]))
    grant = Grant(pull, data.draw(st.booleans()), data.draw(st.sampled_from([1.0, 0.5])), merit=merit)
    own = {"samples": rng.random(ues).__getitem__}
    receipt = play(grant, slots, backlogged, ready, make_channel(name), rng, rng, own)
    frame = frame_table(trace_frame(0, receipt))
    by_event = {event: frame[frame["event"] == event] for event in EVENTS}

    def who(event: str) -> list[int]:
        return sorted(set(by_event[event]["ue"].dropna()))

    assert who("pulled") == sorted(receipt.pulled)
    assert by_event["pulled"]["slot"].tolist() == sorted(receipt.pull_slots)
    assert who("wasted") == sorted(receipt.wasted)
    assert all(pull[slot - 1] == ue for slot, ue in by_event["wasted"][["slot", "ue"]].to_numpy())
    assert who("pushed") == sorted(receipt.pushed)
    assert who("collided") == sorted(receipt.collided)
    if grant.push:
        assert len(by_event["idle"]) == receipt.idle_slots
    assert set(frame["slot"]) - {0} == set(range(1, slots + 1)), "each slot has an event"
    assert frame["slot"].is_monotonic_increasing
    # everyone who was ready in time and could have contended, did so or was barred
    silent = set(backlogged.tolist()) - {*receipt.pushed, *receipt.collided}
    opened = grant.push and len(pull) < slots
    assert set(who("barred")) == {ue for ue in silent if opened and (ready is None or ready[ue] <= slots - 1)}
    assert set(by_event["barred"]["slot"]) <= {0}


def test_the_size_of_a_frame_is_bounded() -> None:
    crowd, rng = np.arange(1, 5000), np.random.default_rng(0)
    for probability in (0.0, 0.5, 1.0):
        receipt = play(Grant(_ues(0), True, probability), 3, crowd, None, Collision(), rng, rng)
        frame = frame_table(trace_frame(0, receipt))
        assert frame.groupby("slot").size().max() == MOST_ROWS
        assert set(frame["slot"]) | {0} == {0, 1, 2, 3}
    receipt = play(Grant(_ues(0), True), 10**6, _ues(*range(1, 9)), None, Collision(), rng, rng)
    events = trace_frame(0, receipt)
    assert [sum(event.event == name for event in events) for name in ("pulled", "pushed", "idle")] == [1, 8, MOST_IDLE]


SMALL = {"rounds": 4, "data.ues": 30, "training.epochs": 1, "strategy.warmup": 1, "push.probability": 0.7}


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=4)
@given(channel=st.sampled_from(sorted(CHANNELS)), late=st.booleans(), seed=st.integers(0, 1000))
def test_frames_agree_with_rounds(strategy: str, channel: str, late: bool, seed: int) -> None:
    """For every strategy and channel: the counts of `rounds.csv` are those of the trace."""
    changes: dict[str, Any] = {"strategy.name": strategy, "push.channel": channel, "seed": seed}
    if late:
        changes["fleet.computing"] = {"slot": 3e-4, "redraw": True}
    result = fedslot.run(fedslot.Scenario.load("quickstart", {**SMALL, **changes}))
    frames = result.frames
    assert list(frames.columns) == ["round", "slot", "event", "ue", "value", "noise", "update_value", "staleness"]
    assert (frames["event"].cat.categories.tolist(), str(frames["ue"].dtype)) == (list(EVENTS), "Int64")

    def count(*events: str) -> list[int]:
        chosen = frames[frames["event"].isin(events)]
        return chosen.groupby("round")["ue"].nunique().reindex(result.rounds["round"], fill_value=0).tolist()

    for column, events in {
        "pulled": ["pulled"],
        "wasted": ["wasted"],
        "push_received": ["pushed"],
        "collided": ["collided"],
        "contenders": ["pushed", "collided"],
    }.items():
        assert count(*events) == result.rounds[column].tolist(), column
    assert frames.groupby("round")["slot"].max().tolist() == result.rounds["slots"][result.rounds["slots"] > 0].tolist()
    assert set(frames.loc[frames["event"] == "idle", "ue"].isna()) <= {True}
    _check_known(result, frames)


def test_values_of_updates_are_those_before_smoothing() -> None:
    """Smoothing them again, value <- (value + new) / 2, gives the values that the trace shows beside them."""
    result = fedslot.run(fedslot.Scenario.load("quickstart", {**SMALL, "rounds": 8, "strategy.memory": 0.5}))
    received = result.frames[result.frames["event"].isin(["pulled", "pushed"])]
    assert result.frames["update_value"].notna().sum() == len(received)
    smoothed: dict[int, float] = {}
    for row in received.itertuples():
        smoothed[row.ue] = (smoothed.get(row.ue, row.update_value) + row.update_value) / 2
        assert smoothed[row.ue] == pytest.approx(row.value)
    assert len(received) > len(smoothed)


def _check_known(result: fedslot.Result, frames: pd.DataFrame) -> None:
    """The value and the noise of each UE in the last frame are those of the strategy's last state."""
    last = frames[(frames["round"] == frames["round"].max()) & frames["ue"].notna()]
    for column, name in {"value": "value", "noise": "noise"}.items():
        known = getattr(result.state, name, None)
        if known is None:
            assert frames[column].isna().all()
            continue
        expected = np.where(result.state.seen > 0, known, np.nan)[last["ue"].to_numpy(dtype=int)]
        assert np.array_equal(last[column], expected, equal_nan=True)


def test_the_filters_noise_estimates_are_traced() -> None:
    scenario = fedslot.Scenario.load("quickstart", {**SMALL, "aggregation.name": "filtered"})
    frames = fedslot.run(scenario).frames
    received = frames["event"].isin(["pulled", "pushed"])
    assert frames.loc[received, ["value", "noise"]].notna().all(axis=None)


class Curious(STRATEGIES.find("push-pull")):  # type: ignore[misc]
    """A strategy that looks for what a receiver cannot know."""

    def observe(self, state: Any, receipt: Receipt, values: Any) -> Any:
        assert receipt.attempts is None
        return super().observe(state, receipt, values)


def test_strategies_do_not_see_attempts() -> None:
    fedslot.run(fedslot.Scenario.load("quickstart", {**SMALL, "strategy.name": Curious}))


@pytest.mark.parametrize("known", [3, {"merit": np.zeros(30)}, {"value": np.zeros(3)}, {"value": [0.0] * 30}])
def test_what_a_state_of_ones_own_tells_is_checked(known: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedslot.Ledger, "traced", lambda self: known)
    with pytest.raises(RefusedError, match=r"round 0: the state of strategy push-pull must return from traced\(\)"):
        fedslot.run(fedslot.Scenario.load("quickstart", SMALL))


def test_frames_can_be_switched_off(tmp_path: Path) -> None:
    scenario = fedslot.Scenario.load("quickstart", SMALL)
    assert fedslot.run(scenario, frames=False).frames is None
    without = fedslot.run(scenario, tmp_path / "run", frames=False)
    assert without.frames is None
    assert not (tmp_path / "run" / "frames.csv").exists()
    seconds = without.rounds.drop(columns="seconds")
    pd.testing.assert_frame_equal(fedslot.run(scenario).rounds.drop(columns="seconds"), seconds)
    # a run goes on as it began
    longer = scenario.replace({"rounds": 6})
    assert fedslot.run(longer, tmp_path / "run", resume=True).frames is None
    fedslot.run(scenario, tmp_path / "other")
    went_on = fedslot.run(longer, tmp_path / "other", resume=True, frames=False).frames
    assert sorted(set(went_on["round"])) == list(range(6))


def test_comparisons_keep_frames_and_sweeps_do_not(tmp_path: Path) -> None:
    scenario = fedslot.Scenario.load("quickstart", {**SMALL, "rounds": 2})
    assert fedslot.compare(scenario, ["fedavg"], 1, workers=1).runs["fedavg"][0].frames is not None
    grid = {"frame.pull": [2]}
    assert fedslot.sweep(scenario, grid, 1, workers=1).runs[0].frames is None
    assert fedslot.sweep(scenario, grid, 1, workers=1, frames=True).runs[0].frames is not None
