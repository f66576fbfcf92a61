"""The paper's figures, drawn from our runs; published curves are dashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedslot.experiments import ACCURACY, LEAST, SLOTS, Estimate
from fedslot.studies.reproduction.experiments import (
    CONTENDERS,
    FEW,
    FIG2,
    FIVE,
    MANY,
    PUBLISHED_EPOCHS,
    PUBLISHED_NAMES,
    Reproduction,
)
from fedslot.studies.reproduction.published import published
from fedslot.views import COLUMN, band, legend_above, zoom

COLORS = {
    "Proposed (5/10)": "#E69F00",
    "Proposed (10/10)": "#D55E00",
    "Proposed (20/10)": "#8C2D04",
    "GreedyShap (20)": "#0072B2",
    "FedAvg (20)": "#009E73",
    "Centralized (20)": "#555555",
    "Only pull": "#CC79A7",
}
Rule = Literal["max", "sum"]
HEIGHT = 0.75 * COLUMN


def fig2_as_published(reproduction: Reproduction) -> Figure:
    """Draw Fig. 2 with the unequal local epochs that match its curves."""
    figure, panels = plt.subplots(1, 2, figsize=(2 * COLUMN, 1.1 * HEIGHT), width_ratios=(2, 3))
    paper = published("fig2")
    for axes in panels:
        for name in FIG2:
            epochs = PUBLISHED_EPOCHS[name]
            _curve(axes, reproduction, "mnist", name, epochs, label=f"{name}, E = {epochs}")
            shown = paper[name].iloc[: reproduction.rounds or len(paper)]
            axes.plot(shown.index, shown, color=COLORS[name], linestyle="--", linewidth=0.7)
        axes.plot([], [], color="black", linestyle="--", linewidth=0.7, label="published")
    _finish(figure, panels, "as published: unequal epochs")
    return figure


def fig2_equal(reproduction: Reproduction) -> Figure:
    """Draw Fig. 2 with the same number of local epochs for every strategy, few or many."""
    return _convergence(reproduction, {f"E = {epochs} for all": ("mnist", epochs) for epochs in (FEW, MANY)})


def fig3(reproduction: Reproduction) -> Figure:
    """Draw Fig. 3: convergence on MNIST and CIFAR-10 at equal local epochs (its published data are not available)."""
    data = {"MNIST, MLP": "mnist", "CIFAR-10, CNN": "cifar10"}
    return _convergence(reproduction, {f"{title}, E = {FEW} for all": (name, FEW) for title, name in data.items()})


def _convergence(reproduction: Reproduction, columns: Mapping[str, tuple[str, int]]) -> Figure:
    """Draw the curves of five strategies; columns: data set and number of local epochs by title."""
    figure, panels = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.7 * HEIGHT))
    for column, (title, (dataset, epochs)) in zip(panels.T, columns.items(), strict=True):
        for axes in column:
            for name in FIVE:
                _curve(axes, reproduction, dataset, name, epochs, label=name)
        _finish(figure, column, title)
    return figure


def fig5(reproduction: Reproduction) -> Figure:
    """Draw Fig. 5: final accuracy by number of contenders, on which strategies without push do not depend."""
    figure, panels = plt.subplots(1, 2, figsize=(2 * COLUMN, HEIGHT), sharey=True)
    paper = published("fig5")
    for axes, equal in zip(panels, (False, True), strict=True):
        for index, (name, column) in enumerate(PUBLISHED_NAMES.items()):
            x = np.array(CONTENDERS) + 0.4 * (index - 2)  # side by side, so that intervals do not overlap
            epochs = MANY if equal else PUBLISHED_EPOCHS[name]
            curves = [name] * len(CONTENDERS)
            if column == "Proposed":
                curves = [f"Proposed ({contenders}/10)" for contenders in CONTENDERS]
            finals = [accuracy_after(reproduction, curve, epochs) for curve in curves]
            axes.plot(x, [estimate.mean for estimate in finals], "o-", color=COLORS[name], markersize=3, label=column)
            _spread(axes, x, finals, COLORS[name])
            if not equal:
                axes.plot(paper.index, paper[column], color=COLORS[name], linestyle="--", linewidth=0.7, marker="x")
        axes.set(
            xlabel="Number of contenders N", title=f"E = {MANY} for all" if equal else "as published: unequal epochs"
        )
        axes.set_xticks(CONTENDERS)
    panels[0].set_ylabel("Final test accuracy")
    panels[0].plot([], [], color="black", linestyle="--", linewidth=0.7, marker="x", label="published")
    legend_above(figure, panels[0])
    return figure


def fig6(reproduction: Reproduction) -> Figure:
    """Draw Fig. 6: slots to target accuracies, summed over UEs as the paper plots them, and by the clock."""
    figure, panels = plt.subplots(1, 2, figsize=(2 * COLUMN, HEIGHT))
    paper = published("fig6")
    names = ("FedAvg (20)", "GreedyShap (20)", "Proposed (10/10)")
    titles: dict[Rule, str] = {"sum": "summed over UEs, as plotted in the paper", "max": "by the clock"}
    width = 0.27
    for axes, (rule, title) in zip(panels, titles.items(), strict=True):
        for position, name in enumerate(names):
            column = PUBLISHED_NAMES[name]
            x = np.arange(len(paper), dtype=np.float64) + (position - 1) * width
            estimates = [slots_to(reproduction, name, PUBLISHED_EPOCHS[name], target, rule) for target in paper.index]
            means = [estimate.mean for estimate in estimates]
            axes.bar(x, means, width, color=COLORS[name], label=f"{column}, E = {PUBLISHED_EPOCHS[name]}")
            _spread(axes, x, estimates, "black")
            for place, estimate in zip(x, estimates, strict=True):
                words = "never" if not estimate.count else "" if estimate.complete else estimate.reached
                axes.annotate(
                    words, (place, 0), (0, 2), textcoords="offset points", rotation=90, ha="center", fontsize=5
                )
            if rule == "sum":
                outline = {"fill": False, "edgecolor": "black", "linestyle": "--", "linewidth": 0.6}
                axes.bar(x, paper[column], width, label="published" if position == 0 else None, **outline)
        axes.set_xticks(range(len(paper)), [f"{target:g}" for target in paper.index])
        axes.set_xlim(-0.6, len(paper) - 0.4)  # also where no bar stands
        axes.set(xlabel="Target accuracy", ylabel="Slots", title=title)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(bottom=0)
    legend_above(figure, panels[0])
    return figure


DRAWINGS = {
    "fig2": {"fig2_as_published": fig2_as_published, "fig2_equal": fig2_equal},
    "fig3": {"fig3": fig3},
    "fig5": {"fig5": fig5},
    "fig6": {"fig6": fig6},
}


def slots_to(reproduction: Reproduction, name: str, epochs: int, target: float, rule: Rule) -> Estimate:
    """Estimate the slots to a target accuracy over seeds."""
    slots = [result.slots_to(target, rule) for result in reproduction.results("mnist", name, epochs)]
    return Estimate.of(slots, SLOTS)


def accuracy_after(
    reproduction: Reproduction, name: str, epochs: int, round: int = -1, dataset: str = "mnist"
) -> Estimate:
    """Estimate the accuracy after a round, by default the last, over seeds."""
    results = reproduction.results(dataset, name, epochs)
    return Estimate.of([float(result.rounds["test_accuracy"].iloc[round]) for result in results], ACCURACY)


def _curve(axes: Axes, reproduction: Reproduction, dataset: str, name: str, epochs: int, label: str) -> None:
    results = reproduction.results(dataset, name, epochs)
    curves = np.array([result.rounds["test_accuracy"].to_numpy() for result in results])
    band(axes, np.arange(curves.shape[1], dtype=float), curves, label=label, color=COLORS[name])


def _spread(axes: Axes, x: NDArray[np.float64], estimates: Sequence[Estimate], color: str) -> None:
    """Draw the intervals of estimates, or both values of two seeds."""
    if estimates[0].total >= LEAST:
        axes.vlines(x, [e.low for e in estimates], [e.high for e in estimates], color=color, linewidth=0.7)
    elif estimates[0].total == 2:
        axes.plot(np.repeat(x, 2), [value for e in estimates for value in e.values], ".", color=color, markersize=2.5)


def _finish(figure: Figure, panels: Sequence[Axes], title: str) -> None:
    """Let the first panel show all and the second the range where the curves end, with one legend for both."""
    for axes in panels:
        axes.set(xlabel="Global round", ylabel="Test accuracy")
    panels[0].set_title(title)
    zoom(panels[0], panels[1])
    if not figure.legends:
        legend_above(figure, panels[0])
