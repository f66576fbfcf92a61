"""The panels of a comparison inside a report: complete in one file, with BokehJS in it, and without a network."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
from bokeh.document import Document
from bokeh.embed import components
from bokeh.models import ColumnDataSource
from bokeh.resources import Resources

from fedslot.experiments.comparison import Comparison
from fedslot.runs.results import Result
from fedslot.views.live.page import Page, read_part, template
from fedslot.views.live.panels import EVENTS, Data, curve_columns, frame_columns, mean_curve, round_columns
from fedslot.views.live.watched import FRAME_COLUMNS, WatchedRun

MOST_ROWS = 30_000  # rows of frames in a report
MOST_POINTS = 400  # points of a curve


def embed(comparison: Comparison) -> dict[str, str]:
    """Return the markup of the panels of a comparison: curves of all runs, frames of each strategy's first seed.

    style, library, script: contents of the page's head, and after the panels. note: what was left out, if anything was.
    """
    results = [result for own in comparison.runs.values() for result in own]
    runs = [
        WatchedRun(f"{name}, seed {seed}", name, result.folder or Path(), result.scenario)
        for name, own in comparison.runs.items()
        for seed, result in zip(comparison.seeds, own, strict=True)
    ]
    seeds, note = len(comparison.seeds), ""
    page = Page(runs, runs[::seeds], live=False)
    for result in results[::seeds]:
        frames = _frames(result)
        last = last_frames(frames, MOST_ROWS // len(comparison.strategies))
        if len(last) < len(frames):
            note = "frames of the last rounds only"
        page.all_rounds.append(ColumnDataSource(_small(round_columns(result.rounds))))
        page.all_frames.append(ColumnDataSource(_small(frame_columns(last))))
    panels = page.panels
    panels.rounds.data = dict(page.all_rounds[0].data)
    panels.frames.data = dict(page.all_frames[0].data)
    for index, source in panels.curves.items():
        source.data = _small(curve_columns(_thin(results[index].rounds)))
    for name, source in panels.means.items():
        source.data = _small(mean_curve([result.rounds for result in comparison.runs[name]]))
    document = Document()
    page.add_to(document)
    script, divs = components({str(root.name): root for root in document.roots})
    return {
        "style": read_part("panels.css"),
        "library": Resources(mode="inline", components=["bokeh", "bokeh-widgets"], log_level="warn").render_js(),
        "script": script,
        "panels": template("panels.html").render(div=divs, events=EVENTS) + divs["pulse"],
        "note": note,
    }


def last_frames(frames: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the frames of the last rounds, whole ones, within a number of rows."""
    if len(frames) <= most:
        return frames
    begin = int(frames["round"].iloc[-most - 1])  # the last round that does not fit
    return frames.loc[frames["round"] > begin]


def _frames(result: Result) -> pd.DataFrame:
    """Return the frames of a run, without rows if they were not written."""
    frames: pd.DataFrame | None = result.frames
    return pd.DataFrame(columns=list(FRAME_COLUMNS), dtype=float) if frames is None else frames


def _thin(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds that a curve can show, the last among them."""
    return rounds.iloc[:: -max(1, math.ceil(len(rounds) / MOST_POINTS))][::-1]


def _small(data: Data) -> Data:
    """Return columns with the precision that a screen shows."""
    return {
        name: column.astype(np.float32) if isinstance(column, np.ndarray) else column for name, column in data.items()
    }
