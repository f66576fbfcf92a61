"""Means over seeds with confidence intervals that stay in range, and their text in tables, reports and pages.

A Student-t interval is computed on a scale without bounds and mapped back, with the standard error by the delta method:
it always contains the mean and stays within the natural bounds of its quantity (accuracies between 0 and 1, slots above
0; the end of a budget is no such bound). The scale of accuracies is the logit, that of slots and rounds the logarithm,
and that of differences of accuracies Fisher's z. Differences of slots have no bounds, so theirs is the plain interval.

An interval is that of the mean of runs like those that are seen. Rare runs of another kind are not in it: if one run in
ten diverges, to an accuracy of 10% instead of about 90%, three to ten seeds often show none, and the interval contains
the mean over all runs in a third to two thirds of the cases only. Seeds that show such a run have a wide interval.

Two values show all that is known of their spread, so they are shown themselves, and have no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

CONFIDENCE = 0.95
LEAST = 3  # number of values from which on there is an interval
ROUNDING = 1e-12  # of the values, by which the means of equal rows may differ
COLUMNS = ("mean", "low", "high", "median", "count", "total")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """A map of a quantity to the whole line, on which its interval is computed.

    width: derivative of `inverse`, as a function of the quantity.
    worst: rank of a run that has no value; NaN if it cannot be ranked. missing: the word for no value.
    """

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    width: Callable[[Array], Array]
    worst: float
    missing: str


ACCURACY = Scale(special.logit, special.expit, lambda m: m * (1 - m), -math.inf, "none")
SLOTS = Scale(np.log, np.exp, np.asarray, math.inf, "never")
ACCURACY_DIFFERENCE = Scale(np.arctanh, np.tanh, lambda d: 1 - d**2, math.nan, "none")
SLOTS_DIFFERENCE = Scale(np.asarray, np.asarray, np.ones_like, math.nan, "none")
NUMBERS = Scale(np.asarray, np.asarray, np.ones_like, math.nan, "none")  # scores that are no shares
SHARES = ("accuracy", "macro_f1")  # scores from 0 to 1, in the names of measures


def scale_of(measure: str) -> Scale:
    """Return the scale of a measure of runs: accuracies on the logit scale, slots and rounds on the log scale.

    Scores that are no shares, such as the RMSE, have none.
    """
    if any(share in measure for share in SHARES):
        return ACCURACY
    return SLOTS if measure.startswith(("slots", "rounds")) else NUMBERS


def difference_scale_of(measure: str) -> Scale:
    """Return the scale of paired differences of a measure."""
    return ACCURACY_DIFFERENCE if any(share in measure for share in SHARES) else SLOTS_DIFFERENCE


def interval(values: Array, scale: Scale) -> tuple[Array, Array]:
    """Return the ends of the 95% confidence interval of the mean over the first axis; NaN with fewer than three values.

    If all values are the same, e.g. all accuracies are 1, both ends are the mean.
    """
    count, mean = len(values), values.mean(axis=0)
    if count < LEAST:
        return np.full_like(mean, math.nan), np.full_like(mean, math.nan)
    error = values.std(axis=0, ddof=1) / count**0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        center = scale.forward(mean)
        half = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * error / scale.width(mean)
        low, high = scale.inverse(center - half), scale.inverse(center + half)
    spread = (error > 0) & np.isfinite(center) & np.isfinite(half)  # not so if all values are the same
    return np.where(spread, np.minimum(low, mean), mean), np.where(spread, np.maximum(high, mean), mean)


@dataclass(frozen=True)
class Estimate:
    """The values of some seeds, with their mean and its 95% confidence interval where these can be stated.

    values: one per seed; NaN where a run has none, e.g. because it never reached a target.

    There is a mean only if every seed has a value: a mean over those that reached a target would be too low, and
    comparable with nothing. The median counts a run without a value as the worst, so it is that of all seeds.

    >>> Estimate.of([0.85, 0.97, 0.93], ACCURACY).text(".2f")
    '0.92 [0.60, 0.99]'
    >>> Estimate.of([0.85, 0.97], ACCURACY).text(".2f")
    '0.85, 0.97'
    >>> Estimate.of([440, float("nan"), 451], SLOTS).text(".0f")
    '2 of 3, median 451'
    """

    values: tuple[float, ...]
    scale: Scale

    @classmethod
    def of(cls, values: Sequence[float] | Array, scale: Scale) -> Estimate:
        """Return the estimate of a quantity from its value under each seed."""
        return cls(tuple(map(float, values)), scale)

    @property
    def count(self) -> int:
        """The number of seeds that have a value."""
        return sum(not math.isnan(value) for value in self.values)

    @property
    def total(self) -> int:
        """The number of seeds."""
        return len(self.values)

    @property
    def complete(self) -> bool:
        """Whether every seed has a value."""
        return 0 < self.count == self.total

    @property
    def mean(self) -> float:
        """The mean; NaN unless every seed has a value."""
        return float(np.mean(self.values)) if self.complete else math.nan

    @property
    def median(self) -> float:
        """The median over all seeds, of which those without a value are the worst; NaN if it is one of these."""
        ranked = [self.scale.worst if math.isnan(value) else value for value in self.values]
        median = float(np.median(ranked)) if ranked and not np.isnan(ranked).any() else math.nan
        return median if math.isfinite(median) else math.nan

    @property
    def low(self) -> float:
        """The lower end of the interval of the mean; NaN if there is none."""
        return self._interval[0]

    @property
    def high(self) -> float:
        """The upper end of the interval of the mean; NaN if there is none."""
        return self._interval[1]

    @cached_property
    def _interval(self) -> tuple[float, float]:
        if not self.complete:
            return math.nan, math.nan
        low, high = interval(np.array(self.values), self.scale)
        return float(low), float(high)

    def row(self) -> dict[str, float]:
        """Return the columns of a table: mean, low, high, median, count and total."""
        return {name: getattr(self, name) for name in COLUMNS}

    def text(self, form: str, factor: float = 1.0, gap: str = " ") -> str:
        """Return the estimate as text; every table uses it.

        The mean with its interval, or one or two values themselves. If some seeds have no value: the number of those
        that have one, and the median. factor: e.g. 100 for percentage points. gap: where a line may be broken.
        """

        def say(value: float) -> str:
            return self.scale.missing if math.isnan(value) else f"{factor * value:{form}}"

        if self.count == 0:
            return self.scale.missing
        if self.total < LEAST:
            return ", ".join(map(say, self.values))
        if self.complete:
            return f"{say(self.mean)}{gap}[{say(self.low)}, {say(self.high)}]"
        return self.reached + ("" if math.isnan(self.median) else f",{gap}median {say(self.median)}")

    @property
    def reached(self) -> str:
        """How many of the seeds have a value, as text."""
        return f"{self.count} of {self.total}"


def describe(seeds: int) -> str:
    """Return what the numbers of a table are, as a phrase; a single seed needs none.

    >>> describe(1), describe(2), describe(5)
    ('', 'the values of both seeds', 'means over 5 seeds with 95% confidence intervals')
    """
    if seeds < LEAST:
        return "the values of both seeds" if seeds == 2 else ""
    return f"means over {seeds} seeds with 95% confidence intervals"


def may_be_best(values: Array, lower_is_better: bool = False) -> NDArray[np.bool_]:
    """Return which of the rows (rows, seeds) may have the best mean: the true best is among them with 95% confidence.

    A row is ruled out if another is better by a one-sided t-test, paired over seeds. The 5% are shared among the other
    rows (Bonferroni), any of which could rule out the true best. Each pair has a variance of its own, since rows may
    differ in spread: with one for all, the best would be ruled out too often where its own is large. Fewer than three
    seeds rule out nothing, and three of many rows little.
    """
    rows, seeds = values.shape
    better = -values if lower_is_better else values
    if rows < 2 or seeds < LEAST:
        return np.ones(rows, dtype=bool)
    quantile = stats.t.ppf(1 - (1 - CONFIDENCE) / (rows - 1), seeds - 1)
    may_be = np.ones(rows, dtype=bool)
    for row in range(rows):
        ahead = better - better[row]
        error = ahead.std(axis=1, ddof=1) / seeds**0.5
        may_be[row] = not (ahead.mean(axis=1) > quantile * error + ROUNDING * np.abs(better).max()).any()
    return may_be
