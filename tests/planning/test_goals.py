"""Goals against a scan over all frames, or over all numbers of contenders."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedslot.planning import PushPeriod, least_slots, most_contenders, plan
from fedslot.planning.goals import MOST_SLOTS
from fedslot.support.errors import InputError

contenders = st.integers(0, 12) | st.just({0: 0.25, 3: 0.5, 9: 0.25})
barrings = st.sampled_from([1.0, 0.4, "best"])


@given(st.floats(0.1, 12), contenders, st.sampled_from([1.0, 0.7, 0.3, 0.0]), barrings, st.none() | st.integers(0, 5))
@example(updates=6.0, contenders=10, ready=0.2, barring=1.0, pull=None)
@settings(max_examples=60)
def test_the_shortest_frame_against_a_scan(updates, contenders, ready: float, barring, pull: int | None) -> None:
    found = least_slots(updates, contenders, pull=pull, ready=ready, barring=barring, ues=40)
    for slots in range(max(pull or 0, 1), 60):
        pulls = [pull] if pull is not None else range(min(slots, 40) + 1)
        splits = plan(slots, contenders, pulls=pulls, ready=ready, barring=barring, ues=40).splits
        most = max(split.expected_received for split in splits)
        if most >= updates * (1 - 1e-12):
            assert found is not None
            assert found.pull + found.push == slots
            assert found.expected_received == pytest.approx(most)
            return
    assert found is None or found.pull + found.push >= 60


@pytest.mark.long
def test_the_largest_number_of_updates_is_planned() -> None:
    assert least_slots(10_000, 10).pull == 10_000


def test_a_frame_without_end_yields_fewer_than_all_contenders() -> None:
    assert least_slots(10, 10, pull=0) is None
    assert least_slots(12.5, 10, pull=2) is None
    long = least_slots(9.99, 10, pull=0)
    # N (1 - 1/L)^(N-1) >= 9.99
    assert long.push == math.ceil(1 / (1 - 0.999 ** (1 / 9)))
    assert least_slots(9.9999999, 10, pull=0) is None  # beyond a million slots
    assert long.push < MOST_SLOTS


def test_no_more_ues_are_pulled_than_there_are() -> None:
    assert least_slots(5.5, 2, ues=5) is None
    frame = least_slots(4.5, 4, ues=5, ready=0.8)
    assert frame.pull <= 5
    assert frame.expected_received >= 4.5


def test_coded_channels_need_fewer_slots_and_bear_more_than_collisions() -> None:
    coded = least_slots(6, 10, pull=0, channel="irsa", frames=500)
    assert coded.push < least_slots(6, 10, pull=0).push
    assert coded.expected_received >= 6
    assert most_contenders(0.9, 20, channel="irsa", frames=500) > 2 * most_contenders(0.9, 20)


@given(st.floats(0.01, 1), st.integers(0, 12), barrings)
@example(success=1.0, push=3, barring=1.0)
@example(success=0.36, push=5, barring="best")
def test_contenders_against_a_scan(success: float, push: int, barring) -> None:
    number = most_contenders(success, push, barring=barring)

    def chance(contenders: int) -> float:
        trials = [barring] if barring != "best" else [min(1.0, push / contenders)]
        return max(PushPeriod(push, contenders, p).received_mean for p in trials) / contenders

    if number:
        assert chance(number) >= success * (1 - 1e-9)
    if push:
        assert chance(number + 1) < success * (1 + 1e-9)
    else:
        assert number == 0


def test_contenders_by_the_closed_form() -> None:
    for push, success in [(10, 0.5), (50, 0.9), (7, 0.05)]:
        assert most_contenders(success, push) == 1 + math.floor(math.log(success) / math.log(1 - 1 / push))


def test_no_more_than_a_million() -> None:
    assert most_contenders(1e-9, 20, barring="best") == 10**6


@pytest.mark.parametrize(
    ("question", "arguments", "line"),
    [
        (most_contenders, (0.0, 4), "success: 0.0 is not allowed"),
        (most_contenders, (1.1, 4), "success: 1.1 is not allowed"),
        (most_contenders, (math.nan, 4), "success: nan is not allowed"),
        (least_slots, (0.0, 4), "want_updates: 0.0 is not allowed"),
        (least_slots, (math.inf, 4), "want_updates: inf is not allowed"),
        (least_slots, (math.nan, 4), "want_updates: nan is not allowed"),
        (partial(least_slots, pull=2000, channel="crdsa"), (1500, 100), "pull: 2000 is not .* must be at most 1,000"),
        (partial(least_slots, ready=[0.5, 0.6]), (2, 4), "ready"),
    ],
)
def test_bad_questions_are_refused(question: Callable, arguments: tuple, line: str) -> None:
    with pytest.raises(InputError, match=line):
        question(*arguments)
