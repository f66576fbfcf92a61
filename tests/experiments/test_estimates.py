"""Estimates: by hand, in range, with the coverage that they promise, and honest about runs without a value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fedslot.experiments.estimates import (
    ACCURACY,
    ACCURACY_DIFFERENCE,
    SLOTS,
    SLOTS_DIFFERENCE,
    Estimate,
    Scale,
    interval,
    may_be_best,
)

NAN = math.nan
T = 4.302653  # the 97.5% point of Student's t with 2 degrees of freedom


def test_plain_intervals_by_hand() -> None:
    """Mean 2 and standard deviation 1."""
    estimate = Estimate.of([1.0, 2.0, 3.0], SLOTS_DIFFERENCE)
    assert estimate.mean == 2
    assert (estimate.low, estimate.high) == pytest.approx((2 - T / 3**0.5, 2 + T / 3**0.5))


def test_intervals_on_their_scales_by_hand() -> None:
    half = T * 0.1 / 3**0.5  # t times the standard error of 0.7, 0.8, 0.9
    accuracy = Estimate.of([0.7, 0.8, 0.9], ACCURACY)
    odds = [0.8 / 0.2 * math.exp(sign * half / (0.8 * 0.2)) for sign in (-1, 1)]
    assert (accuracy.low, accuracy.high) == pytest.approx([o / (1 + o) for o in odds])
    slots = Estimate.of([70, 80, 90], SLOTS)
    assert (slots.low, slots.high) == pytest.approx([80 * math.exp(sign * 100 * half / 80) for sign in (-1, 1)])
    difference = Estimate.of([-0.1, 0.0, 0.1], ACCURACY_DIFFERENCE)
    assert (difference.low, difference.high) == pytest.approx((-math.tanh(half), math.tanh(half)))


@pytest.mark.parametrize(
    ("scale", "lowest", "highest"), [(ACCURACY, 0, 1), (SLOTS, 0, 1e9), (ACCURACY_DIFFERENCE, -1, 1)]
)
@given(data=st.data())
def test_intervals_contain_the_mean_and_stay_in_range(
    scale: Scale, lowest: float, highest: float, data: st.DataObject
) -> None:
    smallest = st.sampled_from([[5e-324] * 3, [1e-320, 0, 5e-324], [1e-310, 0, 0], [1e-300, 0, 0]])
    values = data.draw(st.lists(st.floats(lowest, highest), min_size=3, max_size=8) | smallest)
    estimate = Estimate.of(values, scale)
    assert lowest <= estimate.low <= estimate.mean <= estimate.high
    assert estimate.high <= (math.inf if scale is SLOTS else highest)


@pytest.mark.parametrize(
    ("scale", "value"), [(ACCURACY, 0.0), (ACCURACY, 1.0), (SLOTS, 0.0), (ACCURACY_DIFFERENCE, -1.0), (SLOTS, 63.0)]
)
def test_equal_values_leave_no_doubt(scale: Scale, value: float) -> None:
    estimate = Estimate.of([value] * 3, scale)
    assert (estimate.low, estimate.mean, estimate.high) == (value, value, value)


def beta(mean: float, spread: float) -> Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]:
    size = mean * (1 - mean) / spread**2 - 1
    return lambda rng, shape: rng.beta(mean * size, (1 - mean) * size, shape)


@pytest.mark.parametrize(
    ("scale", "draw", "mean"),
    [
        (ACCURACY, beta(0.9, 0.02), 0.9),
        (ACCURACY, beta(0.97, 0.015), 0.97),
        (ACCURACY, beta(0.6, 0.1), 0.6),
        (SLOTS, lambda rng, shape: rng.gamma(11.0, 40.0, shape), 440.0),  # standard deviation of 30%
        (SLOTS, lambda rng, shape: 11.0 * (5 + rng.poisson(20, shape)), 275.0),  # whole frames
        (ACCURACY_DIFFERENCE, lambda rng, shape: rng.normal(0.02, 0.03, shape), 0.02),
        (SLOTS_DIFFERENCE, lambda rng, shape: rng.normal(-40.0, 60.0, shape), -40.0),
    ],
)
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_as_they_promise(
    scale: Scale, draw: Callable[..., NDArray[np.float64]], mean: float, seeds: int
) -> None:
    """95% of the intervals contain the true mean, within a point and four standard errors of the Monte Carlo."""
    count = 20_000
    low, high = interval(draw(np.random.default_rng(0), (seeds, count)), scale)
    covered = np.mean((low <= mean) & (mean <= high))
    assert covered == pytest.approx(0.95, abs=0.01 + 4 * (0.95 * 0.05 / count) ** 0.5)


def test_there_is_no_mean_over_the_runs_that_happened_to_succeed() -> None:
    estimate = Estimate.of([100, NAN, 300, 200, NAN], SLOTS)
    assert (estimate.count, estimate.total) == (3, 5)
    assert np.isnan([estimate.mean, estimate.low, estimate.high]).all()
    assert estimate.median == 300, "those that never got there are the slowest"
    assert math.isnan(Estimate.of([100, NAN, NAN], SLOTS).median)
    assert Estimate.of([0.8, NAN, 0.9], ACCURACY).median == 0.8, "those that failed are the worst"
    assert math.isnan(Estimate.of([0.1, NAN, 0.2], ACCURACY_DIFFERENCE).median), "no one knows which side it is on"


@pytest.mark.parametrize(
    ("values", "scale", "expected"),
    [
        ([440.0], SLOTS, "440"),
        ([NAN], SLOTS, "never"),
        ([440, 451], SLOTS, "440, 451"),
        ([440, NAN], SLOTS, "440, never"),
        ([NAN, NAN], SLOTS, "never"),
        ([440, 440, 440], SLOTS, "440 [440, 440]"),
        ([440, 451, NAN], SLOTS, "2 of 3, median 451"),
        ([440, NAN, NAN], SLOTS, "1 of 3"),
        ([NAN, NAN, NAN], SLOTS, "never"),
        ([], SLOTS, "never"),
    ],
)
def test_texts(values: list[float], scale: Scale, expected: str) -> None:
    assert Estimate.of(values, scale).text(".0f") == expected


def test_texts_in_percentage_points_and_two_lines() -> None:
    assert Estimate.of([0.01] * 3, ACCURACY_DIFFERENCE).text("+.1f", factor=100, gap="\n") == "+1.0\n[+1.0, +1.0]"


def test_the_best_is_among_those_that_may_be() -> None:
    """In at least 95% of the cases, for nine equally good rows with common noise, where excluding any is an error."""
    rng, cases, excluded = np.random.default_rng(1), 2000, 0
    for _ in range(cases):
        values = rng.normal(0.9, 0.02, 5) + rng.normal(0, 0.01, (9, 5))
        excluded += not may_be_best(values)[0]  # the one that is the best, by however little
    assert excluded / cases < 0.05


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("best", ["wide", "narrow", "any"])
def test_the_best_may_be_best_where_rows_differ_in_spread(seeds: int, rows: int, best: str) -> None:
    """With one variance for all rows, a wide best row among narrow ones would be excluded in a quarter of the cases."""
    spreads = np.geomspace(0.002, 0.05, rows) if best == "any" else np.full(rows, 0.005 if best == "wide" else 0.05)
    spreads[0] = {"wide": 0.05, "narrow": 0.005, "any": spreads[0]}[best]
    rng, cases = np.random.default_rng(2), 1000
    means = np.r_[0.9, np.full(rows - 1, 0.9 - 1e-9)]
    kept = sum(
        may_be_best(means[:, None] + rng.normal(0, 0.02, seeds) + rng.normal(0, 1, (rows, seeds)) * spreads[:, None])[0]
        for _ in range(cases)
    )
    assert kept / cases > 0.95 - 4 * (0.95 * 0.05 / cases) ** 0.5


def test_rare_failures_are_not_in_an_interval() -> None:
    """What the docs say of it: one run in ten diverges, and few seeds show it."""
    rng, mean = np.random.default_rng(3), 0.9 * 0.9 + 0.1 * 0.1
    for seeds, expected in ((3, 0.28), (10, 0.64)):
        fails = rng.random((seeds, 5000)) < 0.1
        low, high = interval(np.where(fails, 0.1, 0.9) + rng.normal(0, 0.01, fails.shape), ACCURACY)
        assert np.mean((low <= mean) & (mean <= high)) == pytest.approx(expected, abs=0.04)


def test_two_rows_are_compared_by_the_paired_t_test() -> None:
    """p-values on either side of 5%, by SciPy."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        values = rng.normal(0.9, 0.02, 4) + rng.normal(0, 0.01, (2, 4)) + np.array([[0.01], [0.0]])
        low, high = sorted(values, key=np.mean)
        ruled_out = stats.ttest_rel(high, low, alternative="greater").pvalue < 0.05
        assert may_be_best(values).sum() == (1 if ruled_out else 2)


def test_far_worse_rows_are_ruled_out() -> None:
    values = 0.9 + np.random.default_rng(5).normal(0, 0.02, (20, 4))  # twenty rows, as in a heat map
    values[7] -= 0.2
    for best in (may_be_best(values), may_be_best(-values, lower_is_better=True)):
        assert not best[7]
        assert best.sum() > 10
    assert may_be_best(values[:, :2]).all(), "two seeds tell nothing"
