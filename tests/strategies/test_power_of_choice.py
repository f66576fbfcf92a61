from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedslot.messages import Receipt
from fedslot.strategies import STRATEGIES, Asking, Cell

NONE = np.empty(0, dtype=np.int64)
CELL = Cell(ues=6, slots=2, pull=1, sizes=np.array([10, 20, 30, 40, 50, 60]))


def _make(cell: Cell, **options: object) -> Asking:
    strategy = STRATEGIES.make("power-of-choice", options, cell)
    assert isinstance(strategy, Asking)
    return strategy


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_round_by_hand():
    """Of the UEs that answered, those with losses 0.9 and 0.7 are pulled; the others are not known."""
    strategy = _make(CELL)
    state = strategy.hear(strategy.init(), np.array([4, 1, 5, 0]), np.array([0.7, 0.2, 0.9, 0.3]))
    assert strategy.schedule(state, 0, _rng()).pull.tolist() == [5, 4]
    after = strategy.observe(state, Receipt(NONE, NONE, NONE, NONE, NONE, NONE, slots=20), np.empty(0))
    assert np.isneginf(after.loss).all(), "the losses of a model say nothing of the next"


@pytest.mark.parametrize(("sizes", "weights"), [(CELL.sizes, CELL.sizes), (None, np.ones(6))])
def test_with_as_many_candidates_as_slots_ues_are_drawn_in_proportion_to_their_data(sizes, weights):
    """One slot, one candidate, whatever its loss; sizes that are not known count as equal."""
    strategy, rng, counts = _make(replace(CELL, slots=1, sizes=sizes), candidates=1), _rng(2), np.zeros(6)
    for _ in range(8000):
        asked = strategy.ask(strategy.init(), 0, rng)
        state = strategy.hear(strategy.init(), asked, rng.random(1))
        pull = strategy.schedule(state, 0, rng).pull
        assert pull.tolist() == asked.tolist()
        counts[pull] += 1
    assert stats.chisquare(counts, 8000 * weights / weights.sum()).pvalue > 1e-3


@given(st.integers(1, 30), st.integers(1, 12), st.data())
def test_the_candidates_of_the_highest_losses_are_pulled(ues, slots, data):
    least = min(ues, slots)
    candidates = data.draw(st.none() | st.integers(least, ues))
    strategy = _make(Cell(ues=ues, slots=slots, pull=0), candidates=candidates)
    asked = strategy.ask(strategy.init(), 0, _rng())
    assert len(set(asked.tolist())) == len(asked) == (candidates or min(2 * slots, ues))
    losses = np.array(data.draw(st.lists(st.floats(0, 9), min_size=ues, max_size=ues, unique=True)))
    state = strategy.hear(strategy.init(), asked, losses[asked])
    best = sorted(asked.tolist(), key=lambda ue: -losses[ue])[:least]
    assert strategy.schedule(state, 0, _rng()).pull.tolist() == best


@pytest.mark.parametrize(
    ("candidates", "answer_slots", "overhead"),
    [
        (None, 0.05, 1 + 1),  # twice 10 slots: 20 * 0.05
        (21, 0.05, 1 + 2),  # 1.05, rounded up
        (100, 0.07, 1 + 7),  # 7.000000000000001 in floating point
        (50, 0, 1),
        (50, 1, 1 + 50),
    ],
)
def test_what_asking_costs(candidates, answer_slots, overhead):
    cell = Cell(ues=100, slots=10, pull=1)
    assert _make(cell, candidates=candidates, answer_slots=answer_slots).overhead == overhead
