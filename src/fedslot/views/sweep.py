"""The figures of a sweep: a heat map over two axes or curves over one, with a panel per value of further axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from numpy.typing import NDArray

from fedslot.experiments.estimates import LEAST, Estimate, describe
from fedslot.experiments.grid import Combination, say_value
from fedslot.experiments.sweeps import Sweep
from fedslot.views.comparison import legend_above
from fedslot.views.curves import BANDS
from fedslot.views.style import COLUMN, Look, looks, save_figures, style

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
DPI = 160  # on a screen; figures have the size of a paper's column
LETTER = 0.08  # width of a letter of a label in inches, at most
SMALL_LETTER = 0.048  # and of a letter of a note


def plot_sweep(sweep: Sweep, measure: str) -> NDArray[Any]:
    """Draw one measure over the grid for the screen, and return the axes of its panels."""
    with style(), plt.rc_context({"figure.dpi": DPI}):
        figure = draw(sweep, measure)
    return np.array([axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"])


def write_figures(sweep: Sweep, out: Path) -> list[Path]:
    """Draw every measure that at least one run has, as PNG and PDF, and return the paths of the files."""
    wanted = [sweep.final_measure, sweep.horizon_measure, *map(sweep.slots_measure, sweep.targets)]
    drawable = [name for name in wanted if any(cell[name].count for cell in sweep.estimates())]
    return save_figures({name: partial(draw, sweep, name) for name in drawable}, out / "figures")


def draw(sweep: Sweep, measure: str) -> Figure:
    """Draw one measure over the grid.

    The first two axes with several values span a heat map, or curves if one of them has text values. A third axis gives
    columns of panels, a fourth rows. The others are fixed at their first value, which the title states.
    """
    layout = _Layout.of(sweep.study.grid)
    grid, cells = sweep.study.grid, layout.cells
    rows, columns = cells.shape[:2]
    tall = rows if layout.row else -(-columns // WIDEST)
    wide = -(-rows * columns // tall)
    figure, panels = plt.subplots(tall, wide, figsize=layout.size(tall, wide), squeeze=False)
    painter = (_Heat if layout.heat else _Curves)(sweep, measure, layout)
    for panel in panels.flat[rows * columns :]:
        panel.set_visible(False)
    for panel, (row, column) in zip(panels.flat, np.ndindex(rows, columns), strict=False):
        painter.panel(panel, cells[row, column])
        places = {layout.row: row, layout.column: column}
        panel.set_title(_title({key: grid[key][place] for key, place in places.items() if key}))
        panel.label_outer()
    painter.finish(figure, panels)
    if layout.fixed:
        figure.suptitle(_title(layout.fixed), fontsize=7)
    return figure


@dataclass(frozen=True)
class _Layout:
    """The role of each axis of a grid: x and y within a panel, the columns and the rows of panels; None where unused.

    heat: whether panels are heat maps. cells: indices of the combinations shown, (rows, columns, y, x).
    fixed: the values of axes that are not shown.
    """

    x: str
    y: str | None
    column: str | None
    row: str | None
    heat: bool
    cells: NDArray[np.intp]
    fixed: Combination

    @classmethod
    def of(cls, grid: Mapping[str, Sequence[Any]]) -> _Layout:
        shown = [key for key in grid if len(grid[key]) > 1][:4] or list(grid)[:1]
        x, (y, column, row) = shown[0], [*shown[1:], None, None, None][:3]
        heat = y is not None and _is_numeric(grid[x]) == _is_numeric(grid[y])
        if y is not None and not heat and not _is_numeric(grid[x]):
            x, y = y, x
        fixed = {key: values[0] for key, values in grid.items() if key not in shown}
        indices = np.arange(math.prod(map(len, grid.values()))).reshape([len(values) for values in grid.values()])
        indices = indices[tuple(0 if key in fixed else slice(None) for key in grid)]
        axes, roles = [key for key in grid if key in shown], (row, column, y, x)
        indices = indices.transpose([axes.index(key) for key in roles if key])
        cells = indices.reshape([len(grid[key]) if key else 1 for key in roles])
        return cls(x, y, column, row, heat, cells, fixed)

    def size(self, tall: int, wide: int) -> tuple[float, float]:
        """Return width and height in inches: a paper's column for one panel, two for several; more for many cells."""
        width = COLUMN if wide == 1 else 2 * COLUMN
        if not self.heat:
            return width, tall * max(0.7 * width / wide, 1.7) + 0.15 + (0.35 if self.y else 0)
        _, _, y, x = self.cells.shape
        return max(width, wide * (0.45 * x + 0.25) + 1.1), tall * max(0.32 * y + 0.35, 1.2) + 0.6


class _Panels:
    """Panels of one measure, and its estimates by combination."""

    def __init__(self, sweep: Sweep, measure: str, layout: _Layout) -> None:
        grid, estimates = sweep.study.grid, sweep.estimates()
        self.sweep, self.measure, self.layout, self.seeds = sweep, measure, layout, sweep.study.seeds
        self.xs, self.ys = grid[layout.x], grid[layout.y] if layout.y else [None]
        self.estimates = {index: estimates[index][measure] for index in sorted(layout.cells.ravel().tolist())}
        self.slots = measure.startswith("slots_to_")
        self.lower_is_better = self.slots or not sweep.score.higher

    @property
    def label(self) -> str:
        """The measure in words."""
        label = self.sweep.score.label
        if self.slots:
            return f"Slots to {label} {self.measure.split('_')[2]}"
        horizon = f"Test {label} after {self.sweep.horizon} slots"
        return horizon if self.measure == self.sweep.horizon_measure else f"Final test {label}"

    def some_lack_runs(self) -> bool:
        """Return whether some but not all runs of a combination failed or missed the target."""
        return any(0 < estimate.count < estimate.total for estimate in self.estimates.values())


class _Heat(_Panels):
    """Heat maps with the means as text; brighter is better.

    A frame marks the best cell of all panels, dots those that may be the best as well. A cell of which a run failed or
    missed the target has no mean and no colour; it says how many runs have a value.
    """

    def __init__(self, sweep: Sweep, measure: str, layout: _Layout) -> None:
        super().__init__(sweep, measure, layout)
        means = [estimate.mean for estimate in self.estimates.values() if estimate.complete] or [0.0]
        self.colors = colormaps["viridis_r" if self.lower_is_better else "viridis"]
        self.norm = Normalize(min(means), max(means))
        self.leaders = sweep.leaders(measure, list(self.estimates))
        self.tested = self.seeds >= LEAST
        self.image: Any = None

    def panel(self, panel: Axes, indices: NDArray[np.intp]) -> None:
        means = [[self.estimates[index].mean for index in row] for row in indices.tolist()]
        panel.set_facecolor(EMPTY_CELL)
        self.image = panel.imshow(means, cmap=self.colors, norm=self.norm, aspect="auto", origin="lower")
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        panel.set_xticks(range(len(self.xs)), [say_value(x) for x in self.xs])
        panel.set_yticks(range(len(self.ys)), [say_value(y) for y in self.ys])
        panel.set(xlabel=_label(self.layout.x), ylabel=_label(self.layout.y or ""))
        for (row, column), index in np.ndenumerate(indices):
            self._fill_cell(panel, column, row, int(index))

    def _fill_cell(self, panel: Axes, x: int, y: int, index: int) -> None:
        estimate = self.estimates[index]
        dark = estimate.complete and np.dot(self.colors(self.norm(estimate.mean))[:3], (0.3, 0.59, 0.11)) < 0.5
        color = "white" if dark else "black"
        panel.text(x, y, self._words(estimate), ha="center", va="center", color=color, fontsize=6.5)
        if index in self.leaders[:1]:
            frame = Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=1.6)
            panel.add_patch(frame).set_clip_on(False)
        elif index in self.leaders and self.tested:
            panel.plot(x + 0.38, y + 0.34, "o", color=color, markersize=2)

    def _words(self, estimate: Estimate) -> str:
        form = ".0f" if self.slots else ".3f"
        if estimate.complete:
            return f"{estimate.mean:{form}}"
        if not estimate.count:
            return "never" if self.slots else "failed"
        return estimate.reached + ("" if math.isnan(estimate.median) else f"\nmed. {estimate.median:{form}}")

    def finish(self, figure: Figure, panels: Any) -> None:
        bar = figure.colorbar(self.image, ax=panels, pad=0.02, aspect=25)
        bar.outline.set_visible(False)
        letters = int(figure.get_figheight() / LETTER)  # that fit along the colour bar
        bar.set_label(fill(self.label, max(8, letters)))
        _write_note(figure, self._notes())

    def _notes(self) -> list[str]:
        """Return what frame, dots and grey cells mean, and how sure the best cell is."""
        notes = []
        if self.leaders and self.tested:
            notes.append(f"Frame: the best mean over {self.seeds} seeds.")
            if len(self.leaders) > 1:
                notes.append("Dots: cells that may be the best as well, by t-tests at 95% for all together.")
            else:
                notes.append("Paired t-tests tell it from all others, at 95% for all together.")
        elif self.leaders:
            notes.append(
                f"Frame: the best {'mean of two seeds' if self.seeds == 2 else 'of one seed'}, maybe by chance."
            )
        if self.some_lack_runs():
            what = "reached the target" if self.slots else "did not fail"
            notes.append(f"k of {self.seeds}: k runs {what}, so there is no mean.")
            if not all(estimate.complete or math.isnan(estimate.median) for estimate in self.estimates.values()):
                notes.append("med.: the median over all runs.")
        return notes


class _Curves(_Panels):
    """Curves of means with 95% confidence bands, one for each value of the other axis; of two seeds, both values.

    A point of which a run failed or missed the target has no mean; a hollow mark is its median over all runs.
    """

    def panel(self, panel: Axes, indices: NDArray[np.intp]) -> None:
        numeric = _is_numeric(self.xs)
        order = np.argsort(self.xs, kind="stable") if numeric else np.arange(len(self.xs))
        positions = np.array(self.xs, dtype=float)[order] if numeric else order.astype(float)
        words = [say_value(self.xs[i]) for i in order]
        for row, (name, look) in zip(indices, self._looks(), strict=True):
            estimates = [self.estimates[int(index)] for index in row[order]]
            if numeric:
                _curve(panel, positions, estimates, name, look, banded=len(self.ys) <= BANDS + 1)
            colors = [look["color"]] * len(words) if numeric else [each["color"] for each in looks(words).values()]
            for position, estimate, color in zip(positions, estimates, colors, strict=True):
                _mark(panel, position, estimate, color, alone=not numeric)
        if not numeric:
            panel.set_xlim(-0.5, len(positions) - 0.5)
        elif positions[0] > 0 and positions[-1] / positions[0] >= 50:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_minor_formatter(NullFormatter())
        if len(positions) <= 8:
            panel.set_xticks(positions, words)
        panel.set(xlabel=_label(self.layout.x), ylabel=self.label)

    def _looks(self) -> list[tuple[str | None, Look]]:
        """Return name and look of each curve; a single one has no name."""
        if self.layout.y is None:
            return [(None, {"color": "#0072B2", "linestyle": "-"})]
        return list(looks(map(say_value, self.ys)).items())

    def finish(self, figure: Figure, panels: Any) -> None:
        limits = [panel.get_ylim() for panel in panels.flat if panel.get_visible()]
        for panel in panels.flat:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if self.layout.y is not None:
            legend_above(figure, panels.flat[0], _label(self.layout.y))
        _write_note(figure, self._notes())

    def _notes(self) -> list[str]:
        """Return what bands and marks mean."""
        kind, what = describe(self.seeds), "missed the target" if self.slots else "failed"
        notes = [f"{kind.capitalize()}."] if kind else []
        if self.seeds >= LEAST and self.some_lack_runs():
            notes.append(f"Hollow: the median over all runs, where some {what}.")
        if not all(estimate.complete for estimate in self.estimates.values()):
            notes.append(f"No mark: {'half of the runs or more' if self.seeds > 1 else 'the run'} {what}.")
        return notes


def _curve(
    panel: Axes, x: NDArray[np.float64], estimates: list[Estimate], name: str | None, look: Look, banded: bool
) -> None:
    """Draw means with a band, or with a line for each interval where bands would cover each other."""
    mean, low, high = (np.array([getattr(estimate, end) for estimate in estimates]) for end in ("mean", "low", "high"))
    panel.plot(x, mean, marker="o", markersize=3, label=name, **look)
    if banded:
        panel.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    else:
        panel.vlines(x, low, high, color=look["color"], linewidth=0.5)


def _mark(panel: Axes, x: float, estimate: Estimate, color: str, alone: bool) -> None:
    """Mark both values of two seeds, or the median where runs have no value, or, if alone, mean and interval."""
    if estimate.total == 2:
        panel.plot([x, x], estimate.values, ".", color=color, markersize=5 if alone else 3)
    elif not estimate.complete:
        panel.plot(x, estimate.median, "D", color=color, markersize=4, fillstyle="none")
    elif alone:
        panel.plot([x, x], [estimate.low, estimate.high], color=color)
        panel.plot(x, estimate.mean, "o", color=color, markersize=4)


def _write_note(figure: Figure, notes: list[str]) -> None:
    """Write a caption below the panels."""
    if notes:
        figure.supxlabel(fill(" ".join(notes), int(figure.get_figwidth() / SMALL_LETTER)), fontsize=6, color="#555555")


def _is_numeric(values: Sequence[object]) -> bool:
    return all(type(value) in (int, float) for value in values)


def _label(key: str) -> str:
    return LABELS.get(key, key)


def _title(combination: Combination) -> str:
    """Return a combination as a title, without the symbols of the axes."""
    return ", ".join(f"{_label(key).split(',')[0]} = {say_value(value)}" for key, value in combination.items())
