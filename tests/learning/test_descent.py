"""Compiled training against slopes by differences."""

import itertools

import numpy as np
import pytest

from fedslot.learning.descent import descend, descend_in_span

WIDTHS = np.array([6, 5, 4, 3])
PARAMETERS = sum((n + 1) * m for n, m in itertools.pairwise(WIDTHS))


def _case():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(11, 6)).astype(np.float32), rng.integers(0, 3, 11)
    start = rng.normal(size=PARAMETERS).astype(np.float32)
    order = np.stack([rng.permutation(11) for _ in range(3)])
    return start, x, y, (order, np.array([0, 4, 8, 11]), np.float32(0.1), np.float32(0.9))


def _slope(parameters, x, y):
    """Of the mean loss, by differences in float64: nothing is shared with the code under test."""

    def loss(flat):
        out, first = x.astype(float), 0
        for layer, (n, m) in enumerate(itertools.pairwise(WIDTHS)):
            weight, bias = flat[first : first + n * m].reshape(m, n), flat[first + n * m : first + (n + 1) * m]
            out = out @ weight.T + bias
            out = np.maximum(out, 0) if layer < len(WIDTHS) - 2 else out
            first += (n + 1) * m
        return np.mean(np.log(np.exp(out).sum(axis=1)) - out[np.arange(len(y)), y])

    steps = 1e-6 * np.eye(PARAMETERS)
    return np.array([(loss(parameters + step) - loss(parameters - step)) / 2e-6 for step in steps])


def test_steps_follow_the_slope_of_the_loss():
    start, x, y, (order, cuts, lr, momentum) = _case()
    parameters, velocity = start.astype(float), np.zeros(PARAMETERS)
    for rows in order:
        for begin, end in itertools.pairwise(cuts):
            velocity = momentum * velocity + _slope(parameters, x[rows[begin:end]], y[rows[begin:end]])
            parameters -= lr * velocity
    ordinary, in_span = start.copy(), start.copy()
    descend(ordinary, WIDTHS, x, y, order, cuts, lr, momentum)
    descend_in_span(in_span, WIDTHS, x, y, x @ x.T + np.float32(1), order, cuts, lr, momentum)
    assert np.abs(parameters - start).max() > 0.05
    np.testing.assert_allclose(ordinary, parameters, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(in_span, parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_so(value):
    start, x, y, rest = _case()
    x[3, 2] = value
    ordinary, in_span = start.copy(), start.copy()
    descend(ordinary, WIDTHS, x, y, *rest)
    descend_in_span(in_span, WIDTHS, x, y, x @ x.T + np.float32(1), *rest)
    assert not np.isfinite(ordinary).all()
    assert not np.isfinite(in_span).all()
