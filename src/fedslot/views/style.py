"""The style of all figures: readable at the width of a column, by colour-blind readers and in grey."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedslot.runs.folders import write_atomically

COLUMN = 3.5  # inches, one column of a two-column paper

Size = Literal["screen", "column"]
SIZES: dict[Size, tuple[float, float]] = {"screen": (5.5, 3.4), "column": (COLUMN, 0.72 * COLUMN)}
"""Width and height of a figure of one panel, in inches."""

STYLE: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.hashsalt": "fedslot",
    "text.parse_math": False,  # print a $ in a value as it is
}
"""Settings of Matplotlib; those that the user has changed from its defaults are the user's."""

Look = dict[str, Any]
"""Colour and line style of a curve."""

# the colours of Okabe and Ito, which colour-blind readers tell apart, as far as they go
LOOKS: dict[str, Look] = {
    "push-pull": {"color": "#D55E00", "linestyle": "-"},
    "greedy-shap": {"color": "#0072B2", "linestyle": "-"},
    "only-pull": {"color": "#CC79A7", "linestyle": "-."},
    "fedavg": {"color": "#009E73", "linestyle": "--"},
    "centralized": {"color": "#555555", "linestyle": ":"},
    "ucb": {"color": "#56B4E9", "linestyle": "-"},
    "s-fedavg": {"color": "#332288", "linestyle": "--"},
    "round-robin": {"color": "#E69F00", "linestyle": "-."},
    "power-of-choice": {"color": "#882255", "linestyle": "-"},
    "scout": {"color": "#000000", "linestyle": "-"},
    "merit-push": {"color": "#B8A000", "linestyle": "-"},
    "planned": {"color": "#9467BD", "linestyle": "--"},
    "oort": {"color": "#2F4B7C", "linestyle": "-."},
    "load-split": {"color": "#F28E8E", "linestyle": "-"},
    "ps-alone": {"color": "#8C564B", "linestyle": ":"},
}
OTHERS = ["#44AA99", "#CC6677", "#117733", "#AA4499", "#6F8FAF", "#A83232", "#7F9A1F", "#C49A6C"]
DASHES: list[Any] = ["-", "--", "-.", (0, (5, 1, 1, 1, 1, 1))]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each curve of a figure: that of its name, whatever the order and the other curves are.

    Strategies of fedslot have a look of their own, which the only variant of one shares, e.g. `scout+filtered`. Any
    other name gets one by its hash; if two names hit the same, the alphabetically later one takes the next.
    """
    given = list(names)
    counts = Counter(map(_strategy, given))
    chosen = {
        name: LOOKS[_strategy(name)]
        for name in given
        if name in LOOKS or (_strategy(name) in LOOKS and counts[_strategy(name)] == 1)
    }
    taken = []
    for name in sorted(set(given) - set(chosen)):
        first = zlib.crc32(name.encode())
        candidates = [(OTHERS[(first + i) % len(OTHERS)], dash) for dash in DASHES for i in range(len(OTHERS))]
        color, dash = next((look for look in candidates if look not in taken), candidates[0])
        taken.append((color, dash))
        chosen[name] = {"color": color, "linestyle": dash}
    return {name: chosen[name] for name in given}


def _strategy(name: str) -> str:
    """Return the strategy of a variant such as `ucb+fedadam{exploration: 2}`."""
    return re.split(r"[+{]", name, maxsplit=1)[0]


@contextmanager
def style() -> Iterator[None]:
    """Draw figures in this style, as far as the user has not changed Matplotlib's own settings."""
    settings: Any = matplotlib.rcParams
    ours: Any = {key: value for key, value in STYLE.items() if settings[key] == matplotlib.rcParamsDefault[key]}
    with plt.rc_context(ours):
        yield
        interactive = matplotlib.is_interactive()
    matplotlib.interactive(interactive)  # the first figure of a notebook makes it so


def dress(axes: Axes) -> None:
    """Give axes that the user made the present style, so that they look like those of new figures."""
    settings: Any = matplotlib.rcParams
    for side in ("top", "right"):
        axes.spines[side].set_visible(settings[f"axes.spines.{side}"])
    axes.grid(settings["axes.grid"], color=settings["grid.color"], linewidth=settings["grid.linewidth"])
    axes.set_axisbelow(settings["axes.axisbelow"])
    for axis, labels in ((axes.xaxis, "xtick.labelsize"), (axes.yaxis, "ytick.labelsize")):
        axis.label.set_fontsize(settings["axes.labelsize"])
        axis.set_tick_params(labelsize=settings[labels])


def save_figures(figures: Mapping[str, Callable[[], Figure]], folder: Path) -> list[Path]:
    """Draw figures in this style, write them by their names, and return the paths of all files."""
    with style():
        return [file for name, draw in figures.items() for file in save(draw(), folder / name)]


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and as PDF, close it and return the paths of the files."""
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            # without a date, so that the same run gives the same bytes
            metadata = {"CreationDate": None} if file.suffix == ".pdf" else {}
            content = BytesIO()
            figure.savefig(content, format=file.suffix[1:], metadata=metadata)
            write_atomically(file, content.getvalue())
    finally:
        plt.close(figure)  # also on a full disk: pyplot holds open figures in memory
    return files
