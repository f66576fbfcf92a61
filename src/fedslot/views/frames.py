"""Frames slot by slot, as a figure: who was pulled, who pushed, where updates collided."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fedslot.support.errors import InputError
from fedslot.views.style import style

# event: description, colour, colour of the text, hatching
SLOTS = {
    "downlink": ("downlink", "#333333", "white", ""),
    "pulled": ("pulled", "#0072B2", "white", ""),
    "pushed": ("pushed", "#D55E00", "white", ""),
    "collided": ("collided", "#D8D8D8", "#222222", "////"),
    "wasted": ("pulled, but not ready", "#F0E442", "#222222", ""),
    "lost": ("lost on its link", "#CC79A7", "#222222", ""),
    "idle": ("idle", "#F4F4F4", "#222222", ""),
}
WIDTH, HEIGHT, GAP = 0.42, 0.27, 0.06  # of a slot in inches, and between two slots
MOST_NAMED = 3  # UEs whose numbers fit into a slot


def plot_frames(frames: pd.DataFrame, rounds: Sequence[int]) -> Axes:
    """Draw the frames of some rounds, a row each: the downlink, then the uplink slots with the numbers of their UEs.

    frames: the trace of a run, the columns of `frames.csv`.
    """
    shown = frames[frames["round"].isin(list(rounds)) & frames["event"].isin(list(SLOTS))]
    missing = sorted({*rounds} - {*shown["round"]})
    if not len(rounds) or missing:
        raise InputError("rounds", [*rounds], f"rounds of the trace, which has no slot of {missing or 'none'}")
    most, used = int(shown["slot"].max()), ["downlink"]
    with style():
        figure, axes = plt.subplots(figsize=((most + 2.6) * WIDTH, (len(rounds) + 1.6) * HEIGHT))
        for row, round in enumerate(rounds):
            _slot(axes, row, 0, "downlink", "")
            for slot, events in shown[shown["round"] == round].groupby("slot"):
                event = str(events["event"].iloc[0])
                ues = events["ue"].dropna().astype(int).tolist()
                text = " ".join(map(str, ues)) if len(ues) <= MOST_NAMED else f"{len(ues)} UEs"
                _slot(axes, row, int(str(slot)), event, text)
                used.append(event)
        axes.set(xlim=(-GAP, most + 1), ylim=(len(rounds) - GAP, -0.1), xlabel="Slot", ylabel="Round")
        axes.set_xticks([slot + 0.5 - GAP / 2 for slot in range(most + 1)], [str(slot) for slot in range(most + 1)])
        axes.set_yticks([row + 0.5 - GAP for row in range(len(rounds))], [str(round) for round in rounds])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(False)
        looks = [look for event, look in SLOTS.items() if event in used]
        keys = [Rectangle((0, 0), 1, 1, facecolor=look[1], hatch=look[3], edgecolor="white") for look in looks]
        figure.legend(keys, [look[0] for look in looks], loc="outside upper center", ncols=len(keys))
    return axes


def _slot(axes: Axes, row: int, slot: int, event: str, text: str) -> None:
    """Draw a slot with a text in it."""
    _, color, ink, hatch = SLOTS[event]
    box = Rectangle((slot, row), 1 - GAP, 1 - 2 * GAP, facecolor=color, hatch=hatch, edgecolor="white", linewidth=0)
    axes.add_patch(box)
    size = 5.5 if len(text) > 4 else 7
    axes.text(slot + (1 - GAP) / 2, row + 0.5 - GAP, text, color=ink, ha="center", va="center", fontsize=size)
