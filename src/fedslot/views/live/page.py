"""The page: panels and controls as a Bokeh document, for a browser that a server feeds, or as part of a report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from bokeh.document import Document
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    Div,
    InlineStyleSheet,
    Row,
    Select,
    Slider,
    Spinner,
    Toggle,
)
from bokeh.palettes import Cividis256
from jinja2 import Environment, Template

from fedslot.views.live.panels import EVENTS, Panels
from fedslot.views.live.watched import WatchedRun

CHOICES = 500  # runs that can be chosen from

_LOST = """
document.getElementById("fs-fault").textContent = "the server has ended; this page shows what came before"
"""
_WIDGETS = """
:host { color: var(--fs-text); font: 13px/1.4 system-ui, sans-serif; }
.bk-input { background-color: var(--fs-panel); color: var(--fs-text); border-color: var(--fs-line); }
.bk-btn { background: var(--fs-panel); color: var(--fs-text); border-color: var(--fs-line); }
.bk-btn.bk-active { background: var(--fs-accent); color: #ffffff; border-color: var(--fs-accent); }
.noUi-target, .noUi-connects { background: var(--fs-line); border-color: var(--fs-line); box-shadow: none; }
.noUi-handle { background: var(--fs-panel); border-color: var(--fs-faint); box-shadow: none; }
"""


def read_part(name: str) -> str:
    """Read a file of this package: a template, a style sheet or a script."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def template(name: str) -> Template:
    """Read a template of this package; what it inserts is markup, apart from what it escapes itself."""
    return Environment(trim_blocks=True, lstrip_blocks=True).from_string(read_part(name))


class Page:
    """Panels of some runs with controls: choose a run, pause, go back through rounds, follow a UE.

    runs: the runs that have curves. choices: those that can be chosen, by default all.
    live: whether a server feeds the page; if not, `all_rounds` and `all_frames` hold the data of each choice.
    """

    def __init__(
        self, runs: Sequence[WatchedRun], choices: Sequence[WatchedRun] | None = None, *, live: bool = True
    ) -> None:
        self.live = live
        self.runs = (runs if choices is None else choices)[:CHOICES]
        self.panels = Panels(runs)
        style = {"stylesheets": [InlineStyleSheet(css=_WIDGETS)]}
        labels = [run.label for run in self.runs]
        most = max(run.scenario.data.ues for run in runs) - 1
        self.run = Select(title="Run", options=labels, value=labels[0], width=230, **style)
        self.pause = Toggle(label="Pause", width=70, align="end", visible=live, **style)
        own = {"syncable": False, **style}  # each browser has its own
        self.slider = Slider(title="Round", start=0, end=1, value=0, step=1, sizing_mode="stretch_width", **own)
        self.ue = Spinner(title="Follow UE", low=0, high=most, step=1, width=110, placeholder="number", **own)
        self.panels.paint(self.slider, ("#d9dce1", "#343943"), "bar_color")
        self.pulse = Div(name="pulse", visible=False)
        self.all_rounds: list[ColumnDataSource] = []
        self.all_frames: list[ColumnDataSource] = []

    def add_to(self, document: Document) -> None:
        """Add the page to a document."""
        panels, script = self.panels, self._script()
        widgets = (self.run, self.pause, self.slider, self.ue)
        controls = Row(*widgets, name="controls", sizing_mode="stretch_width", spacing=14)
        for root in (self.pulse, controls, *panels.figures.values()):
            document.add_root(root)
        self.pulse.js_on_change("tags", script)
        for widget in (self.slider, self.ue):
            widget.js_on_change("value", script)
        for source in (panels.cells, panels.ues):
            source.selected.js_on_change("indices", script)
        panels.window.js_on_change("start", script)
        document.js_on_event("document_ready", script)
        if self.live:
            document.js_on_event("connection_lost", CustomJS(code=_LOST))
        else:
            self.run.js_on_change("value", script)

    def _script(self) -> CustomJS:
        panels, figures = self.panels, self.panels.figures
        models, names, *_ = zip(*panels.painted, strict=True)
        shared = (
            "rounds",
            "frames",
            "cells",
            "ues",
            "followed",
            "here",
            "ring",
            "counts",
            "cursors",
            "palettes",
            "labels",
        )
        args: dict[str, Any] = {
            **{name: getattr(panels, name) for name in shared},
            **{f"{name}_plot": figures[name] for name in ("frames", "ues", "followed")},
            "pulse": self.pulse,
            "run": self.run,
            "slider": self.slider,
            "ue_picked": self.ue,
            "window_of_rounds": panels.window,
            "plots": list(figures.values()),
            "all_rounds": self.all_rounds,
            "all_frames": self.all_frames,
            "painted": models,
            "properties": names,
            "colors": [list(colors) for _, _, *colors in panels.painted],
            "palettes_of_counts": [list(Cividis256[::-1]), list(Cividis256)],
            "event_colors": [[event[i] for event in EVENTS.values()] for i in (1, 2)],
            "always_light": not self.live,
        }
        return CustomJS(args=args, code=read_part("page.js"))
