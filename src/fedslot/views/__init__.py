"""Figures, tables, the report and the progress display.

style.py        the style of all figures
curves.py       curves of test accuracy
frames.py       the figure of frames, slot by slot
comparison.py   figures of a comparison
report.py       the HTML report of a comparison; report.html is its template
tables.py       tables of comparisons and sweeps: their columns, and their look in the terminal
sweep.py        figures of a sweep
plan.py         the figure of a plan
plan_tables.py  the answers of a plan in the terminal
notebook.py     what a notebook shows of results, by their type
html.py         tables and facts in a notebook
text_plot.py    a small plot in the terminal
progress.py     live progress of runs
live/           the live view in a browser, and its panels in a report
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedslot.views.comparison import accuracy_by, legend_above, zoom
    from fedslot.views.curves import band
    from fedslot.views.style import COLUMN, save_figures

_HOMES = {  # imported on first use, since Matplotlib is slow to import
    "COLUMN": "style",
    "accuracy_by": "comparison",
    "band": "curves",
    "legend_above": "comparison",
    "save_figures": "style",
    "zoom": "comparison",
}

__all__ = ["COLUMN", "accuracy_by", "band", "legend_above", "save_figures", "zoom"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedslot.views' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedslot.views.{_HOMES[name]}"), name)
