from fractions import Fraction
from itertools import product
from math import comb, perm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access.channels import Collision

CELLS = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 3), (5, 3), (10, 5), (10, 10), (10, 20), (10, 40), (20, 7), (40, 30)]


def _expected_singletons(slots: int, contenders: int) -> Fraction:
    return contenders * Fraction(slots - 1, slots) ** (contenders - 1)


def _expected_last(slots: int, contenders: int) -> Fraction:
    """E[X] of the largest singleton slot, by inclusion and exclusion."""
    return sum(
        (
            (-1) ** (s + 1)
            * comb(slots + 1, s + 1)
            * perm(contenders, s)
            * Fraction((slots - s) ** (contenders - s), slots**contenders)
            for s in range(1, min(slots, contenders) + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(("slots", "contenders"), [(1, 1), (1, 2), (2, 2), (2, 5), (3, 4), (4, 3), (5, 5), (6, 2)])
def test_the_closed_forms_are_those_of_all_outcomes(slots, contenders):
    singletons = last = 0
    for picks in product(range(1, slots + 1), repeat=contenders):
        alone = [slot for slot in picks if picks.count(slot) == 1]
        singletons += len(alone)
        last += max(alone, default=0)
    outcomes = slots**contenders
    assert Fraction(singletons, outcomes) == _expected_singletons(slots, contenders)
    assert Fraction(last, outcomes) == _expected_last(slots, contenders)


@pytest.mark.parametrize(("slots", "contenders"), CELLS)
def test_simulated_means_agree_with_the_closed_forms(slots, contenders):
    """Mean number of singletons and mean last slot of 100,000 frames, within three standard errors."""
    frames = 100_000
    rng = np.random.default_rng([slots, contenders])
    received = Collision().play(np.ones((frames, contenders), dtype=np.int64), slots, rng)
    for simulated, exact in (
        ((received > 0).sum(axis=1), _expected_singletons(slots, contenders)),
        (received.max(axis=1), _expected_last(slots, contenders)),
    ):
        error = simulated.std(ddof=1) / np.sqrt(frames)
        assert abs(simulated.mean() - float(exact)) <= 3 * error


@given(st.data())
def test_no_two_are_received_in_one_slot_and_none_before_its_earliest(data):
    slots = data.draw(st.integers(0, 8))
    contenders, frames = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 6))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    earliest = rng.integers(1, slots + 3, size=(frames, contenders))
    before = earliest.copy()
    received = Collision().play(earliest, slots, rng)
    assert np.array_equal(earliest, before)
    assert received.shape == earliest.shape
    assert np.all((received == 0) | ((received >= earliest) & (received <= slots)))
    for frame in received:
        used = frame[frame > 0]
        assert len(set(used.tolist())) == len(used)


@pytest.mark.parametrize("first", [1, 2, 4, 5])
def test_slots_are_picked_uniformly_from_the_earliest_on(first):
    frames = 20_000
    received = Collision().play(np.full((frames, 1), first), 5, np.random.default_rng(first))
    choices = 5 - first + 1
    counts = np.bincount(received[:, 0], minlength=6)
    assert counts[:first].sum() == 0
    expected = frames / choices
    # chi-square with up to 4 degrees of freedom, one in a thousand
    assert ((counts[first:] - expected) ** 2 / expected).sum() < 18.47


def test_silent_ues_disturb_no_one():
    """One contender among silent ones always gets through; silent ones never do."""
    earliest = np.full((500, 6), 4)
    earliest[:, 2] = 1
    received = Collision().play(earliest, 3, np.random.default_rng(0))
    assert np.all(received[:, 2] > 0)
    assert not np.delete(received, 2, axis=1).any()


def test_late_ues_collide_only_with_those_who_pick_the_same_slot():
    """A UE that may use only the last of L slots is alone unless the other, who may use all, picks that one."""
    frames = 40_000
    received = Collision().play(np.tile([1, 4], (frames, 1)), 4, np.random.default_rng(1))
    both = (received > 0).all(axis=1)
    neither = (received == 0).all(axis=1)
    assert np.all(both | neither)
    assert abs(both.mean() - 3 / 4) < 4 * np.sqrt(3 / 16 / frames)


@pytest.mark.parametrize(("slots", "contenders"), [(0, 5), (5, 0), (0, 0)])
def test_without_slots_or_contenders_nothing_is_received(slots, contenders):
    received = Collision().play(np.ones((3, contenders), dtype=np.int64), slots, np.random.default_rng(0))
    assert received.shape == (3, contenders)
    assert not received.any()
