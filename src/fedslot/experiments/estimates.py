"""Means over seeds with confidence intervals, and their text in tables and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95% confidence interval (Student's t).

    count: seeds that have a value, of `total`; low and high are NaN with fewer than two.

    >>> estimate = Estimate.of([1.0, 2.0, float("nan"), 3.0])
    >>> estimate.interval(".1f"), estimate.margin(".1f"), estimate.fraction(" {}/{}")
    ('2.0 [-0.5, 4.5]', '2.0 ± 2.5', ' 3/4')
    """

    mean: float
    low: float
    high: float
    count: int
    total: int

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64]) -> Estimate:
        """Estimate the mean of the values that are not NaN."""
        numbers = np.asarray(values, dtype=float)
        here = numbers[~np.isnan(numbers)]
        mean = float(here.mean()) if len(here) else math.nan
        half = float(half_width(here)) if len(here) > 1 else math.nan
        return cls(mean, mean - half, mean + half, len(here), len(numbers))

    @property
    def percent(self) -> Estimate:
        """The same estimate in percent."""
        return Estimate(100 * self.mean, 100 * self.low, 100 * self.high, self.count, self.total)

    def point(self, form: str, error: str = "") -> str:
        """Return the mean as text, followed by `error`; `never` if no seed has a value."""
        return f"{self.mean:{form}}{error}" if self.count else "never"

    def interval(self, form: str) -> str:
        """Return the mean and its interval as text, the mean alone if there is no interval."""
        return self.point(form, "" if math.isnan(self.low) else f" [{self.low:{form}}, {self.high:{form}}]")

    def margin(self, form: str, sign: str = " ± ") -> str:
        """Return the mean and half the width of its interval as text."""
        half = f"{self.high - self.mean:{form.removeprefix('+')}}"
        return self.point(form, "" if math.isnan(self.low) else f"{sign}{half}")

    def fraction(self, form: str) -> str:
        """Return how many of the seeds have a value as text; nothing if all or none have one."""
        return form.format(self.count, self.total) if 0 < self.count < self.total else ""


def half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half the width of the confidence interval of the mean over the first axis, at least two values."""
    count = len(values)
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)
    return np.asarray(quantile * values.std(axis=0, ddof=1) / count**0.5)
