"""Whom the PS pulls in which slot: the rule against brute force, and what it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access.order import PUSHED, Forecast
from fedslot.messages import Grant, Receipt

NOBODY = np.empty(0, dtype=np.int64)
needs = st.lists(st.integers(0, 120).map(lambda quarters: quarters / 4), min_size=1, max_size=5)


def forecast(need: list[float], asynchronous: bool = False) -> Forecast:
    blank = Forecast.blank(len(need), computes=True, asynchronous=asynchronous)
    return replace(blank, need=np.array(need), reported=~np.isnan(need))


def receipt(**fields: object) -> Receipt:
    plain = {"pulled": NOBODY, "pull_slots": NOBODY, "pushed": NOBODY, "push_slots": NOBODY, "collided": NOBODY}
    return Receipt(**{**plain, "wasted": NOBODY, "slots": 6, **fields})  # type: ignore[arg-type]


@given(needs, st.integers(0, 4), st.booleans())
def test_a_frame_yields_the_most_updates_per_slot(need: list[float], rest: int, push: bool) -> None:
    """Against all orders of all subsets, each with the shortest wait with which all of its UEs are ready."""
    ues, most = len(need), len(need) + rest
    grant = Grant(np.arange(ues), push=push, slots=most)
    arranged = forecast(need).arrange(grant, 10, most, 1, 1)

    def rate(pull: tuple[int, ...]) -> float:
        wait = max([0, *(math.ceil(need[ue] - slot) for slot, ue in enumerate(pull))])
        length = wait + len(pull) + rest
        if length == 0:
            return 0.0
        ready = sum(time <= length for time in need) / ues
        return (len(pull) + push * PUSHED * rest * ready) / (1 + length)

    best = max(rate(pull) for count in range(ues + 1) for pull in permutations(range(ues), count))
    assert rate(tuple(arranged.pull.tolist())) == pytest.approx(best)
    # nobody is pulled who is not ready, and nobody is forgotten
    begins = arranged.wait + np.arange(len(arranged.pull))
    assert (np.array(need)[arranged.pull] <= begins).all()
    assert arranged.slots == len(arranged.pull) + rest
    assert arranged.late is not None
    assert sorted([*arranged.pull, *arranged.late]) == list(range(ues))


@given(needs, st.booleans())
def test_without_computing_times_the_order_of_the_strategy_stays(need: list[float], asynchronous: bool) -> None:
    ues = len(need)
    known = Forecast.blank(ues, computes=False, asynchronous=asynchronous)
    pull = np.random.default_rng(ues).permutation(ues)
    for push in (False, True):
        grant = Grant(pull, push=push)
        arranged = known.arrange(grant, 3, ues + 2, 1, 1)
        assert arranged.pull.tolist() == pull.tolist()
        assert (arranged.slots, arranged.wait) == (None, 0)


def test_slower_ues_come_later_and_unknown_ones_count_as_slow() -> None:
    known = forecast([3.0, 0.0, 1.0, math.nan, 2.0])
    arranged = known.arrange(Grant(np.arange(5)), 0, 8, 1, 1)
    assert arranged.pull.tolist() == [1, 2, 4, 3, 0]
    assert arranged.wait == 0


def test_slots_may_be_shorter_than_those_of_time() -> None:
    """Four uplink slots take one slot of time."""
    arranged = forecast([0.0, 0.25, 0.5, 0.75]).arrange(Grant(np.array([3, 2, 1, 0])), 0, 4, 0.25, 1)
    assert arranged.pull.tolist() == [0, 1, 2, 3]
    assert arranged.wait == 0


def test_reports_and_vain_pulls_are_learned() -> None:
    blank = Forecast.blank(4, computes=True, asynchronous=False)
    first = receipt(pulled=np.array([1]), pull_slots=np.array([3]), computing=np.array([2.5]))
    learned = blank.learn(replace(first, wasted=np.array([2]), wasted_slots=np.array([5])), start=1)
    # UE 2 was not ready 4 slots after the downlink
    assert learned.need.tolist()[1:3] == [2.5, 9.0]
    assert np.isnan(learned.need[[0, 3]]).all()
    assert learned.reported.tolist() == [False, True, False, False]
    again = receipt(pulled=np.array([1, 2]), pull_slots=np.array([1, 2]), computing=np.array([1.5, 6.0]))
    learned = learned.learn(again, start=1)
    assert learned.need[2] == 6.0  # a report replaces what was only a bound
    assert 1.5 < learned.need[1] < 2.5
    assert learned.learn(replace(again, computing=np.array([8.0, 6.0])), start=1).need[1] == 8.0


@given(st.floats(0.1, 500), st.integers(1, 20))
def test_a_late_ue_is_found_after_few_vain_pulls(time: float, slots: int) -> None:
    """Each vain pull doubles what is expected, so that their number grows with the logarithm of the time."""
    known, vain = Forecast.blank(1, computes=True, asynchronous=False), 0
    for _ in range(20):
        arranged = known.arrange(Grant(np.array([0]), slots=1), 0, slots, 1, 1)
        if arranged.wait >= time:
            break
        vain += 1
        known = known.learn(receipt(wasted=np.array([0]), wasted_slots=np.array([1]), wait=arranged.wait), start=0)
    assert vain <= 1 + math.log2(time + 1)


def test_ordered_ues_are_pulled_in_the_first_frame_by_which_they_are_due() -> None:
    known = forecast([0.0, 7.0, 3.0, 40.0], asynchronous=True)
    grant = Grant(np.arange(4), push=True, slots=6)
    first = known.arrange(grant, 10, 20, 1, 1)
    assert first.order is not None
    assert (first.order.tolist(), first.pull.tolist(), first.slots, first.wait) == ([0, 1, 2, 3], [0], 3, 0)
    known = known.learn(receipt(pulled=np.array([0]), pull_slots=np.array([1]), order=first.order), start=10)
    assert known.away.tolist() == [1, 2, 3]
    second = known.arrange(grant, 13, 20, 1, 1)
    assert second.order is not None
    assert (second.order.tolist(), second.pull.tolist()) == ([0], [2, 0])
    third = known.arrange(grant, 17, 20, 1, 1)
    assert third.pull.tolist() == [1, 2, 0]
    # without push slots, the PS may wait for as long as the pulls that the strategy wanted would take
    only_pull = known.arrange(Grant(np.array([3]), slots=1), 13, 20, 1, 1)
    assert (only_pull.pull.tolist(), only_pull.wait) == ([2], 0)
    known = known.learn(receipt(pulled=np.array([2]), pull_slots=np.array([1])), start=10)
    due = known.arrange(Grant(np.array([2, 1]), slots=2), 15, 20, 1, 1)  # UE 1 is due at 17
    assert (due.pull.tolist(), due.slots, due.wait) == ([], 1, 1)
    due = known.arrange(Grant(np.array([2, 1]), slots=2), 16, 20, 1, 1)
    assert (due.pull.tolist(), due.slots, due.wait) == ([1], 1, 1)
    idle = known.arrange(Grant(np.array([3, 1]), slots=2), 13, 20, 1, 1)  # all are on order, and nobody is ordered
    assert (idle.pull.tolist(), idle.slots, idle.wait) == ([1], 1, 4)


def test_no_more_are_ordered_than_frames_can_receive() -> None:
    known = forecast([5.0] * 40, asynchronous=True)
    known = known.learn(receipt(order=np.arange(18)), start=0)
    grant = Grant(np.arange(20, 40), slots=20)
    arranged = known.arrange(grant, 2, 20, 1, 1)
    assert arranged.order is not None
    assert len(arranged.order) == 20
    arranged = known.arrange(grant, 5, 20, 1, 1)
    assert arranged.order is not None
    assert (arranged.order.tolist(), arranged.pull.tolist()) == ([20, 21], [*range(18), 20, 21])
