import numpy as np
import pytest
from scipy import special, stats

from fedslot.strategies import STRATEGIES, Cell, Ledger

CELL = Cell(ues=4, slots=1, pull=1)


def _counts(state: Ledger, **options: float) -> np.ndarray:
    strategy, rng = STRATEGIES.make("s-fedavg", options, CELL), np.random.default_rng(3)
    return np.bincount([strategy.schedule(state, 5, rng).pull[0] for _ in range(8000)], minlength=CELL.ues)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_frequencies_are_those_of_the_softmax(temperature, scale):
    """Values +1, -1, +1, -1 have standard deviation 1; in units of it, the scale of values does not matter."""
    value = np.array([1.0, -1.0, 1.0, -1.0])
    state = Ledger(scale * value, np.ones(4, dtype=np.int64))
    counts = _counts(state, temperature=temperature)
    assert stats.chisquare(counts, 8000 * special.softmax(value / temperature)).pvalue > 1e-3


def test_a_ue_that_was_never_received_has_value_0():
    """Received ones at 3 and 5 have standard deviation 1."""
    state = Ledger(np.array([3.0, -np.inf, 5.0, -np.inf]), np.array([2, 0, 1, 0]))
    assert stats.chisquare(_counts(state), 8000 * special.softmax([3.0, 0.0, 5.0, 0.0])).pvalue > 1e-3


@pytest.mark.parametrize("state", [Ledger.blank(4), Ledger(np.full(4, 0.7), np.ones(4, dtype=np.int64))])
def test_without_differences_the_draw_is_uniform(state):
    assert stats.chisquare(_counts(state)).pvalue > 1e-3


def test_a_low_temperature_is_greedy():
    state = Ledger(np.array([0.1, 0.4, -2.0, 0.3]), np.ones(4, dtype=np.int64))
    cell = Cell(ues=4, slots=3, pull=1)
    grant = STRATEGIES.make("s-fedavg", {"temperature": 0.01}, cell).schedule(state, 0, np.random.default_rng(0))
    assert grant.pull.tolist() == [1, 3, 0]
    assert not grant.push
