"""A plan as a figure and in a notebook: expected yield and cost of every split of a frame."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedslot.planning.planner import Plan
from fedslot.runs.folders import write_atomically
from fedslot.views.html import table

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#666666"  # safe for colour-blind readers
SIZE = (7.0, 6.0)  # inches
NEAR = 7
"""Number of splits in the table of a notebook."""


def plan_html(plan: Plan) -> str:
    """Return a table of the best splits as HTML."""
    columns = {
        "pull": "{.pull}",
        "push": "{.push}",
        "probability of sending": "{.probability:.3g}",
        "received": "{.expected_received:.2f}",
        "of them pushed": "{.expected_received_push:.2f}",
        "value": "{.expected_value:.2f}",
        "cost in slots": "{.expected_cost_max:.2f}",
    }
    best = sorted(plan.splits, key=lambda split: -getattr(split, plan.by))[:NEAR]
    rows = [
        ["best" if split is plan.best else "", *(text.format(split) for text in columns.values())]
        for split in sorted(best, key=lambda split: split.pull)
    ]
    note = f"The best {len(rows)} of {len(plan.splits)} splits, by {plan.by.replace('_', ' ')}."
    return table(["", *columns], rows, f"Plan of a frame of {plan.slots} slots", note)


def show_plan(plan: Plan) -> NDArray[Any]:
    """Draw a plan for the screen, and return the axes of yield and of cost."""
    figure = plt.figure(figsize=SIZE, layout="constrained")
    _draw(plan, figure)
    return np.array(figure.axes)


def plot_plan(plan: Plan, path: Path | None = None) -> Figure:
    """Draw yield and cost against the number of pull slots; the paper's approximation is dashed.

    path: file to save to, as .png, .pdf or .svg; None: not saved.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    _draw(plan, figure)
    if path is not None:
        image = io.BytesIO()
        figure.savefig(image, format=path.suffix[1:].lower(), dpi=150)
        write_atomically(path, image.getvalue())
    return figure


def _draw(plan: Plan, figure: Figure) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    pull = [split.pull for split in plan.splits]
    series = [
        (above, "expected_value", "value", ORANGE, "-"),
        (above, "expected_received", "received updates", BLUE, "-"),
        (above, "expected_received_push", "of them pushed", BLUE, ":"),
        (below, "expected_cost_max", "cost of a frame (last received slot + 1)", GREEN, "-"),
    ]
    for axes, field, label, color, style in series:
        values = np.array([getattr(split, field) for split in plan.splits])
        if field == "expected_value" and all(split.expected_value == split.expected_received for split in plan.splits):
            continue  # pushed and pulled updates have the same value: both curves are equal
        axes.plot(pull, values, style, color=color, label=label, marker="o" if len(pull) <= 41 else "", markersize=3)
        if plan.best.standard_errors:
            spread = np.array([2 * split.standard_errors[field] for split in plan.splits])
            axes.fill_between(pull, values - spread, values + spread, color=color, alpha=0.2, linewidth=0)
    paper = [split.expected_cost_paper + 1 for split in plan.splits if split.expected_cost_paper is not None]
    if paper:
        below.plot(pull, paper, "--", color=GREY, label="the paper's approximation (eq. 5) + 1")
    for axes in (above, below):
        axes.axvline(plan.best.pull, color=ORANGE, alpha=0.35, linewidth=5, zorder=0)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", edgecolor="none", framealpha=0.8)
    above.set_ylim(bottom=0)
    above.set_ylabel("updates a frame")
    above.set_title(f"Best: pull {plan.best.pull} of {plan.slots} slots", loc="left", fontsize="medium")
    below.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    below.set_ylabel("slots")
    limited = any(split.pull + split.push < plan.slots for split in plan.splits)
    rest = "push slots as the limit per frame allows" if limited else "the rest are open to push"
    below.set_xlabel(f"pull slots, of {plan.slots} uplink slots ({rest})")
