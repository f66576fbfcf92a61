"""The style of all figures: readable at the width of a column, by colour-blind readers and in grey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedslot.folders import write_atomically

COLUMN = 3.5  # inches, one column of a two-column paper

# colours after Okabe and Ito
LOOKS: dict[str, dict[str, Any]] = {
    "push-pull": {"color": "#D55E00", "linestyle": "-"},
    "greedy-shap": {"color": "#0072B2", "linestyle": "-"},
    "only-pull": {"color": "#CC79A7", "linestyle": "-."},
    "fedavg": {"color": "#009E73", "linestyle": "--"},
    "centralized": {"color": "#555555", "linestyle": ":"},
}
OTHERS = ["#E69F00", "#56B4E9", "#000000", "#8C564B", "#9467BD"]


def look(name: str, position: int = 0) -> dict[str, Any]:
    """Return colour and line style of a strategy, which are fixed for the built-in ones."""
    return LOOKS.get(name, {"color": OTHERS[position % len(OTHERS)], "linestyle": "-"})


@contextmanager
def style() -> Iterator[None]:
    """Draw figures in this style, whatever the user's settings of Matplotlib are."""
    with (
        plt.rc_context(matplotlib.rcParamsDefault),
        plt.rc_context(
            {
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
        ),
    ):
        yield


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and as PDF, close it and return the paths of the files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # without a date, so that the same run gives the same bytes
        metadata = {"CreationDate": None} if file.suffix == ".pdf" else {}
        content = BytesIO()
        figure.savefig(content, format=file.suffix[1:], metadata=metadata)
        write_atomically(file, content.getvalue())
    plt.close(figure)
    return files
