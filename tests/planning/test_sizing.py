"""Questions about cells: updates of other sizes, and who listens."""

from __future__ import annotations

import pytest

from fedslot.access import Radio
from fedslot.planning import PushCell, plan
from fedslot.planning.inputs import readiness
from fedslot.planning.planner import Objective
from fedslot.planning.sizing import Sizing
from fedslot.scenario import Scenario


def test_longer_updates_leave_ues_more_time() -> None:
    """Each size is planned anew: fewer slots, each of them longer, so that UEs are ready by earlier ones."""
    scenario = Scenario.load("late-fleet")
    radio = Radio(bits=100, bits_per_slot=10, slot_ms=1.0)
    sizing = Sizing(12, PushCell(100, ues=100), radio=radio, late=scenario)
    rows = {row.size: row for row in sizing.resized}
    for size, slots, seconds in [(1.0, 12, 0.01), (2.0, 6, 0.02), (4.0, 3, 0.04)]:
        expected = plan(slots, 100, ues=100, ready=readiness(scenario, slots, seconds)).best
        assert rows[size].slots == slots
        assert rows[size].best["expected_received"] == pytest.approx(expected.expected_received)


def test_a_single_split_or_a_limit_has_no_other_sizes() -> None:
    cell, radio = PushCell(3), {"radio": Radio(bits=100, bits_per_slot=10)}
    assert Sizing(6, cell, **radio).resized
    limits = [{"objective": Objective(budget=100.0)}, {"objective": Objective(frame_limit=4.0)}]
    for other in ({"pull": 2}, *limits, {"radio": Radio(slot_ms=1.0)}):
        assert not Sizing(6, cell, **{**radio, **other}).resized


def test_frames_too_long_to_compare_are_left_out() -> None:
    sizing = Sizing(301, PushCell(3), radio=Radio(bits=100, bits_per_slot=10))
    assert [row.size for row in sizing.resized] == [0.5, 1.0, 2.0, 4.0]


def test_those_of_the_frame_listen_if_no_number_of_ues_is_given() -> None:
    radio = Radio(send_mj=0.0, listen_mj=1.0)
    for ues, listeners in [(None, 2 + 3), (50, 50)]:
        sizing = Sizing(6, PushCell({2: 0.5, 4: 0.5}, ues=ues), radio=radio, pull=2)
        assert sizing.usage(sizing.plan.best).energy_mj == pytest.approx(listeners)
