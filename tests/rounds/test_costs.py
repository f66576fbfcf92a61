"""Seconds, joules, budgets and cost rules of whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedslot
from fedslot import Receipt, Scenario
from fedslot.access import plan
from fedslot.access.clock import radio_of
from fedslot.support.errors import InputError, RefusedError

RADIO = {"slot_seconds": 0.01, "send_joules": 0.002, "listen_joules": 0.0005}
COMPUTING = {"fleet.computing": {}, "radio.slot_seconds": None, "radio.compute_joules": 0.5}


@pytest.fixture
def cell() -> Scenario:
    fields: dict[str, Any] = {"rounds": 12, "data.ues": 12, "frame": {"slots": 6, "pull": 2}, "push.contenders": 5}
    quick = {"strategy": {"name": "push-pull", "warmup": 0}, "training.epochs": 1, "radio": RADIO}
    return Scenario.load("quickstart", {**fields, **quick})


def times(receipt: Receipt, *, factor: int = 2) -> int:
    return factor * (1 + receipt.slots)


def none_at_all(receipt: Receipt) -> int:
    return 0


def test_a_run_agrees_with_the_plan_of_its_scenario(cell: Scenario) -> None:
    """Mean seconds and joules of a frame are within 4 standard errors of those that the planner expects."""
    scenario = cell.replace({"rounds": 60})
    rounds = fedslot.run(scenario, frames=False).rounds
    usage = radio_of(scenario, [(1,)]).usage(plan(6, 5, pulls=[2], ues=12).best, listeners=12)
    error = rounds["air_seconds"].std() / len(rounds) ** 0.5
    assert abs(rounds["air_seconds"].mean() - usage.clock_seconds) < 4 * error
    assert rounds["joules"].tolist() == pytest.approx([usage.energy_mj / 1000] * 60)  # two pulls, five contenders


def test_the_joules_of_each_ue_are_those_of_its_frames(cell: Scenario, tmp_path: Path) -> None:
    result = fedslot.run(cell, tmp_path)
    sent = result.frames["ue"][result.frames["event"].isin(["pulled", "pushed", "collided"])].value_counts()
    by_hand = [12 * 0.0005 + 0.002 * sent.get(ue, 0) for ue in range(12)]
    assert result.joules_by_ue() == pytest.approx(by_hand)
    loaded = fedslot.load(tmp_path)
    assert loaded.summary()["joules"] == pytest.approx(sum(by_hand))
    assert loaded.summary()["air_seconds"] == pytest.approx(0.01 * result.slots_spent)
    assert fedslot.run(cell.replace({"radio.send_joules": None, "radio.listen_joules": None})).joules_by_ue() is None


def test_computing_times_give_seconds_and_joules(cell: Scenario) -> None:
    result = fedslot.run(cell.replace({**COMPUTING, "push.contenders": "ready"}))
    assert result.rounds["air_seconds"].sum() == pytest.approx(0.1 * result.slots_spent)
    joules = result.joules_by_ue()
    assert joules.sum() == pytest.approx(result.rounds["joules"].sum())
    assert result.frames["event"].eq("wasted").any()
    assert joules.sum() > 12 * 12 * 0.0005 + 0.002 * result.frames["event"].isin(["pulled", "pushed"]).sum()


def test_a_budget_of_seconds_is_one_of_slots(cell: Scenario) -> None:
    """Frames begin only if all of their slots fit, whatever the unit."""
    slots, seconds = (fedslot.run(cell.replace(budget)) for budget in ({"time_budget": 40}, {"seconds_budget": 0.4}))
    assert len(slots.rounds) < 12
    assert seconds.rounds["slots_spent"].tolist() == slots.rounds["slots_spent"].tolist()
    assert (slots.summary()["stopped_by"], seconds.summary()["stopped_by"]) == ("time_budget", "seconds_budget")


@pytest.mark.parametrize(
    ("preset", "field", "budget"), [("quickstart", "seconds_budget", 9), ("wifi", "time_budget", 45)]
)
def test_a_budget_that_not_even_the_first_frame_fits_into_is_refused(preset: str, field: str, budget: float) -> None:
    """Of 11 slots of a second; of 40 slots after a downlink of 13."""
    scenario = Scenario.load(preset, {"radio.slot_seconds": 1.0, field: budget})
    with pytest.raises(
        InputError, match=rf"{field}: {budget}.* at least that of the first frame, {11 if budget == 9 else 53}"
    ):
        fedslot.run(scenario)


def test_a_budget_of_joules_ends_with_the_frame_that_uses_it_up(cell: Scenario) -> None:
    whole = fedslot.run(cell).rounds["joules"].cumsum()
    result = fedslot.run(cell.replace({"joules_budget": float(whole[3] + 0.1 * (whole[4] - whole[3]))}))
    assert (len(result.rounds), result.summary()["stopped_by"]) == (5, "joules_budget")


@pytest.mark.parametrize(("field", "short", "long"), [("seconds_budget", 0.2, 0.5), ("joules_budget", 0.03, 0.08)])
def test_a_run_is_continued_to_a_larger_budget(
    cell: Scenario, tmp_path: Path, field: str, short: float, long: float
) -> None:
    part = fedslot.run(cell.replace({field: short}), tmp_path / "a")
    after = fedslot.run(cell.replace({field: long}), tmp_path / "a", resume=True)
    once = fedslot.run(cell.replace({field: long}), tmp_path / "b")
    assert len(part.rounds) < len(after.rounds) < 12
    assert after.rounds.drop(columns="seconds").equals(once.rounds.drop(columns="seconds"))
    with pytest.raises(RefusedError, match="already, more than"):
        fedslot.run(cell.replace({field: short}), tmp_path / "a", resume=True)


def test_a_cost_rule_of_ones_own(cell: Scenario) -> None:
    result = fedslot.run(cell.replace({"cost_rule": times, "time_budget": 45}))
    assert result.rounds["slots_spent"].tolist() == [14, 28, 42]
    assert result.rounds["air_seconds"].tolist() == pytest.approx([0.14] * 3)
    assert result.slots_to(0.0) == 14
    thrice = {"name": times, "options": {"factor": 3}}
    assert fedslot.run(cell.replace({"cost_rule": thrice, "rounds": 2})).rounds["slots_spent"].tolist() == [21, 42]
    with pytest.raises(RefusedError, match="none_at_all returned 0"):
        fedslot.run(cell.replace({"cost_rule": none_at_all}))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seconds_budget": 1.0}, "seconds_budget"),
        ({"joules_budget": 1.0, "radio.slot_seconds": 1.0}, "joules_budget"),
        ({"radio.listen_joules": 1.0}, "radio.listen_joules"),
        ({"radio.downlink_bits": 9.0}, "radio.downlink_bits"),
        ({"radio.send_joules": 1.0, "radio.compute_joules": 1.0}, "radio.compute_joules"),
        ({"radio.slot_seconds": 1.0, "fleet.computing": {}}, "radio.slot_seconds"),
    ],
)
def test_fields_that_need_others_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        Scenario().replace(fields)
    assert refusal.value.field == field


def test_an_update_of_several_radio_slots(cell: Scenario) -> None:
    """The mean seconds of a slot are those of ceil(32 P / b) radio slots."""
    result = fedslot.run(cell.replace({"rounds": 2, "radio.bits_per_slot": 1000.0}))
    update = np.ceil(32 * len(result.model) / 1000)
    assert result.rounds["air_seconds"].tolist() == pytest.approx((update * 0.01 * result.rounds["cost_max"]).tolist())
    assert result.joules_by_ue().sum() == pytest.approx(result.rounds["joules"].sum())
