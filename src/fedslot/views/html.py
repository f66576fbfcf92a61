"""HTML of results in a notebook: tables that take the colours of the page, and a small curve."""

from __future__ import annotations

import html
from collections.abc import Sequence

WIDTH, HEIGHT = 220, 60  # of a small curve, in pixels


def table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, note: str = "") -> str:
    """Return a table with a title above and a note below; the first column is text, the others are numbers."""
    head = "".join(_cell("th", text, column) for column, text in enumerate(header))
    body = "".join(f"<tr>{''.join(_cell('td', text, column) for column, text in enumerate(row))}</tr>" for row in rows)
    below = f"<div style='opacity: 0.7; font-size: 90%'>{html.escape(note)}</div>" if note else ""
    return (
        f"<div><strong>{html.escape(title)}</strong>"
        f"<table style='font-variant-numeric: tabular-nums'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{below}</div>"
    )


def facts(pairs: Sequence[tuple[str, str]], title: str, curve: str = "") -> str:
    """Return names and values in two columns, with a small curve beside them."""
    rows = "".join(f"<tr>{_cell('th', name, 0)}{_cell('td', value, 0)}</tr>" for name, value in pairs)
    return (
        f"<div><strong>{html.escape(title)}</strong>"
        "<div style='display: flex; gap: 2em; align-items: center'>"
        f"<table style='font-variant-numeric: tabular-nums'><tbody>{rows}</tbody></table>{curve}</div></div>"
    )


def small_curve(x: Sequence[float], y: Sequence[float], label: str) -> str:
    """Return a small curve as SVG, with its heights from 0 to 1 and its last point marked."""
    span = (x[-1] - x[0] if len(x) else 0) or 1
    points = [
        (4 + (WIDTH - 8) * (a - x[0]) / span, 4 + (HEIGHT - 8) * (1 - min(max(b, 0.0), 1.0)))
        for a, b in zip(x, y, strict=True)
    ]
    if not points:
        return ""
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    last, name = points[-1], html.escape(label)
    return (
        f"<figure style='margin: 0'><svg width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='{name}'>"
        f"<polyline points='{line}' fill='none' stroke='#D55E00' stroke-width='1.5'/>"
        f"<circle cx='{last[0]:.1f}' cy='{last[1]:.1f}' r='3' fill='#D55E00'/>"
        f"<line x1='4' x2='{WIDTH - 4}' y1='{HEIGHT - 4}' y2='{HEIGHT - 4}' stroke='currentColor' opacity='0.3'/></svg>"
        f"<figcaption style='opacity: 0.7; font-size: 90%'>{name}</figcaption></figure>"
    )


def _cell(kind: str, text: str, column: int) -> str:
    side = "right" if column else "left"
    look = f"text-align: {side}; white-space: nowrap; padding: 2px 12px 2px 0"
    return f"<{kind} style='{look}'>{html.escape(text)}</{kind}>"
