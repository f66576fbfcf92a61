import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedslot.messages import Receipt


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_costs_by_hand():
    """Pulls in slots 1 and 3 (the second was wasted), a push in slot 7: costs 2, 4 and 8."""
    receipt = Receipt(_ues(10, 12), _ues(1, 3), _ues(20), _ues(7), collided=_ues(30, 31), wasted=_ues(11), slots=9)
    assert receipt.cost_max == 8
    assert receipt.cost_frame == 10
    assert receipt.cost_sum == 2 + 4 + 8
    assert receipt.received.tolist() == [10, 12, 20]
    assert receipt.contenders == 3


def test_all_pull_costs_are_those_of_the_papers_figure():
    """All 20 slots pull: 21 slots by the clock, 230 summed over UEs."""
    receipt = Receipt(np.arange(20), np.arange(1, 21), _ues(), _ues(), _ues(), _ues(), slots=20)
    assert (receipt.cost_max, receipt.cost_sum) == (21, 230)


def test_nothing_received_costs_the_downlink_slot_by_the_clock():
    receipt = Receipt(_ues(), _ues(), _ues(), _ues(), collided=_ues(1, 2), wasted=_ues(3), slots=5)
    assert (receipt.cost_max, receipt.cost_frame, receipt.cost_sum, len(receipt.received)) == (1, 6, 0, 0)


def test_asking_before_the_frame_delays_every_update():
    """Three slots of asking: the costs 2, 4 and 8 of the frame become 5, 7 and 11."""
    frame = Receipt(
        _ues(10, 12), _ues(1, 3), _ues(20), _ues(7), collided=_ues(30, 31), wasted=_ues(11), slots=9, overhead=3
    )
    assert (frame.cost_max, frame.cost_frame, frame.cost_sum) == (11, 13, 5 + 7 + 11)
    nothing = Receipt(_ues(), _ues(), _ues(), _ues(), collided=_ues(1, 2), wasted=_ues(3), slots=9, overhead=3)
    assert (nothing.cost_max, nothing.cost_sum) == (4, 0)


@given(st.lists(st.integers(1, 30), unique=True, max_size=10), st.integers(0, 10))
def test_costs_are_those_of_a_loop(slots, cut):
    pull, push = sorted(slots)[:cut], sorted(slots)[cut:]
    receipt = Receipt(np.arange(len(pull)), _ues(*pull), np.arange(len(push)), _ues(*push), _ues(), _ues(), slots=30)
    last, total = 0, 0
    for slot in slots:
        last, total = max(last, slot), total + slot + 1
    assert (receipt.cost_max, receipt.cost_sum) == (last + 1, total)
