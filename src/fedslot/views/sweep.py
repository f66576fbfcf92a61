"""The figures of a sweep: a heat map over two axes or curves over one, with a panel per value of further axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter, NullLocator

from fedslot.experiments.estimates import Estimate
from fedslot.experiments.study import Combination, say_value
from fedslot.experiments.sweeps import Sweep
from fedslot.views.style import COLUMN, look, save, style

LABELS = {
    "frame.slots": "Uplink slots, M",
    "frame.pull": "Pull slots, Q",
    "push.contenders": "Contenders, N",
    "data.ues": "UEs, K",
    "data.alpha": "Dirichlet alpha",
    "fleet.noise": "Noise of updates",
    "fleet.stragglers": "Stragglers",
    "training.lr": "Learning rate",
    "training.epochs": "Local epochs, E",
    "strategy.name": "Strategy",
    "strategy.memory": "Memory",
    "rounds": "Rounds",
    "time_budget": "Time budget in slots",
}
EMPTY_CELL = "#eeeeee"
WIDEST = 4  # panels side by side
LETTER = 0.08  # width of a letter of a label in inches, at most


def write_figures(sweep: Sweep, out: Path) -> list[Path]:
    """Draw every measure that at least one run has, as PNG and PDF, and return the paths of the files."""
    wanted = ["final_accuracy", "accuracy_at_horizon", *(f"slots_to_{target:g}_max" for target in sweep.targets)]
    drawable = [name for name in wanted if any(cell[name].count for cell in sweep.estimates() if name in cell)]
    with style():
        return [file for name in drawable for file in save(draw(sweep, name), out / "figures" / name)]


def draw(sweep: Sweep, measure: str) -> Figure:
    """Draw one measure over the grid.

    The first two axes with several values span a heat map, or curves if one of them has text values. A third axis gives
    columns of panels, a fourth rows. The others are fixed at their first value, which the title states.
    """
    axes = _Layout.of(sweep)
    rows = list(itertools.product(*(sweep.study.grid[key] for key in axes.rows)))
    columns = list(itertools.product(*(sweep.study.grid[key] for key in axes.columns)))
    tall = len(rows) if axes.rows else -(-len(columns) // WIDEST)
    wide = -(-len(rows) * len(columns) // tall)
    figure, panels = plt.subplots(tall, wide, figsize=_size(sweep, axes, tall, wide), squeeze=False)
    cells = list(itertools.product(rows, columns))
    paint = _Heat(sweep, measure, axes) if axes.heat else _Curves(sweep, measure, axes)
    for panel in panels.flat[len(cells) :]:
        panel.set_visible(False)
    for panel, (row, column) in zip(panels.flat, cells, strict=False):
        here = dict(zip((*axes.rows, *axes.columns), (*row, *column), strict=True))
        paint.panel(panel, {**axes.fixed, **here})
        panel.set_title(_title(here))
        panel.label_outer()
    paint.finish(figure, panels)
    if axes.fixed:
        figure.suptitle(_title(axes.fixed), fontsize=7)
    return figure


def is_numeric(values: Sequence[object]) -> bool:
    """Return whether all values are numbers."""
    return all(type(value) in (int, float) for value in values)


def label(key: str) -> str:
    """Return the label of an axis."""
    return LABELS.get(key, key)


def measure_label(sweep: Sweep, measure: str) -> str:
    """Return the label of a measure."""
    if measure.startswith("slots_to_"):
        return f"Slots to accuracy {measure.split('_')[2]}"
    return {
        "final_accuracy": "Final test accuracy",
        "accuracy_at_horizon": f"Test accuracy after {sweep.horizon} slots",
    }[measure]


@dataclass(frozen=True)
class _Layout:
    """The role of each axis. x, y: of a panel; y is None for a single curve. fixed: axes that are not shown."""

    x: str
    y: str | None
    heat: bool
    columns: list[str]
    rows: list[str]
    fixed: Combination

    @classmethod
    def of(cls, sweep: Sweep) -> _Layout:
        grid = sweep.study.grid
        shown = [key for key in grid if len(grid[key]) > 1] or list(grid)[:1]
        x, y = shown[0], shown[1] if len(shown) > 1 else None
        numeric = {key: is_numeric(grid[key]) for key in shown}
        heat = y is not None and numeric[x] == numeric[y]
        if y is not None and not heat and not numeric[x]:
            x, y = y, x
        fixed = {key: values[0] for key, values in grid.items() if key not in shown[:4]}
        return cls(x, y, heat, shown[2:3], shown[3:4], fixed)


class _Panels:
    """Panels of one measure, and its estimates by combination."""

    def __init__(self, sweep: Sweep, measure: str, axes: _Layout) -> None:
        self.sweep, self.measure, self.axes = sweep, measure, axes
        self.xs = list(sweep.study.grid[axes.x])
        self.ys = list(sweep.study.grid[axes.y]) if axes.y else [None]
        self._estimates = {
            _key(combination): cell[measure]
            for combination, cell in zip(sweep.study.combinations, sweep.estimates(), strict=True)
            if axes.fixed.items() <= combination.items()
        }
        self.lower_is_better = measure.startswith("slots_to_")

    def at(self, where: Combination, x: object, y: object) -> Estimate:
        full = {**where, self.axes.x: x, **({self.axes.y: y} if self.axes.y else {})}
        return self._estimates[_key({key: full[key] for key in self.sweep.study.grid})]

    def means(self) -> list[float]:
        return [estimate.mean for estimate in self._estimates.values() if estimate.count] or [0.0]

    def best(self) -> float:
        return min(self.means()) if self.lower_is_better else max(self.means())


class _Heat(_Panels):
    """Heat maps with the means as text; brighter is better, and a frame marks the best cell of all panels."""

    def __init__(self, sweep: Sweep, measure: str, axes: _Layout) -> None:
        super().__init__(sweep, measure, axes)
        self.colors = colormaps["viridis_r" if self.lower_is_better else "viridis"]
        self.norm = Normalize(min(self.means()), max(self.means()))
        self.image: Any = None

    def panel(self, panel: Axes, where: Combination) -> None:
        estimates = [[self.at(where, x, y) for x in self.xs] for y in self.ys]
        means = np.array([[estimate.mean for estimate in row] for row in estimates])
        panel.set_facecolor(EMPTY_CELL)
        self.image = panel.imshow(means, cmap=self.colors, norm=self.norm, aspect="auto", origin="lower")
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        panel.set_xticks(range(len(self.xs)), [say_value(x) for x in self.xs])
        panel.set_yticks(range(len(self.ys)), [say_value(y) for y in self.ys])
        panel.set(xlabel=label(self.axes.x), ylabel=label(self.axes.y or ""))
        for (row, column), mean in np.ndenumerate(means):
            self._write(panel, column, row, estimates[row][column])
            if mean == self.best():
                frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=1.6)
                panel.add_patch(frame).set_clip_on(False)

    def _write(self, panel: Axes, x: int, y: int, estimate: Estimate) -> None:
        form = ".0f" if self.lower_is_better else ".3f"
        text = estimate.point(form, estimate.fraction("\n{}/{}"))
        if not estimate.count and not self.lower_is_better:
            text = "failed"
        dark = estimate.count and np.dot(self.colors(self.norm(estimate.mean))[:3], (0.3, 0.59, 0.11)) < 0.5
        panel.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=6.5)

    def finish(self, figure: Figure, panels: Any) -> None:
        bar = figure.colorbar(self.image, ax=panels, pad=0.02, aspect=25)
        bar.outline.set_visible(False)
        letters = int(figure.get_figheight() / LETTER)  # that fit along the colour bar
        bar.set_label(fill(measure_label(self.sweep, self.measure), max(8, letters)))


class _Curves(_Panels):
    """Curves of means with 95% confidence bands, one for each value of the other axis."""

    def panel(self, panel: Axes, where: Combination) -> None:
        numeric = is_numeric(self.xs)
        order = sorted(range(len(self.xs)), key=lambda i: self.xs[i]) if numeric else list(range(len(self.xs)))
        positions = np.array([self.xs[i] if numeric else i for i in order], dtype=float)
        for index, y in enumerate(self.ys):
            estimates = [self.at(where, self.xs[i], y) for i in order]
            mean, low, high = (np.array([getattr(e, name) for e in estimates]) for name in ("mean", "low", "high"))
            looks = {"color": "#0072B2", "linestyle": "-"} if y is None else look(say_value(y), index)
            name = None if y is None else say_value(y)
            if numeric:
                panel.plot(positions, mean, marker="o", markersize=3, label=name, **looks)
                panel.fill_between(positions, low, high, color=looks["color"], alpha=0.15, linewidth=0)
            else:
                for position, e in zip(positions, estimates, strict=True):
                    color = look(say_value(self.xs[int(position)]), int(position))["color"]
                    half = 0 if math.isnan(e.low) else e.high - e.mean
                    panel.errorbar(position, e.mean, half, fmt="o", markersize=4, capsize=2, color=color)
                panel.set_xlim(-0.5, len(positions) - 0.5)
        if numeric and positions[0] > 0 and positions[-1] / positions[0] >= 50:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_minor_formatter(NullFormatter())
        if len(positions) <= 8:
            panel.set_xticks(positions, [say_value(self.xs[i]) for i in order])
        panel.set(xlabel=label(self.axes.x), ylabel=measure_label(self.sweep, self.measure))

    def finish(self, figure: Figure, panels: Any) -> None:
        limits = [panel.get_ylim() for panel in panels.flat if panel.get_visible()]
        for panel in panels.flat:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if self.axes.y is not None:
            handles, names = panels.flat[0].get_legend_handles_labels()
            figure.legend(
                handles, names, loc="outside upper center", ncols=min(len(names), 3), title=label(self.axes.y)
            )


def _size(sweep: Sweep, axes: _Layout, tall: int, wide: int) -> tuple[float, float]:
    """Return width and height in inches: one column of a paper for one panel, two for several; more for many cells."""
    grid = sweep.study.grid
    width = COLUMN if wide == 1 else 2 * COLUMN
    if not axes.heat:
        return width, tall * max(0.7 * width / wide, 1.7) + (0.35 if axes.y else 0)
    x, y = len(grid[axes.x]), len(grid[axes.y or axes.x])
    needed = wide * (0.38 * x + 0.25) + 1.1
    return max(width, needed), tall * max(0.32 * y + 0.35, 1.2) + 0.35


def _title(combination: Combination) -> str:
    """Return a combination as a title, without the symbols of the axes."""
    return ", ".join(f"{label(key).split(',')[0]} = {say_value(value)}" for key, value in combination.items())


def _key(combination: Combination) -> tuple[str, ...]:
    return tuple(map(say_value, combination.values()))
