"""Seconds and joules against frames that are played slot by slot."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access import Radio, make_channel, plan
from fedslot.access.frame import play
from fedslot.messages import Grant
from fedslot.support.errors import InputError


@pytest.mark.parametrize(("channel", "probability"), [("collision", 1.0), ("collision", 0.3), ("irsa", 0.8)])
def test_a_frame_against_trial(channel: str, probability: float) -> None:
    """Each UE of the cell listens to the downlink; each transmission takes as many slots as an update has."""
    frames, slots, pull, contenders, ues, rng = 3000, 9, 4, 7, 20, np.random.default_rng(8)
    radio = Radio(bits=1000, bits_per_slot=300, downlink_bits=150, slot_ms=2.0, send_mj=3.0, listen_mj=0.5)
    split = plan(slots, contenders, pulls=[pull], barring=probability, channel=channel, ready=0.6, frames=20_000).best
    grant, medium = Grant(np.arange(pull), push=True, probability=probability), make_channel(channel)
    received, seconds, energy = [], [], []
    for _ in range(frames):
        ready = np.where(rng.random(pull + contenders) < 0.6, 0.0, math.inf)
        ready[pull:] = 0.0
        receipt = play(grant, slots, np.arange(pull, pull + contenders), ready, medium, rng, rng)
        sent = len(receipt.pulled) + np.count_nonzero(receipt.attempts.slots)
        received.append(len(receipt.received))
        seconds.append((7 + 4 * (receipt.cost_max - 1)) * 0.002)
        energy.append(ues * 7 * 0.5 + sent * 4 * 3.0)
    usage = radio.usage(split, listeners=ues)
    assert usage.frame_seconds == pytest.approx((7 + 4 * slots) * 0.002)
    for expected, found in [(usage.clock_seconds, seconds), (usage.energy_mj, energy)]:
        assert abs(np.mean(found) - expected) < 4.5 * np.std(found) * math.sqrt(1 / frames + 1 / 20_000)
    assert usage.energy_mj_per_update == pytest.approx(usage.energy_mj / split.expected_received)
    assert usage.updates_per_joule == pytest.approx(1000 / usage.energy_mj_per_update)
    assert usage.updates_per_second == pytest.approx(split.expected_received / usage.clock_seconds)
    rate = np.sum(received) / np.sum(seconds)  # in the long run
    assert usage.updates_per_second == pytest.approx(rate, rel=0.03)


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
