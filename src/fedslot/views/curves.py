"""Curves of test accuracy over slots, rounds, seconds or joules, with confidence bands: of one run or of many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedslot.experiments.estimates import ACCURACY as SHARES_SCALE
from fedslot.experiments.estimates import LEAST, Scale, interval, scale_of
from fedslot.learning.tasks import ACCURACY, Score
from fedslot.runs.results import X, scores, spent
from fedslot.support.errors import InputError, one_of
from fedslot.views.style import looks, style

POINTS = 400  # number of points of a curve over slots
BANDS = 3  # curves that have a band, if there are more than these and one; more bands cover each other
SIZE = (5.5, 3.4)  # inches, of a figure in a notebook

Array = NDArray[np.float64]
LABELS: dict[X, str] = {
    "slots": "Slots spent",
    "rounds": "Global round",
    "seconds": "Seconds on the air",
    "joules": "Joules of all UEs",
}


def plot_accuracy(
    runs: Mapping[str, Sequence[pd.DataFrame]],
    x: X = "slots",
    axes: Axes | None = None,
    horizon: float | None = None,
    ranks: Mapping[str, float] | None = None,
    title: str = "",
    score: Score = ACCURACY,
) -> Axes:
    """Draw the test scores of runs over slots, rounds, seconds or joules, the mean over seeds with its 95% band.

    runs: the tables of rounds by label, one for each seed. axes: where to draw; None: in a new figure.
    horizon: slots at which accuracies are compared, drawn as a dashed line.
    ranks: by label, of which those with the highest get bands if there are many. title: of a new figure.
    score: what is drawn.
    """
    if x not in LABELS:
        raise InputError("x", x, one_of(x, LABELS))
    with style():
        if axes is None:
            _, axes = plt.subplots(figsize=SIZE)
            axes.set_title(title)
        draw_curves(axes, *curves_over(x, runs), choose_bands(ranks or dict.fromkeys(runs, 0.0)), score)
        axes.set(xlabel=LABELS[x], ylabel=f"Test {score.label}")
        if horizon and x == "slots":
            mark_horizon(axes, horizon)
        if len(runs) > 1:
            axes.legend(loc="best")
    return axes


def mark_horizon(axes: Axes, horizon: float) -> None:
    """Draw a dashed line at the slots at which accuracies are compared."""
    axes.axvline(horizon, color="#999999", linewidth=0.8, linestyle="--", zorder=1)


Curves = dict[str, tuple[Array, Array]]
"""By label: x (points,), and scores (seeds, points), NaN where a run has none."""


def curves_over(x: X, runs: Mapping[str, Sequence[pd.DataFrame]]) -> tuple[Curves, dict[str, float]]:
    """Return curves over rounds, slots, seconds or joules; of runs that spend none, the mean final accuracy instead."""
    if x == "rounds":
        return {name: _by_round(tables) for name, tables in runs.items()}, {}
    costs = {name: [spent(table, x) for table in tables] for name, tables in runs.items()}
    last = max((cost[-1] for own in costs.values() for cost in own), default=0)
    grid = np.linspace(0, last or 1, POINTS)
    curves, levels = {}, {}
    for name, tables in runs.items():
        if any(cost[-1] for cost in costs[name]):
            curves[name] = grid, np.array([_at(*pair, grid) for pair in zip(tables, costs[name], strict=True)])
        else:
            levels[name] = float(np.mean([scores(table)[-1] for table in tables]))
    return curves, levels


def draw_curves(
    axes: Axes, curves: Curves, levels: Mapping[str, float], banded: Collection[str], score: Score = ACCURACY
) -> None:
    """Draw curves, and levels as horizontal lines; `banded` are the labels of those with a band."""
    styles = looks([*curves, *levels])
    for name, (x, accuracies) in curves.items():
        scale = scale_of(score.name)
        band(axes, x, accuracies, name, banded=name in banded, scale=scale, **styles[name])
    for name, accuracy in levels.items():
        axes.axhline(accuracy, label=name, **styles[name])
    axes.set_xlim(0, max((x[-1] for x, _ in curves.values()), default=1) or 1)


def band(
    axes: Axes, x: Array, curves: Array, label: str, *, banded: bool = True, scale: Scale = SHARES_SCALE, **look: Any
) -> None:
    """Draw the mean of curves (seeds, points) where every seed has a value, with its 95% confidence band.

    The band is computed on a scale; that of accuracies is the logit. The curves of two seeds have none; they are drawn
    themselves, thinly.
    """
    here = ~np.isnan(curves).any(axis=0)
    x, curves = x[here], curves[:, here]
    axes.plot(x, curves.mean(axis=0), label=label, **look)
    if len(curves) >= LEAST and banded:
        axes.fill_between(x, *interval(curves, scale), color=look["color"], alpha=0.18, linewidth=0)
    elif len(curves) == 2:
        axes.plot(x, curves.T, color=look["color"], linewidth=0.4, alpha=0.6)


def choose_bands(ranks: Mapping[str, float]) -> list[str]:
    """Return the labels of the curves that have bands: all if they are few, else those of the highest rank."""
    return list(ranks) if len(ranks) <= BANDS + 1 else sorted(ranks, key=lambda name: -ranks[name])[:BANDS]


def _by_round(tables: Sequence[pd.DataFrame]) -> tuple[Array, Array]:
    """Return rounds and accuracies, as far as all seeds have them."""
    shortest = min(map(len, tables))
    accuracies = [scores(table)[:shortest] for table in tables]
    return np.arange(shortest, dtype=float), np.array(accuracies)


def _at(table: pd.DataFrame, spent: Array, grid: Array) -> Array:
    """Return the score of the last complete round at each cost; NaN before the first and after the last."""
    accuracy = np.concatenate([[np.nan], scores(table)])
    return np.where(grid > spent[-1], np.nan, accuracy[np.searchsorted(spent, grid, side="right")])
