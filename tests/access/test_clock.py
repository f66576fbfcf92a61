"""Costs, seconds and joules of frames by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access import Radio, plan
from fedslot.access.clock import Clock, cost_frame, cost_max, cost_sum
from fedslot.messages import Attempts, Receipt
from fedslot.support.errors import InputError, RefusedError


@pytest.mark.parametrize(("channel", "copies"), [("collision", 1), ("crdsa", 2)])
def test_what_a_frame_takes_by_hand(channel: str, copies: int) -> None:
    """Each UE of the cell listens to the downlink; each transmission takes as many slots as an update has."""
    radio = Radio(bits=1000, bits_per_slot=300, downlink_bits=150, slot_ms=2.0, send_mj=3.0, listen_mj=0.5)
    split = plan(9, 7, pulls=[4], channel=channel, ready=0.6, frames=50).best
    usage = radio.usage(split, listeners=20)
    assert usage.frame_seconds == pytest.approx((7 + 4 * 9) * 0.002)
    assert usage.clock_seconds == pytest.approx((7 + 4 * (split.expected_cost_max - 1)) * 0.002)
    assert usage.energy_mj == pytest.approx(20 * 7 * 0.5 + (0.6 * 4 + 7 * copies) * 4 * 3.0)
    assert usage.energy_mj_per_update == pytest.approx(usage.energy_mj / split.expected_received)
    assert usage.updates_per_joule == pytest.approx(1000 / usage.energy_mj_per_update)
    assert usage.updates_per_second == pytest.approx(split.expected_received / usage.clock_seconds)


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 10**4), st.integers(0, 10**6))
def test_slots_that_fit(bits: int, rate: int, down: int, slots: int) -> None:
    """Updates fit into their slots with less than one to spare, and frames into their time with less than an update."""
    radio = Radio(bits=bits, bits_per_slot=rate, downlink_bits=down)
    assert (radio.update_slots - 1) * rate < bits <= radio.update_slots * rate
    assert (radio.downlink_slots - 1) * down < bits <= radio.downlink_slots * down
    uplink = radio.uplink_slots_in(slots)
    assert radio.frame_slots(uplink) <= slots < radio.frame_slots(uplink + 1)
    assert radio.uplink_slots_in(radio.frame_slots(slots)) == slots


def test_a_radio_without_rates_has_slots_of_an_update() -> None:
    radio = Radio(slot_ms=10)
    assert (radio.update_slots, radio.downlink_slots, radio.slot_seconds) == (1, 1, 0.01)
    usage = radio.usage(plan(4, 3, pulls=[2]).best, 5)
    assert (usage.frame_seconds, usage.energy_mj, usage.updates_per_joule) == (0.05, None, None)


def test_nothing_received_has_no_cost_per_update() -> None:
    usage = Radio(slot_ms=1, send_mj=1.0).usage(plan(3, 0, pulls=[0]).best, 9)
    assert (usage.updates_per_second, usage.energy_mj, usage.energy_mj_per_update) == (0, 0, None)


def test_a_size_is_scaled_up_to_whole_bits() -> None:
    assert Radio(bits=3, bits_per_slot=2).scaled(0.5).bits == 2
    assert Radio(bits=300, bits_per_slot=10).scaled(0.1).downlink_slots == 30
    assert Radio(bits=3, bits_per_slot=2).scaled(4).update_slots == 6


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"bits": 0}, "bits"),
        ({"bits_per_slot": math.nan}, "bits_per_slot"),
        ({"slot_ms": -1}, "slot_ms"),
        ({"send_mj": math.inf}, "send_mj"),
        ({"listen_mj": -0.1}, "listen_mj"),
        ({"downlink_bits": 5}, "downlink_bits"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        Radio(**fields)
    assert refusal.value.field == field


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("receipt", "costs"),
    [
        # pulls in slots 1 and 3 (the second was wasted), a push in slot 7
        (Receipt(_ues(10, 12), _ues(1, 3), _ues(20), _ues(7), _ues(30, 31), _ues(11), 9), (8, 10, 2 + 4 + 8)),
        # three slots of asking delay every update
        (
            Receipt(_ues(10, 12), _ues(1, 3), _ues(20), _ues(7), _ues(30, 31), _ues(11), 9, overhead=3),
            (11, 13, 5 + 7 + 11),
        ),
        # all 20 slots pull: the bars of the paper's figure are multiples of 230
        (Receipt(np.arange(20), np.arange(1, 21), _ues(), _ues(), _ues(), _ues(), 20), (21, 21, 230)),
        # nothing is received
        (Receipt(_ues(), _ues(), _ues(), _ues(), _ues(1, 2), _ues(3), 5), (1, 6, 0)),
        (Receipt(_ues(), _ues(), _ues(), _ues(), _ues(1, 2), _ues(3), 9, overhead=3), (4, 13, 0)),
    ],
)
def test_costs_by_hand(receipt: Receipt, costs: tuple[int, int, int]) -> None:
    assert (cost_max(receipt), cost_frame(receipt), cost_sum(receipt)) == costs


def _coded() -> Receipt:
    """Pulls of UEs 0 and 1 (2 was not ready); UE 3 is received by one of two copies, UE 4 collides with one."""
    attempts = Attempts(_ues(3, 4), np.array([[4, 5], [4, 0]]), _ues(5))
    return Receipt(
        _ues(0, 1), _ues(1, 2), _ues(3), _ues(5), collided=_ues(4), wasted=_ues(2), slots=6, attempts=attempts
    )


def test_seconds_and_joules_by_hand() -> None:
    """Four radio slots for an update, seven for the downlink, which so lasts 1.75 slots: 7 + 4 * 5 slots of 2 ms."""
    radio = Radio(bits=1000, bits_per_slot=300, downlink_bits=150, slot_ms=2.0, send_mj=3.0, listen_mj=0.5)
    cost = Clock(7, radio=radio).cost(_coded())
    assert (cost.max, cost.frame, cost.sum, cost.spent) == (6.75, 7.75, 2.75 + 3.75 + 6.75, 6.75)
    assert cost.seconds == pytest.approx(27 * 0.002)
    listening, update = 7 * 0.0005, 4 * 0.003
    by_hand = [listening + copies * update for copies in (1, 1, 0, 2, 1, 0, 0)]
    assert cost.joules_by_ue == pytest.approx(by_hand)
    assert cost.joules == pytest.approx(7 * listening + 5 * update)
    by_frames = Clock(7, cost_frame, radio).cost(_coded())
    assert (by_frames.spent, by_frames.seconds) == (7.75, pytest.approx(31 * 0.002))


def test_computing_counts_for_those_that_sent_and_those_that_were_not_ready() -> None:
    """UE 5 was barred and UE 6 took no part; a slot of computing costs 2 J."""
    ready = np.array([0.1, 0.2, 9.0, 0.4, 0.5, 0.6, 0.7])
    cost = Clock(7, radio=Radio(send_mj=0.0), compute_joules=2.0).cost(_coded(), ready)
    assert cost.joules_by_ue == pytest.approx([0.2, 0.4, 18.0, 0.8, 1.0, 0.0, 0.0])
    assert cost.seconds is None


def test_without_a_radio_there_are_neither_seconds_nor_joules() -> None:
    cost = Clock(7).cost(_coded())
    assert (cost.seconds, cost.joules, cost.joules_by_ue) == (None, None, None)


def test_without_uplink_slots_nothing_is_spent() -> None:
    nothing = Receipt(_ues(), _ues(), _ues(), _ues(), _ues(), _ues(), slots=0)
    cost = Clock(3, radio=Radio(slot_ms=1, send_mj=1, listen_mj=1)).cost(nothing)
    assert (cost.max, cost.frame, cost.spent, cost.seconds, cost.joules) == (0, 0, 0, 0.0, 0.0)


@pytest.mark.parametrize("wrong", [0, 1.5, True, None, -3, np.nan])
def test_a_rule_of_ones_own_returns_a_number_of_slots(wrong: object) -> None:
    assert Clock(7, lambda receipt: np.int64(2 * receipt.slots)).cost(_coded()).spent == 12
    with pytest.raises(RefusedError, match="whole number of slots, at least 1"):
        Clock(7, lambda receipt: wrong).cost(_coded())
    with pytest.raises(RefusedError, match="AttributeError"):
        Clock(7, lambda receipt: receipt.nothing).cost(_coded())
