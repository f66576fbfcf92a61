"""Expectations from generating functions against counts in integers and the recursion over slots."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from collision_counts import last_slot_counts
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedslot.planning.collision import last_slot_at_most, push_moments, received_mean, received_pmf
from fedslot.planning.period import PushPeriod


def moments(slots: int, contenders: int, probability: float = 1.0) -> tuple[float, float]:
    _, last, nothing = push_moments(np.array([float(slots)]), number(contenders), np.array([probability]))
    return float(last[0]), float(nothing[0])


def number(contenders: int) -> np.ndarray:
    """The distribution of a given number."""
    return np.eye(1, contenders + 1, contenders)[0]


# around 2000 contenders the circle is cut off; with many more contenders than slots nearly nothing is received
@pytest.mark.parametrize(
    ("slots", "contenders"),
    [(1, 1), (1, 2), (2, 2), (4, 3), (20, 1), (20, 200), (20, 400), (100, 30), (200, 200), (300, 2000), (300, 2001),
     (400, 2001), (1000, 3), (700, 2500)],
)  # fmt: skip
def test_the_integers_agree(slots: int, contenders: int) -> None:
    last, nothing = moments(slots, contenders)
    counts, outcomes = last_slot_counts(slots, contenders), slots**contenders
    total = sum(slot * count for slot, count in enumerate(counts))
    assert last == pytest.approx(total / outcomes, rel=1e-11)
    assert nothing == pytest.approx(counts[0] / outcomes, abs=1e-12)
    below = [count / outcomes for count in accumulate(counts)]
    found = last_slot_at_most(np.arange(slots + 1), slots, number(contenders), 1.0)
    assert found == pytest.approx(np.array(below), abs=1e-12)


@given(st.integers(0, 12), st.integers(0, 40), st.floats(0, 1))
@example(1, 5, 2.2e-308)
@example(12, 40, 1e-306)
@settings(max_examples=60)
def test_the_recursion_over_slots_agrees(slots: int, contenders: int, probability: float) -> None:
    ready = tuple(float(slot == 0) for slot in range(slots))  # all are ready for the first slot
    push, crowd = PushPeriod(slots, contenders, probability, ready), number(contenders)
    last, nothing = moments(slots, contenders, probability)
    assert last == pytest.approx(push.last_slot_mean, rel=1e-9, abs=1e-12)
    assert nothing == pytest.approx(push.nothing_probability, abs=1e-11)
    assert received_mean(slots, crowd, probability) == pytest.approx(push.received_mean, rel=1e-10, abs=1e-12)
    assert received_pmf(slots, crowd, probability) == pytest.approx(push.received_pmf, abs=1e-11)
    found = last_slot_at_most(np.arange(slots + 1), slots, crowd, probability)
    assert found == pytest.approx(push.last_slot_cdf, abs=1e-11)


@pytest.mark.parametrize("slots", [10**6, 10**9])
def test_many_slots_agree_with_what_they_tend_to(slots: int) -> None:
    # with ten contenders in very many slots nearly all are received, and the last of ten uniform slots is at 10/11
    assert moments(slots, 10)[0] == pytest.approx(slots * 10 / 11, rel=1e-4)
    # with one contender a slot, each slot is received with probability 1/e, so the last one is e - 1 before the end
    if slots == 10**6:
        assert slots - moments(slots, slots)[0] == pytest.approx(np.e - 1, abs=1e-4)


def test_all_numbers_of_slots_at_once_are_as_one_by_one() -> None:
    slots, probability = np.arange(0, 700.0), np.linspace(0.5, 1, 700)
    _, last, nothing = push_moments(slots, number(12), probability)
    for i in (0, 1, 2, 255, 256, 257, 699):
        one = moments(int(slots[i]), 12, float(probability[i]))
        assert (last[i], nothing[i]) == pytest.approx(one, rel=1e-11, abs=1e-13)
