from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedslot.messages import Receipt
from fedslot.strategies import STRATEGIES, Cell, Ledger

NONE = np.empty(0, dtype=np.int64)
CELL = Cell(ues=4, slots=2, pull=1)


def _pull(state: Ledger, cell: Cell = CELL, **options: float) -> list[int]:
    return STRATEGIES.make("ucb", options, cell).schedule(state, 9, np.random.default_rng(0)).pull.tolist()


def _receipt(pulled: np.ndarray, wasted: np.ndarray = NONE) -> Receipt:
    return Receipt(pulled, np.arange(1, len(pulled) + 1), NONE, NONE, NONE, wasted, slots=20)


def test_bounds_by_hand():
    """Values 1 and 3 have spread 1; with n = 1 and 7, t = 8, bonuses are sqrt(ln 8) = 1.44 and sqrt(ln 8 / 7) = 0.55.

    Bounds are 2.44 and 3.55. Three times the exploration gives 5.33 and 4.63: the UE that is less known goes first.
    """
    state, cell = Ledger(np.array([1.0, 3.0]), np.array([1, 7])), Cell(ues=2, slots=1, pull=1)
    assert _pull(state, cell) == [1]
    assert _pull(state, cell, exploration=3) == [0]


def test_without_exploration_the_most_valued_are_pulled():
    state = Ledger(np.array([0.1, 0.4, -2.0, 0.3]), np.array([1, 90, 1, 2]))
    assert _pull(state, exploration=0) == [1, 3]


def test_unseen_ues_come_first():
    state = Ledger(np.array([5.0, -np.inf, 9.0, -np.inf]), np.array([1, 0, 1, 0]))
    assert _pull(state) == [1, 3]
    assert _pull(state, replace(CELL, slots=3)) == [1, 3, 2]


def test_among_equal_values_the_least_known_goes_first():
    assert _pull(Ledger(np.zeros(4), np.array([3, 2, 4, 1]))) == [3, 1]


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.integers(-20, 20))
def test_the_scale_of_values_does_not_matter(values, exponent):
    """Powers of two scale without rounding."""
    seen, cell = np.array([1, 2, 3, 4, 5, 6]), Cell(ues=6, slots=3, pull=1)
    value = np.round(np.array(values), 6)
    if value.std() == 0:
        return
    assert _pull(Ledger(value, seen), cell) == _pull(Ledger(value * 2.0**exponent, seen), cell)


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 2**32))
def test_every_ue_is_visited_even_if_some_are_never_ready(ues, slots, seed):
    """ceil(K / M) frames see everyone once; who misses the slot is not pulled forever."""
    rng = np.random.default_rng(seed)
    never_ready = rng.random(ues) < 0.5
    strategy = STRATEGIES.make("ucb", {}, Cell(ues=ues, slots=slots, pull=1))
    state, pulled = strategy.init(), []
    for round in range(-(-ues // slots)):
        grant = strategy.schedule(state, round, rng)
        late = never_ready[grant.pull]
        pulled += grant.pull.tolist()
        state = strategy.observe(state, _receipt(grant.pull[~late], grant.pull[late]), rng.normal(size=(~late).sum()))
    assert set(pulled) == set(range(ues))
    assert (state.seen > 0).all()
    assert (state.value[never_ready] == 0).all()
