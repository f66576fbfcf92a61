"""Curves of test accuracy over slots or rounds, with confidence bands: of one run or of many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedslot.experiments.estimates import ACCURACY, LEAST, interval
from fedslot.runs.results import X
from fedslot.support.errors import InputError
from fedslot.views.style import looks, style

POINTS = 400  # number of points of a curve over slots
BANDS = 3  # curves that have a band, if there are more than these and one; more bands cover each other
SIZE = (5.5, 3.4)  # inches, of a figure in a notebook

Array = NDArray[np.float64]


def plot_accuracy(
    runs: Mapping[str, Sequence[pd.DataFrame]],
    x: X = "slots",
    axes: Axes | None = None,
    horizon: int | None = None,
    ranks: Mapping[str, float] | None = None,
    title: str = "",
) -> Axes:
    """Draw the test accuracy of runs over slots or rounds, the mean over seeds with its 95% band.

    runs: the tables of rounds by label, one for each seed. axes: where to draw; None: in a new figure.
    horizon: slots at which accuracies are compared, drawn as a dashed line.
    ranks: by label, of which those with the highest get bands if there are many. title: of a new figure.
    """
    if x not in ("slots", "rounds"):
        raise InputError("x", x, "slots or rounds")
    with style():
        if axes is None:
            _, axes = plt.subplots(figsize=SIZE)
            axes.set_title(title)
        curves, levels = by_slots(runs) if x == "slots" else (by_round(runs), {})
        draw_curves(axes, curves, levels, choose_bands(ranks or dict.fromkeys(runs, 0.0)))
        axes.set(xlabel="Slots spent" if x == "slots" else "Global round", ylabel="Test accuracy")
        if horizon and x == "slots":
            axes.axvline(horizon, color="#999999", linewidth=0.8, linestyle="--", zorder=1)
        if len(runs) > 1:
            axes.legend(loc="best")
    return axes


Curves = dict[str, tuple[Array, Array]]
"""By label: x (points,), and accuracies (seeds, points), NaN where a run has none."""


def by_slots(runs: Mapping[str, Sequence[pd.DataFrame]]) -> tuple[Curves, dict[str, float]]:
    """Return curves over slots; of runs that spend none, the mean final accuracy instead."""
    spending = {name: tables for name, tables in runs.items() if any(_spent(table) for table in tables)}
    slots = np.linspace(0, max((_spent(table) for tables in spending.values() for table in tables), default=1), POINTS)
    curves = {name: (slots, np.array([_at(table, slots) for table in tables])) for name, tables in spending.items()}
    levels = {
        name: float(np.mean([table["test_accuracy"].iloc[-1] for table in tables]))
        for name, tables in runs.items()
        if name not in spending
    }
    return curves, levels


def by_round(runs: Mapping[str, Sequence[pd.DataFrame]]) -> Curves:
    """Return curves over rounds, as far as all seeds have them."""
    curves = {}
    for name, tables in runs.items():
        shortest = min(len(table) for table in tables)
        accuracies = [table["test_accuracy"].to_numpy()[:shortest] for table in tables]
        curves[name] = (np.arange(shortest, dtype=float), np.array(accuracies))
    return curves


def draw_curves(axes: Axes, curves: Curves, levels: Mapping[str, float], banded: Collection[str]) -> None:
    """Draw curves, and levels as horizontal lines; `banded` are the labels of those with a band."""
    styles = looks([*curves, *levels])
    for name, (x, accuracies) in curves.items():
        band(axes, x, accuracies, name, banded=name in banded, **styles[name])
    for name, accuracy in levels.items():
        axes.axhline(accuracy, label=name, **styles[name])
    axes.set_xlim(0, max((x[-1] for x, _ in curves.values()), default=1) or 1)


def band(axes: Axes, x: Array, curves: Array, label: str, *, banded: bool = True, **look: Any) -> None:
    """Draw the mean of curves (seeds, points) where every seed has a value, with its 95% confidence band.

    The band is computed on the logit scale. The curves of two seeds have none; they are drawn themselves, thinly.
    """
    here = ~np.isnan(curves).any(axis=0)
    x, curves = x[here], curves[:, here]
    axes.plot(x, curves.mean(axis=0), label=label, **look)
    if len(curves) >= LEAST and banded:
        axes.fill_between(x, *interval(curves, ACCURACY), color=look["color"], alpha=0.18, linewidth=0)
    elif len(curves) == 2:
        axes.plot(x, curves.T, color=look["color"], linewidth=0.4, alpha=0.6)


def choose_bands(ranks: Mapping[str, float]) -> list[str]:
    """Return the labels of the curves that have bands: all if they are few, else those of the highest rank."""
    return list(ranks) if len(ranks) <= BANDS + 1 else sorted(ranks, key=lambda name: -ranks[name])[:BANDS]


def _spent(table: pd.DataFrame) -> int:
    return int(table["slots_spent"].iloc[-1])


def _at(table: pd.DataFrame, slots: Array) -> Array:
    """Return the accuracy of the last complete round at each of the slots; NaN before the first and after the last."""
    spent = table["slots_spent"].to_numpy()
    accuracy = np.concatenate([[np.nan], table["test_accuracy"].to_numpy()])
    found: Array = accuracy[np.searchsorted(spent, slots, side="right")]
    return np.where(slots > spent[-1], np.nan, found)
