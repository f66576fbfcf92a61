import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.strategies import STRATEGIES, Cell, NoState


def _pulls(ues: int, slots: int, rounds: int) -> list[list[int]]:
    strategy = STRATEGIES.make("round-robin", {}, Cell(ues=ues, slots=slots, pull=1))
    rng = np.random.default_rng(0)
    return [strategy.schedule(NoState(), round, rng).pull.tolist() for round in range(rounds)]


@pytest.mark.parametrize(
    ("ues", "slots", "pulls"),
    [
        (10, 4, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5]]),  # the next pass begins within a frame
        (4, 2, [[0, 1], [2, 3], [0, 1], [2, 3]]),
        (3, 5, [[0, 1, 2]] * 4),  # fewer UEs than slots
    ],
)
def test_turns_by_hand(ues, slots, pulls):
    assert _pulls(ues, slots, 4) == pulls


@given(st.integers(1, 40), st.integers(1, 12))
def test_every_ue_is_pulled_once_before_any_twice(ues, slots):
    in_turn = [ue for pull in _pulls(ues, slots, 3 * ues) for ue in pull]
    for begin in range(0, len(in_turn) - ues + 1, ues):
        assert sorted(in_turn[begin : begin + ues]) == list(range(ues))
