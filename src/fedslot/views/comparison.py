"""The figures of a comparison: accuracy over slots and rounds, slots to reach targets, use of the uplink slots."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import half_width
from fedslot.runs import Result
from fedslot.views.style import COLUMN, look

POINTS = 400  # number of points of a curve over slots


def accuracy_by_slots(comparison: Comparison) -> Figure:
    """Draw test accuracy against slots spent by the clock, the main result."""
    figure, axes = plt.subplots(figsize=(COLUMN, 0.72 * COLUMN))
    longest = max(result.slots_spent for results in comparison.runs.values() for result in results)
    slots = np.linspace(0, longest, POINTS)
    for position, (name, results) in enumerate(comparison.runs.items()):
        band(axes, slots, np.array([_at_slots(result, slots) for result in results]), name, **look(name, position))
    if comparison.scenario.time_budget is not None:
        axes.axvline(comparison.scenario.time_budget, color="#999999", linewidth=0.8, linestyle="--")
    axes.set(xlabel="Slots spent", ylabel="Test accuracy", xlim=(0, longest), ylim=_zoom(axes))
    axes.legend(loc="lower right")
    return figure


def accuracy_by_round(comparison: Comparison) -> Figure:
    """Draw test accuracy against global rounds, as most papers do."""
    figure, axes = plt.subplots(figsize=(COLUMN, 0.72 * COLUMN))
    for position, (name, results) in enumerate(comparison.runs.items()):
        shortest = min(len(result.rounds) for result in results)
        curves = np.array([result.rounds["test_accuracy"].to_numpy()[:shortest] for result in results])
        band(axes, np.arange(shortest, dtype=float), curves, name, **look(name, position))
    axes.set(xlabel="Global round", ylabel="Test accuracy", ylim=_zoom(axes))
    axes.legend(loc="lower right")
    return figure


def slots_to_targets(comparison: Comparison) -> Figure:
    """Draw the slots to target accuracies under both cost rules; a cross means that a run missed the target."""
    figure, panels = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.72 * COLUMN))
    titles = {"max": "By the clock (max rule)", "sum": "As plotted in the paper (sum rule)"}
    estimates = comparison.estimates()
    width = 0.8 / len(estimates)
    for axes, (rule, title) in zip(panels, titles.items(), strict=True):
        for position, (name, measures) in enumerate(estimates.items()):
            for index, target in enumerate(comparison.targets):
                x = index + (position - (len(estimates) - 1) / 2) * width
                estimate = measures[f"slots_to_{target:g}_{rule}"]
                label = name if index == 0 else None
                if estimate.count < estimate.total:
                    axes.bar(x, 0, width, color=look(name, position)["color"], label=label)
                    axes.annotate("×", (x, 0), ha="center", va="bottom", color=look(name, position)["color"])
                    continue
                half = np.nan_to_num(estimate.high - estimate.mean)
                axes.bar(x, estimate.mean, width, color=look(name, position)["color"], label=label)
                axes.errorbar(x, estimate.mean, half, color="black", linewidth=0.7, capsize=1.5)
        axes.set(xlabel="Target accuracy", ylabel="Slots", title=title)
        axes.set_xticks(range(len(comparison.targets)), [f"{target:g}" for target in comparison.targets])
        axes.set_ylim(bottom=0)
        axes.grid(axis="x", visible=False)
    panels[0].legend(loc="upper left")
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


FIGURES = {
    "accuracy_by_slots": accuracy_by_slots,
    "accuracy_by_round": accuracy_by_round,
    "slots_to_targets": slots_to_targets,
    "on_the_air": on_the_air,
}


def _at_slots(result: Result, slots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the accuracy of the last complete round at each of the slots; NaN before the first and after the last."""
    spent = result.rounds["slots_spent"].to_numpy()
    accuracy = np.concatenate([[np.nan], result.rounds["test_accuracy"].to_numpy()])
    found = accuracy[np.searchsorted(spent, slots, side="right")]
    return np.where(slots > spent[-1], np.nan, found)


def _zoom(axes: Axes) -> tuple[float, float]:
    """Return limits of the y-axis that leave out the lowest tenth, where all curves rise alike."""
    heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    return float(np.floor(10 * np.quantile(heights, 0.1)) / 10), 1.0


def band(axes: Axes, x: NDArray[np.float64], curves: NDArray[np.float64], label: str, **look: Any) -> None:
    """Draw the mean of curves (seeds, points) with its confidence band, where every seed has a value."""
    here = ~np.isnan(curves).any(axis=0)
    x, curves = x[here], curves[:, here]
    mean = curves.mean(axis=0)
    axes.plot(x, mean, label=label, **look)
    if len(curves) > 1:
        half = half_width(curves)
        axes.fill_between(x, mean - half, mean + half, color=look["color"], alpha=0.15, linewidth=0)
