"""Curves of test accuracy over slots, rounds, seconds or joules: of each seed, and their mean with its 95% band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedslot.experiments.estimates import ACCURACY, Scale, interval
from fedslot.runs.results import X, scores, spent

POINTS = 400  # number of points of a curve over slots

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """A curve of several seeds. x: (points,). accuracies: (seeds, points), NaN where a run has none, or other scores.

    scale: on which the band is computed.
    """

    x: Array
    accuracies: Array
    scale: Scale = ACCURACY

    def table(self) -> pd.DataFrame:
        """Return `x`, `mean`, `low` and `high` where every seed has a value; no band (NaN) with fewer than three."""
        here = ~np.isnan(self.accuracies).any(axis=0)
        accuracies = self.accuracies[:, here]
        low, high = interval(accuracies, self.scale)
        return pd.DataFrame({"x": self.x[here], "mean": accuracies.mean(axis=0), "low": low, "high": high})


def curves_over(
    x: X, runs: Mapping[str, Sequence[pd.DataFrame]], scale: Scale = ACCURACY
) -> tuple[dict[str, Curve], dict[str, float]]:
    """Return curves over rounds, slots, seconds or joules; of runs that spend none, the mean final accuracy instead."""
    if x == "rounds":
        return {name: _by_round(tables, scale) for name, tables in runs.items()}, {}
    costs = {name: [spent(table, x) for table in tables] for name, tables in runs.items()}
    last = max((cost[-1] for own in costs.values() for cost in own), default=0)
    grid = np.linspace(0, last or 1, POINTS)
    curves, levels = {}, {}
    for name, tables in runs.items():
        if any(cost[-1] for cost in costs[name]):
            seeds = [_at(*pair, grid) for pair in zip(tables, costs[name], strict=True)]
            curves[name] = Curve(grid, np.array(seeds), scale)
        else:
            levels[name] = float(np.mean([scores(table)[-1] for table in tables]))
    return curves, levels


def _by_round(tables: Sequence[pd.DataFrame], scale: Scale) -> Curve:
    """Return the scores by round, as far as all seeds have them."""
    shortest = min(map(len, tables))
    accuracies = [scores(table)[:shortest] for table in tables]
    return Curve(np.arange(shortest, dtype=float), np.array(accuracies), scale)


def _at(table: pd.DataFrame, spent: Array, grid: Array) -> Array:
    """Return the score of the last complete round at each cost; NaN before the first and after the last."""
    accuracy = np.concatenate([[np.nan], scores(table)])
    return np.where(grid > spent[-1], np.nan, accuracy[np.searchsorted(spent, grid, side="right")])
