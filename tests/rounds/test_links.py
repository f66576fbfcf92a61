"""Runs over links that are slow, lose updates, or must be silent, with updates and models that are compressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedslot
from fedslot import Scenario
from fedslot.support.errors import RefusedError

BITS = {"compression": {"name": "quantise", "options": {"bits": 2}}}
SLOW = {"radio.rates": {"name": "disc"}, "radio.outage": 0.1, "radio.duty_cycle": 0.2}


@pytest.fixture
def cell() -> Scenario:
    fields: dict[str, Any] = {"rounds": 12, "data.ues": 20, "frame": {"slots": 6, "pull": 3}, "push.contenders": 4}
    return Scenario.load("quickstart", {**fields, "training.epochs": 1, "strategy.warmup": 2})


def test_a_slot_is_as_long_as_a_compressed_update(cell: Scenario) -> None:
    """The costs are those of an uncompressed run at the same outcome of its frames, with other lengths of slots."""
    plain, compressed = fedslot.run(cell), fedslot.run(cell.replace(BITS))
    network = plain.module()
    shapes = [tuple(tensor.shape) for tensor in network.state_dict().values()]
    most = cell.replace(BITS).compression.make().most_bytes(shapes)
    length = 8 * most / (32 * sum(map(np.prod, shapes)))
    assert 1 / 16 < length < 1.1 / 16
    first = [result.rounds[:2] for result in (plain, compressed)]  # where values do not decide yet
    assert first[0]["cost_frame"].tolist() == [7, 7]
    assert first[1]["cost_frame"].tolist() == pytest.approx([1 + 6 * length] * 2)
    assert first[1]["cost_sum"].tolist() == pytest.approx([6 + 21 * length] * 2)
    assert first[1]["bits"].tolist() == [6 * 8 * most] * 2
    assert plain.rounds["cost_max"].dtype.kind == "i"
    assert plain.rounds["bits"].equals((plain.rounds["pulled"] + plain.rounds["push_received"]) * 32 * plain.model.size)


def test_a_budget_holds_more_short_frames(cell: Scenario) -> None:
    budget = {"time_budget": 30, "rounds": 1000, "cost_rule": "frame"}
    plain, compressed = (fedslot.run(cell.replace({**budget, **more})) for more in ({}, BITS))
    assert len(plain.rounds) == 4
    assert len(compressed.rounds) == int(30 / compressed.rounds["cost_frame"].iloc[-1])
    assert 29 - 2 < compressed.slots_spent <= 30
    assert compressed.summary()["stopped_by"] == "time_budget"


def test_the_model_may_be_compressed_for_the_downlink(cell: Scenario) -> None:
    quantised = {"broadcast_compression": {"name": "quantise", "options": {"bits": 8}}}
    plain, short = (fedslot.run(cell.replace({**BITS, **more})) for more in ({}, quantised))
    ratio = (short.rounds["cost_frame"].iloc[0] - 6 / 16) / (plain.rounds["cost_frame"].iloc[0] - 6 / 16)
    assert 8 / 32 < ratio < 9 / 32
    assert abs(short.final_accuracy - plain.final_accuracy) < 0.2
    assert not np.array_equal(short.model, plain.model)


def test_seconds_and_joules_follow_the_lengths_of_slots(cell: Scenario) -> None:
    radio = {"radio.slot_seconds": 0.5, "radio.send_joules": 1.0, "radio.listen_joules": 0.25}
    result = fedslot.run(cell.replace({**BITS, **radio, "cost_rule": "frame"}))
    uplink = (result.rounds["cost_frame"].iloc[0] - 1) / 6
    assert result.rounds["air_seconds"].tolist() == pytest.approx((0.5 * result.rounds["cost_frame"]).tolist())
    sent = result.rounds["pulled"] + result.rounds["contenders"]
    assert result.rounds["joules"].tolist() == pytest.approx((20 * 0.25 + sent * uplink * 1.0).tolist())
    assert result.joules_by_ue().sum() == pytest.approx(result.rounds["joules"].sum())


@pytest.mark.parametrize("strategy", ["push-pull", "greedy-shap", "merit-push"])
def test_a_run_over_bad_links_is_continued_to_the_identical_result(
    cell: Scenario, tmp_path: Path, strategy: str
) -> None:
    fields = {**BITS, **SLOW, "compression.feedback": True, "strategy.name": strategy}
    scenario = cell.replace({**fields, "broadcast_compression": {"name": "quantise", "options": {"bits": 10}}})
    once = fedslot.run(scenario, tmp_path / "once")
    fedslot.run(scenario.replace({"rounds": 5}), tmp_path / "twice")
    twice = fedslot.run(scenario, tmp_path / "twice", resume=True)
    assert once.rounds.drop(columns="seconds").equals(twice.rounds.drop(columns="seconds"))
    assert once.frames.equals(twice.frames)
    assert np.array_equal(once.model, twice.model)
    assert fedslot.load(tmp_path / "once").slots_spent == once.slots_spent


def test_updates_are_lost_as_often_as_said(cell: Scenario) -> None:
    rounds = fedslot.run(cell.replace({"radio.outage": 0.3, "rounds": 60, "strategy.name": "fedavg"})).rounds
    granted = rounds["pulled"] + rounds["lost"]
    assert (granted == 6).all()
    assert abs(rounds["lost"].sum() - 0.3 * 360) < 4 * (360 * 0.3 * 0.7) ** 0.5


def test_a_duty_cycle_keeps_ues_silent(cell: Scenario) -> None:
    """After a transmission of one slot at 5%, a UE sends again in a frame that begins 19 slots later at the soonest."""
    fields = {"radio.duty_cycle": 0.05, "cost_rule": "frame", "strategy.name": "greedy-shap", "rounds": 40}
    result = fedslot.run(cell.replace(fields))
    began = result.rounds["slots_spent"] - result.rounds["cost_frame"]
    sent = result.frames[result.frames["event"] == "pulled"]
    for _, own in sent.groupby("ue"):
        times = began.to_numpy()[own["round"].to_numpy()]
        assert (np.diff(times) >= 19).all()
    assert sent["ue"].nunique() == 20  # others take the slots of those that are silent


def test_slow_ues_take_several_slots(cell: Scenario) -> None:
    """At half of the rate, six slots hold three updates; the UEs that a full pass leaves out come later."""
    half = {"radio.rates": {"name": "equal", "options": {"rate": 0.5}}, "strategy.name": "greedy-shap"}
    result = fedslot.run(cell.replace({**half, "rounds": 12, "strategy.warmup": None}))
    assert (result.rounds["pulled"] == 3).all()
    assert (result.rounds["cost_max"] == 7).all()
    pulled = result.frames[result.frames["event"] == "pulled"]
    assert (pulled.groupby(["round", "ue"]).size() == 2).all()
    assert pulled["ue"].nunique() == 20


def test_short_frames_make_room_for_slow_ues(cell: Scenario) -> None:
    half = {"radio.rates": {"name": "equal", "options": {"rate": 0.5}}, "strategy.name": "scout"}
    rounds = fedslot.run(cell.replace({**half, "aggregation.name": "filtered"})).rounds
    assert (rounds["slots"] == 2 * rounds["pulled"]).all()


def test_training_that_diverges_says_so_with_compression_too(cell: Scenario) -> None:
    wild = {"fleet.noise": 1e6, "training.lr": 1e6, "rounds": 5}
    for more in ({}, BITS):
        with pytest.raises(RefusedError, match="training diverged"):
            fedslot.run(cell.replace({**wild, **more}))
