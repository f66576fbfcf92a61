from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedslot.strategies.selection import draw, top

SCORES = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]) | st.floats(-5, 5)


@given(st.lists(SCORES, min_size=1, max_size=30), st.data())
def test_top_is_the_head_of_a_stable_sort(scores, data):
    count = data.draw(st.integers(0, len(scores) + 2))
    expected = sorted(range(len(scores)), key=lambda ue: (-scores[ue], ue))[:count]
    assert top(np.array(scores), count).tolist() == expected


def test_draws_follow_the_weights_among_those_that_are_left():
    """Every ordered pair of four UEs: the first with probability w_i, the second with w_j / (1 - w_i)."""
    weights, count = np.array([0.4, 0.3, 0.2, 0.1]), 20_000
    rng = np.random.default_rng(1)
    pairs = [tuple(draw(np.log(7 * weights), 2, rng).tolist()) for _ in range(count)]
    possible = list(permutations(range(4), 2))
    expected = [count * weights[i] * weights[j] / (1 - weights[i]) for i, j in possible]
    observed = [pairs.count(pair) for pair in possible]
    assert sum(observed) == count
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@given(st.lists(SCORES, min_size=1, max_size=20), st.integers(0, 25), st.integers(0, 2**32))
def test_draws_are_different_ues(log_weights, count, seed):
    drawn = draw(np.array(log_weights), count, np.random.default_rng(seed)).tolist()
    assert len(set(drawn)) == len(drawn) == min(count, len(log_weights))
    assert drawn == draw(np.array(log_weights), count, np.random.default_rng(seed)).tolist()


@pytest.mark.parametrize("scale", [1e3, 1e300])
def test_extreme_weights_do_not_overflow(scale):
    drawn = draw(scale * np.array([-1.0, 1.0, 0.0]), 3, np.random.default_rng(0))
    assert drawn.tolist() == [1, 2, 0]
