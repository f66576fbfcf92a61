"""A small plot of characters, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROWS = 9


def text_plot(x: Sequence[float], y: Sequence[float], width: int, title: str) -> str:
    """Return a curve as lines of text, at most `width` characters wide.

    x: increasing. y: the last value at or before a column is drawn in it.

    >>> print(text_plot([1, 2, 3, 4], [0.0, 0.5, 0.5, 1.0], 16, "a curve"))
    a curve
    1.000 |        *
          |
          |
          |
    0.500 |   *****
          |
          |
          |
    0.000 |***
          1        4
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    low, high = float(ys.min()), float(ys.max())
    labels = {0: f"{high:.3f}", ROWS // 2: f"{(low + high) / 2:.3f}", ROWS - 1: f"{low:.3f}"}
    margin = max(map(len, labels.values()))
    columns = max(2, width - margin - 2)
    places = np.linspace(xs[0], xs[-1], columns)
    heights = ys[np.searchsorted(xs, places, side="right") - 1]
    rows = np.rint((high - heights) / (high - low) * (ROWS - 1)).astype(int) if high > low else np.full(columns, 0)
    lines = [
        f"{labels.get(row, ''):>{margin}} |" + "".join("*" if at == row else " " for at in rows).rstrip()
        for row in range(ROWS)
    ]
    first, last = f"{xs[0]:g}", f"{xs[-1]:g}"
    axis = " " * (margin + 1) + first + " " * max(1, columns - len(first) - len(last) + 1) + last
    return "\n".join([title, *lines, axis])
