"""The style of all figures: readable at the width of a column, by colour-blind readers and in grey."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedslot.runs.folders import write_atomically

COLUMN = 3.5  # inches, one column of a two-column paper

# all settings of Matplotlib but those that say where figures appear, which a notebook has set
STYLE: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in ("backend", "interactive")}
STYLE |= {
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
    """Draw figures in this style, whatever the user's settings of Matplotlib are."""
    with plt.rc_context(STYLE):
        yield
        interactive = matplotlib.is_interactive()
    matplotlib.interactive(interactive)  # the first figure of a notebook makes it so


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
