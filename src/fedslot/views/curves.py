"""Drawings of the curves of test accuracy: means with 95% bands, and names at their ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from fedslot.experiments.curves import Curve, curves_over
from fedslot.experiments.estimates import ACCURACY as SHARES
from fedslot.experiments.estimates import LEAST, Scale, scale_of
from fedslot.learning.tasks import ACCURACY, Score
from fedslot.runs.results import X
from fedslot.support.errors import InputError, one_of
from fedslot.views.style import SIZES, Size, dress, looks, style

BANDS = 3  # curves that have a band: more bands cover each other
LONGEST = 28  # letters of a name beside a curve; longer ones need a legend
LABELS: dict[X, str] = {
    "slots": "Slots spent",
    "rounds": "Global round",
    "seconds": "Seconds on the air",
    "joules": "Joules of all UEs",
}

Array = NDArray[np.float64]


def plot_accuracy(
    runs: Mapping[str, Sequence[pd.DataFrame]],
    x: X = "slots",
    axes: Axes | None = None,
    size: Size = "screen",
    *,
    horizon: float | None = None,
    ranks: Mapping[str, float] | None = None,
    title: str = "",
    score: Score = ACCURACY,
) -> Axes:
    """Draw the test scores of runs over slots, rounds, seconds or joules, the mean over seeds with its 95% band.

    runs: the tables of rounds by label, one for each seed. axes: where to draw; None: in a new figure of a `size`.
    horizon: slots at which accuracies are compared, drawn as a dashed line.
    ranks: by label, of which those with the highest get bands if there are many. title: of a new figure.
    score: what is drawn.
    """
    for name, given, allowed in (("x", x, LABELS), ("size", size, SIZES)):
        if given not in allowed:
            raise InputError(name, given, one_of(given, allowed))
    with style():
        if axes is None:
            _, axes = plt.subplots(figsize=SIZES[size])
            axes.set_title(title)
        dress(axes)
        curves, levels = curves_over(x, runs, scale_of(score.name))
        draw_curves(axes, curves, levels, choose_bands(ranks or dict.fromkeys(runs, 0.0)))
        axes.set(xlabel=LABELS[x], ylabel=f"Test {score.label}")
        if horizon and x == "slots":
            mark_horizon(axes, horizon)
        has_room = figure_of(axes).get_layout_engine() is not None  # it makes room for names
        if len(runs) > 1 and not (has_room and name_ends(axes)):
            axes.legend(loc="best")
    return axes


def mark_horizon(axes: Axes, horizon: float) -> None:
    """Draw a dashed line at the slots at which accuracies are compared."""
    axes.axvline(horizon, color="#999999", linewidth=0.8, linestyle="--", zorder=1)


def draw_curves(axes: Axes, curves: Mapping[str, Curve], levels: Mapping[str, float], banded: Collection[str]) -> None:
    """Draw curves, and levels as horizontal lines; `banded` are the labels of those with a band."""
    styles = looks([*curves, *levels])
    for name, (x, accuracies, scale) in curves.items():
        band(axes, x, accuracies, name, banded=name in banded, scale=scale, **styles[name])
    for name, accuracy in levels.items():
        axes.axhline(accuracy, label=name, **styles[name])
    axes.set_xlim(0, max((x[-1] for x, *_ in curves.values()), default=1) or 1)


def band(
    axes: Axes, x: Array, curves: Array, label: str, *, banded: bool = True, scale: Scale = SHARES, **look: Any
) -> None:
    """Draw the mean of curves (seeds, points) where every seed has a value, with its 95% confidence band.

    The band is computed on a scale; that of accuracies is the logit. The curves of two seeds have none; they are drawn
    themselves, thinly.
    """
    table = Curve(x, curves, scale).table()
    axes.plot(table["x"], table["mean"], label=label, **look)
    if len(curves) >= LEAST and banded:
        axes.fill_between(table["x"], table["low"], table["high"], color=look["color"], alpha=0.18, linewidth=0)
    elif len(curves) == 2:
        axes.plot(x, curves.T, color=look["color"], linewidth=0.4, alpha=0.6)


def choose_bands(ranks: Mapping[str, float]) -> list[str]:
    """Return the labels of the curves that have bands: all if they are few, else those of the highest rank."""
    return list(ranks) if len(ranks) <= BANDS else sorted(ranks, key=lambda name: -ranks[name])[:BANDS]


def name_ends(axes: Axes) -> bool:
    """Write the name of each curve beside its end, in its colour; return whether the names are short and few enough.

    Limits and size of the axes must be set.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    names = [str(line.get_label()) for line in lines]
    low, high = axes.get_ylim()
    size = plt.rcParams["legend.fontsize"]
    height = axes.get_window_extent().height / figure_of(axes).dpi * 72 / (1.15 * size)  # in lines of text
    if max(map(len, names), default=0) > LONGEST or len(names) > height:
        return False
    ends = np.array([float(np.asarray(line.get_ydata())[-1]) for line in lines])
    places = apart(np.clip((ends - low) / (high - low), 0, 1), 1 / height)
    beside = partial(axes.annotate, xycoords="axes fraction", textcoords="offset points", va="center", fontsize=size)
    for name, line, place in zip(names, lines, places, strict=True):
        beside(name, (1, place), (4, 0), color=line.get_color())
    return True


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes are in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def apart(heights: Array, distance: float) -> Array:
    """Return heights (n,) that are moved as little as possible (least squares) to be `distance` apart, in their order.

    >>> apart(np.array([0.5, 0.9, 0.5]), 0.2).round(3).tolist()
    [0.4, 0.9, 0.6]
    """
    order = np.argsort(heights, kind="stable")
    steps = distance * np.arange(len(heights))
    moved = np.empty(len(heights))
    moved[order] = isotonic_regression(heights[order] - steps).x + steps if len(heights) else []
    return moved
