"""Theorem 1 and Hoeffding: when they say something, and whether it is true of drawn times."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedslot.planning.latency import hoeffding_bound, printed_bound
from fedslot.support.errors import InputError

FRAME = 20.0  # T_F = M tau with M = 20 and the slot as the unit of time
PAPER = {"ues": 200, "frame_length": FRAME, "budget": FRAME, "epsilon": 0.1, "theta": 0.1, "p": 1e-6, "q": 1.0}


def gamma_times(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Gamma(2, 5) times, cut to [0, 2 T_F] by redrawing, and their mean."""
    upper, scale = 2 * FRAME, 5.0
    times = rng.gamma(2.0, scale, size=shape)
    while (late := times > upper).any():
        times[late] = rng.gamma(2.0, scale, size=int(late.sum()))
    x = upper / scale  # E[T; T < b] / P(T < b) of Gamma(2, scale), by parts
    below, mean_below = 1 - math.exp(-x) * (1 + x), 2 * scale * (1 - math.exp(-x) * (1 + x + x * x / 2))
    return times, mean_below / below


def two_point_times(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """0 or 2 T_F with equal probability: the widest that [a, b] allows."""
    return rng.integers(0, 2, size=shape) * 2 * FRAME, FRAME


@pytest.mark.parametrize("draw", [gamma_times, two_point_times])
@pytest.mark.parametrize("ues", [10, 50, 200])
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_hoeffding_fails_no_more_often_than_it_says(draw, ues: int, failure: float) -> None:
    times, mean = draw(np.random.default_rng(ues), (20_000, ues))
    margin = hoeffding_bound(0.0, ues=ues, lower=0, upper=2 * FRAME, failure=failure).margin
    failed = (mean > times.mean(axis=1) + margin).mean()
    assert failed <= failure + 4 * math.sqrt(failure / 20_000)
    if draw is two_point_times:
        # Not by much slack either: the exact binomial tail, which Hoeffding bounds, is what comes out.
        most = math.ceil(ues / 2 - margin * ues / (2 * FRAME)) - 1
        tail = sum(math.comb(ues, k) for k in range(most + 1)) / 2**ues
        assert failed == pytest.approx(tail, abs=4 * math.sqrt(tail / 20_000) + 1e-9)


@pytest.mark.parametrize("draw", [gamma_times, two_point_times])
@pytest.mark.parametrize("q", [0.05, 1.0, 10.0])
def test_printed_bound_fails_no_more_often_than_hoeffding_allows_its_margin(draw, q: float) -> None:
    times, mean = draw(np.random.default_rng(1), (20_000, 200))
    bound = printed_bound(0.0, **{**PAPER, "q": q})
    failed = (mean > times.mean(axis=1) + bound.margin).mean()
    assert failed <= bound.failure + 4 * math.sqrt(0.25 / 20_000)
    if q == 0.05:
        assert failed > 0.4  # the margin is next to nothing, and the "bound" a coin toss
        assert bound.vacuous is not None


def test_h_at_the_papers_defaults() -> None:
    # T_max = M tau = T_F and K = 200; p log(1/eps) against 2 T_F left out.
    assert printed_bound(8.0, **PAPER).h == pytest.approx(math.exp(-2 / (4 * 200)), rel=1e-6)
    assert round(printed_bound(8.0, **PAPER).h, 4) == 0.9975
    # The unit of time does not matter, the number of UEs does.
    minutes = printed_bound(8.0, **{**PAPER, "frame_length": 1200.0, "budget": 1200.0, "p": 6e-5})
    assert minutes.h == pytest.approx(printed_bound(8.0, **PAPER).h, rel=1e-12)
    assert round(printed_bound(8.0, **{**PAPER, "ues": 20}).h, 4) == 0.9753


def test_printed_bound_is_the_printed_formula() -> None:
    bound = printed_bound(11.0, ues=30, frame_length=20.0, budget=35.0, epsilon=0.2, theta=0.4, p=1.5, q=2.0)
    h = math.exp(-2 * 35**2 / (30 * (40 - 1.5 * math.log(5)) ** 2))
    assert bound.h == pytest.approx(h)
    assert bound.bound == pytest.approx(11 + math.log(25) * (4 - 1.5 * 0.6) * math.sqrt(math.log(1 / h) / 2))


def test_its_h_is_hoeffdings_for_times_that_are_off_by_the_budget_together() -> None:
    h = printed_bound(8.0, **PAPER).h
    plain = hoeffding_bound(8.0, ues=200, lower=1e-6 * math.log(10), upper=2 * FRAME, failure=h)
    assert plain.margin == pytest.approx(FRAME / 200)
    assert "probability 0.0025" in str(plain.vacuous)


def test_when_the_bounds_say_nothing() -> None:
    assert "margin" in str(printed_bound(8.0, **{**PAPER, "p": 3.0, "q": 1.0}).vacuous)  # 2q < p (1 - theta)
    assert "no time exceeds" in str(hoeffding_bound(8.0, ues=1, lower=0, upper=40, failure=0.05).vacuous)
    assert "no time exceeds" in str(hoeffding_bound(38.0, ues=200, lower=0, upper=40, failure=0.05).vacuous)
    assert hoeffding_bound(8.0, ues=200, lower=0, upper=40, failure=0.05).vacuous is None
    # Never with K <= log(1/h) / 2, whatever was seen.
    for ues in range(1, 6):
        lucky = hoeffding_bound(0.0, ues=ues, lower=0, upper=40, failure=math.exp(-2 * 3))
        assert (lucky.vacuous is None) == (ues > 3)


@pytest.mark.parametrize(
    ("bound", "values", "line"),
    [
        (printed_bound, {**PAPER, "ues": 0}, "ues: 0 is not allowed"),
        (printed_bound, {**PAPER, "epsilon": 0.0}, "epsilon: 0.0 is not allowed; it must be between 0 and 1"),
        (printed_bound, {**PAPER, "theta": 2.0}, "theta: 2.0 is not allowed"),
        (printed_bound, {**PAPER, "budget": -1.0}, "budget: -1.0 is not allowed; it must be above 0"),
        (printed_bound, {**PAPER, "p": 100.0}, "p: 100.0 is not allowed; it must be small enough"),
        (hoeffding_bound, {"ues": 3, "lower": 5, "upper": 5, "failure": 0.1}, "lower: 5 is not allowed"),
        (hoeffding_bound, {"ues": 3, "lower": 0, "upper": 5, "failure": 1.0}, "failure: 1.0 is not allowed"),
    ],
)
def test_bad_arguments_are_refused(bound: Callable, values: dict[str, float], line: str) -> None:
    with pytest.raises(InputError) as refusal:
        bound(8.0, **values)
    assert line in str(refusal.value)
