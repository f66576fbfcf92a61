"""The figures of a comparison: accuracy over slots and rounds, slots to reach targets, use of the uplink slots."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.curves import curves_over
from fedslot.experiments.estimates import LEAST, Estimate
from fedslot.runs.results import X
from fedslot.views.curves import LABELS, choose_bands, draw_curves, mark_horizon, name_ends
from fedslot.views.style import COLUMN, looks

LETTER = 0.058  # mean width of a letter of a legend in inches


RULES = {"max": "by the clock", "frame": "all announced slots", "sum": "summed over UEs"}
"""The cost rules in words."""


def accuracy_by(comparison: Comparison, x: X = "slots") -> Figure:
    """Draw test accuracy against slots spent by the clock, rounds, seconds or joules: as a whole, and where it ends."""
    (curves, levels), best = curves_over(x, comparison.tables, comparison.scale), with_bands(comparison)
    count = len(comparison.runs)
    figure, panels = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.75 * COLUMN + 0.06 * count), width_ratios=(2, 3))
    for axes in panels:
        draw_curves(axes, curves, levels, best)
        axes.set(xlabel=LABELS[x], ylabel=f"Test {comparison.score.label}")
    zoom(panels[0], panels[1], comparison.score.share)
    if not name_ends(panels[1]):
        legend_above(figure, panels[0])
    if x == "slots":
        for axes in panels:
            mark_horizon(axes, comparison.horizon)
    return figure


def slots_to_targets(comparison: Comparison) -> Figure:
    """Draw the slots to target accuracies, counted in two ways, and how many runs reached them if not all did."""
    rules = (comparison.scenario.rule_label, "sum")
    names = comparison.strategies
    size = (max(2 * COLUMN, 1.15 * len(comparison.targets) + 0.9), len(rules) * (0.5 + 0.17 * len(names)) + 0.3)
    figure, panels = plt.subplots(
        len(rules), len(comparison.targets), figsize=size, sharex="row", sharey=True, squeeze=False
    )
    estimates, colors = comparison.estimates(), looks(names)
    for row, rule in zip(panels, rules, strict=True):
        for axes, target in zip(row, comparison.targets, strict=True):
            for position, name in enumerate(names):
                _range(axes, position, estimates[name][f"slots_to_{target:g}_{rule}"], colors[name]["color"])
            title = f"to {comparison.score.label} {target:g}"
            axes.set(title=title, xlabel=f"Slots, {RULES.get(rule, 'own cost rule')}")
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.xaxis.get_major_locator().set_params(nbins=3, integer=True)
        highest = max((axes.dataLim.x1 for axes in row if np.isfinite(axes.dataLim.x1)), default=1)
        row[0].set_xlim(0, 1.2 * highest)  # room for words
    return figure


def on_the_air(comparison: Comparison) -> Figure:
    """Draw the mean use of the uplink slots of a frame by strategy: received, collided, wasted."""
    parts = {
        "pulled": ("received in pull slots", "#0072B2"),
        "push_received": ("received in push slots", "#D55E00"),
        "collided": ("collided transmissions", "#bbbbbb"),
        "wasted": ("pulled but not ready", "#F0E442"),
    }
    figure, axes = plt.subplots(figsize=(COLUMN, 0.3 * COLUMN + 0.22 * len(comparison.runs)))
    names = comparison.strategies[::-1]
    left = np.zeros(len(names))
    for column, (label, color) in parts.items():
        means = np.array(
            [np.mean([result.rounds[column].mean() for result in comparison.runs[name]]) for name in names]
        )
        if means.any():
            axes.barh(names, means, left=left, color=color, label=label, height=0.7)
        left += means
    axes.set(xlabel="UEs per frame")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


FIGURES: dict[str, Callable[[Comparison], Figure]] = {
    "accuracy_by_slots": accuracy_by,
    "accuracy_by_round": partial(accuracy_by, x="rounds"),
    "slots_to_targets": slots_to_targets,
    "on_the_air": on_the_air,
}


def figures(against: X = "slots") -> dict[str, Callable[[Comparison], Figure]]:
    """Return the functions that draw the figures of a comparison, by name; `against` may add a curve to the usual."""
    return FIGURES if against == "rounds" else {f"accuracy_by_{against}": partial(accuracy_by, x=against)} | FIGURES


def with_bands(comparison: Comparison) -> list[str]:
    """Return the strategies whose curves have bands: all if they are few, else those with the best accuracy."""
    return [] if len(comparison.seeds) < LEAST else choose_bands(comparison.ranks())


def zoom(whole: Axes, near: Axes, share: bool = True) -> None:
    """Limit the second of two panels with the same curves to the range where these end, which the first shades.

    share: whether curves are from 0 to 1.
    """
    heights = [np.asarray(line.get_ydata(), dtype=float) for line in whole.get_lines()]
    late = np.concatenate([height[len(height) // 4 :] for height in heights])
    low, high = np.nanquantile(late, 0.1), np.nanmax(late) if share else np.nanquantile(late, 0.9)
    margin = max(0.15 * (high - low), 0.005 if share else 1e-6 * abs(high))
    low, high = low - margin, high + margin
    if share:
        low, high = max(0.0, low), min(1.0, high)
        whole.set_ylim(0, 1)
    near.set_ylim(low, high)
    whole.axhspan(low, high, color="#f2f2f2", zorder=0)
    near.set_facecolor("#fafafa")
    near.set_title(f"zoom on the range {low:.2f} to {high:.2f}")


def legend_above(figure: Figure, axes: Axes, title: str = "") -> None:
    """Put the legend of a panel above all panels, in as many columns as the names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    widest = LETTER * max(map(len, names)) + 0.55
    columns = max(1, min(len(names), int(figure.get_figwidth() / widest)))
    figure.legend(handles, names, loc="outside upper center", ncols=columns, title=title or None, title_fontsize=7)


def _range(axes: Axes, position: int, estimate: Estimate, color: str) -> None:
    """Draw an estimate in a row: mean and interval, or one or two values, or the median and how many reached it."""
    values = [value for value in estimate.values if not math.isnan(value)]
    if estimate.total < LEAST:
        axes.plot(values, [position] * len(values), "o", color=color, markersize=3.5)
        where, words = (max(values, default=0), "" if estimate.complete else estimate.reached)
    elif estimate.complete:
        axes.plot([estimate.low, estimate.high], [position] * 2, color=color, linewidth=1.2)
        axes.plot(estimate.mean, position, "o", color=color, markersize=4)
        where, words = estimate.high, ""
    else:
        axes.plot(estimate.median, position, "D", color=color, markersize=4, fillstyle="none")
        where, words = np.nan_to_num(estimate.median), estimate.reached
    if not estimate.count:
        words = estimate.scale.missing
    axes.annotate(words, (where, position), (4, 0), textcoords="offset points", va="center", fontsize=5.5, color=color)
