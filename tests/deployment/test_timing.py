"""The clock of a frame: slots follow one another, and times are found in their slots."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot import InputError
from fedslot.deployment.timing import ClockOffset, Timing

lengths = st.floats(0.001, 100.0)


@given(slot=lengths, downlink=st.floats(0, 100), tolerance=st.floats(0, 10), number=st.integers(1, 1000))
def test_slots_follow_one_another(slot: float, downlink: float, tolerance: float, number: int) -> None:
    timing = Timing(slot, downlink, tolerance)
    assert timing.opens(1) == timing.closes(0) == downlink
    assert timing.closes(number) == timing.opens(number + 1)
    assert timing.closes(number) - timing.opens(number) == pytest.approx(slot, rel=1e-6)
    assert timing.ends(number) == timing.closes(number) + tolerance


@given(slot=lengths, downlink=st.floats(0, 100), first=st.integers(1, 50), later=st.integers(0, 50))
def test_slots_that_have_begun_are_counted(slot: float, downlink: float, first: int, later: int) -> None:
    """In the middle of a slot, it and those before it have begun: counted by going through them."""
    timing = Timing(slot, downlink, 0.0)
    middle = (timing.opens(first + later) + timing.closes(first + later)) / 2
    assert timing.begun(middle, first) == later + 1
    assert timing.begun(middle, first) == sum(timing.opens(first + n) <= middle for n in range(200))
    assert timing.begun(timing.opens(first) - slot / 2, first) == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((0.0, 1.0, 0.1), "slot seconds"),
        ((math.nan, 1.0, 0.1), "slot seconds"),
        ((1.0, -1.0, 0.1), "downlink seconds"),
        ((1.0, 1.0, math.inf), "tolerance"),
    ],
)
def test_lengths_that_no_clock_can_show_are_refused(fields: tuple[float, float, float], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Timing(*fields)


@given(
    offset=st.floats(-1e6, 1e6),
    delays=st.lists(st.floats(0.001, 5.0), min_size=1, max_size=40),
)
def test_a_device_knows_the_clock_of_the_ps_by_the_least_delay(offset: float, delays: list[float]) -> None:
    """Whatever a single message suffers, the error is the least delay of the last sixteen."""
    clock = ClockOffset()
    for number, delay in enumerate(delays):
        sent = 100.0 + number
        found = clock.sent("ps", sent, sent + offset + delay)
        assert found - (sent + offset) == pytest.approx(min(delays[max(0, number - 15) : number + 1]), abs=1e-6)
    restarted = clock.sent("another", 0.0, 7.0)
    assert restarted == 7.0
