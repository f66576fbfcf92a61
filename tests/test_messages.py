import numpy as np

from fedslot.messages import Receipt


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_what_a_receipt_counts():
    receipt = Receipt(_ues(10, 12), _ues(1, 3), _ues(20), _ues(7), collided=_ues(30, 31), wasted=_ues(11), slots=9)
    assert receipt.received.tolist() == [10, 12, 20]
    assert receipt.received_slots.tolist() == [1, 3, 7]
    assert (receipt.contenders, receipt.downlinks) == (3, 1)
