"""The panels as Bokeh figures: accuracy, UEs by value, frames, cost, use of the air, load, a followed UE.

The sources `rounds` and `frames` hold the run in focus; `page.js` derives the others from them in the browser, for the
round that is shown, so that the panels work the same with a server and in a file. Frames are drawn from `cells`, which
has those in sight only: a long run has too many to draw them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from bokeh.core.properties import value
from bokeh.models import (
    Axis,
    BasicTicker,
    BoxAnnotation,
    CDSView,
    ColorBar,
    ColumnDataSource,
    CustomJS,
    FixedTicker,
    Grid,
    GroupFilter,
    HoverTool,
    LinearColorMapper,
    PrintfTickFormatter,
    Range1d,
    Span,
    TapTool,
    Whisker,
)
from bokeh.palettes import Cividis256
from bokeh.plotting import figure
from bokeh.transform import factor_cmap

from fedslot.learning.tasks import score_of
from fedslot.runs.results import scores
from fedslot.views.live.watched import FRAME_COLUMNS, ROUND_COLUMNS, WatchedRun
from fedslot.views.style import looks

LINES = 60  # runs or groups that have a curve of their own
POINTS = 300  # points of a mean curve
FILLED = 0.92  # part of a frame's width that its slots take
FEWEST_SLOTS, MOST_SLOTS = 4, 40  # between which the height of the grid grows with the number of slots

LIGHT = 0.55  # least luminance of a line on dark ground

EVENTS = {
    "pulled": ("received in its pull slot", "#0072B2", "#3D9BDC", " "),
    "pushed": ("received in a push slot", "#D55E00", "#E8762B", " "),
    "collided": ("sent, and collided", "#BBBBBB", "#8A8F98", "/"),
    "wasted": ("pulled, but not ready", "#F0E442", "#F0E442", "."),
    "lost": ("lost on its link", "#882255", "#B3528A", "."),
    "barred": ("barred from contending", "#CC79A7", "#D993BA", "x"),
    "idle": ("idle", "#EEEEEE", "#262A31", " "),
}
"""What can happen in a slot: in words, the colours on light and on dark ground, and a pattern."""
DASHES = {"-": "solid", "--": "dashed", "-.": "dotdash", ":": "dotted"}
AIR = ("pulled", "pushed", "collided", "wasted", "lost")
NUMBERS = ("round", "slot", "ue", "value", "noise", "staleness")  # of frames
SHOWN = (  # of rounds; older folders do not have all
    *("round", "slots_spent", "cost_max", "cost_frame", "contenders", "pulled", "collided", "wasted", "lost"),
    *("training", "holding"),
)

# colours on light and on dark ground
Colors = tuple[str, str]
INK = ("#222222", "#f2f2f2")
TEXT = ("#333333", "#d6d9de")
EDGE = ("#444444", "#cfd3d9")
GREY = ("#888888", "#80868f")
LOAD = ("#555555", "#b5bac2")
HATCH = ("#ffffff", "#14161a")
RECEIVED = ("#D55E00", "#E8762B")

Data = dict[str, Any]
"""Columns by name."""


def round_columns(rounds: pd.DataFrame) -> Data:
    """Return the columns that the panels show of rounds: scores, costs, use of the air, load of the push slots."""
    push = rounds["slots"] - rounds["pulled"] - rounds["wasted"] - rounds["lost"]
    return {
        **{str(name): column.to_numpy(float) for name, column in rounds.reindex(columns=list(SHOWN)).items()},
        "accuracy": scores(rounds),
        "pushed": rounds["push_received"].to_numpy(float),
        "push_slots": push.to_numpy(float),
        # a frame without push slots has no load
        "load": (rounds["contenders"] / push.where(push > 0)).to_numpy(float),
        "throughput": (rounds["push_received"] / push.where(push > 0)).to_numpy(float),
    }


def frame_columns(frames: pd.DataFrame) -> Data:
    """Return the columns that the panels show of frames; UEs that share a slot share its width."""
    slots = frames.groupby(["round", "slot"], sort=False)["event"]
    sharers, place = slots.transform("size").to_numpy(float), slots.cumcount().to_numpy(float)
    width = FILLED / np.maximum(sharers, 1)
    numbers = {
        str(name): column.to_numpy(float, na_value=np.nan)
        for name, column in frames.reindex(columns=list(NUMBERS)).items()
    }
    pairs = zip(numbers["ue"], sharers == 1, strict=True)
    return {
        **numbers,
        "event": frames["event"].astype(str).to_list(),
        "x": numbers["round"] - FILLED / 2 + (place + 0.5) * width,
        "width": width,
        "label": [f"{ue:.0f}" if alone and ue == ue else "" for ue, alone in pairs],
    }


def curve_columns(rounds: pd.DataFrame) -> Data:
    """Return the curve of a run: accuracy by slots spent."""
    return {name: round_columns(rounds)[name] for name in ("round", "slots_spent", "accuracy")}


def mean_curve(runs: Sequence[pd.DataFrame]) -> Data:
    """Return the mean accuracy of runs by slots spent, as far as all that have begun go."""
    begun = [rounds for rounds in runs if len(rounds)]
    if not begun:
        return {"slots_spent": np.zeros(0), "accuracy": np.zeros(0)}
    spent = [rounds["slots_spent"].to_numpy(float) for rounds in begun]
    first, last = max(slots[0] for slots in spent), min(slots[-1] for slots in spent)
    slots = np.linspace(first, last, POINTS) if last > first else np.array([last])
    accuracies = [
        scores(rounds)[np.maximum(np.searchsorted(own, slots, side="right") - 1, 0)]
        for rounds, own in zip(begun, spent, strict=True)
    ]
    return {"slots_spent": slots, "accuracy": np.mean(accuracies, axis=0)}


def on_dark(color: str) -> str:
    """Return a colour for lines on dark ground: mixed with white until it is light enough.

    >>> on_dark("#000000"), on_dark("#F0E442")
    ('#8c8c8c', '#F0E442')
    """
    parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    light = float(parts @ [0.3, 0.59, 0.11])
    if light >= LIGHT:
        return color
    mixed = parts + (1 - parts) * (LIGHT - light) / (1 - light)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed.tolist())


def _source(columns: Sequence[str], *, derived: bool = False) -> ColumnDataSource:
    """Return an empty source; a derived one is filled in the browser, and not sent back from there."""
    return ColumnDataSource({name: [] for name in columns}, syncable=not derived)


class Panels:
    """The figures of some runs, and the sources that feed them.

    runs: all runs of the page; `rounds` and `frames` hold the one in focus, `curves` and `means` those of all.
    """

    def __init__(self, runs: Sequence[WatchedRun]) -> None:
        self.runs = runs
        self.groups = list(dict.fromkeys(run.group for run in runs))
        frames = [*frame_columns(pd.DataFrame(columns=list(FRAME_COLUMNS), dtype=float))]
        self.rounds = _source([*round_columns(pd.DataFrame(columns=list(ROUND_COLUMNS), dtype=float))])
        self.frames = _source(frames)
        self.cells = _source([*frames, "who", "about"], derived=True)
        self.ues = _source(
            ["rank", "ue", "height", "low", "high", "value", "about", "received", "collided"], derived=True
        )
        self.followed = _source(["round", "slot", "event", "about", "height", "x", "width"], derived=True)
        self.ring = _source(["rank", "height"], derived=True)  # around the followed UE
        self.here = _source(["slots_spent", "accuracy"], derived=True)
        self.curves: dict[int, ColumnDataSource] = {}
        self.means: dict[str, ColumnDataSource] = {}
        self.window = Range1d(start=-0.5, end=40.5, syncable=False)  # rounds that the panels by round show
        self.cursors: list[BoxAnnotation] = []
        self.painted: list[tuple[Any, str, str, str]] = []  # model, property, colours on light and on dark ground
        self.palettes: list[Any] = []  # colour mappers of events

    @cached_property
    def figures(self) -> Mapping[str, figure]:
        """The figures by name."""
        return {
            "accuracy": self._accuracy(),
            "ues": self._ues(),
            "frames": self._frames(),
            "cost": self._cost(),
            "air": self._air(),
            "load": self._load(),
            "followed": self._followed(),
        }

    def _figure(self, name: str, height: int, x: str, y: str, tools: str, **options: Any) -> figure:
        plot = figure(
            name=name,
            height=height,
            min_width=200,
            sizing_mode="stretch_width",
            x_axis_label=x,
            y_axis_label=y,
            tools=tools,
            toolbar_location=None,
            background_fill_color=None,
            border_fill_color=None,
            outline_line_color=None,
            output_backend="canvas",
            **options,
        )
        plot.js_on_event("doubletap", CustomJS(args={"plot": plot}, code="plot.reset.emit()"))
        for each in plot.select({"type": (Axis, Grid)}):
            each.syncable = False
        for axis in plot.select(Axis):
            axis.minor_tick_line_color = None
            axis.axis_label_text_font_style = "normal"
            axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
        return plot

    def paint(self, model: Any, colors: Colors, *properties: str) -> None:
        """Give a model, or the glyph of a renderer, a colour that changes with the ground."""
        model = getattr(model, "glyph", model)
        model.syncable = False  # which ground it is, the browser knows
        for name in properties:
            setattr(model, name, colors[0])
            self.painted.append((model, name, *colors))

    def _by_event(self) -> Any:
        mapped = factor_cmap("event", [event[1] for event in EVENTS.values()], list(EVENTS))
        mapped.transform.syncable = False
        self.palettes.append(mapped.transform)
        return mapped

    def _mark(self, plot: figure) -> None:
        """Mark the round that is shown."""
        cursor = BoxAnnotation(left=-1, right=-1, fill_alpha=0.15, line_color=None, level="underlay", syncable=False)
        self.paint(cursor, ("#666666", "#cccccc"), "fill_color")
        plot.add_layout(cursor)
        self.cursors.append(cursor)

    def _accuracy(self) -> figure:
        label = score_of(self.runs[0].scenario).label
        plot = self._figure("accuracy", 310, "slots spent", f"test {label}", "box_zoom,reset")
        styles, lines = looks(self.groups), []

        def draw(source: ColumnDataSource, group: str, name: str, **options: Any) -> None:
            color, dash = styles[group]["color"], _dash(styles[group]["linestyle"])
            line = plot.line("slots_spent", "accuracy", source=source, name=name, line_dash=dash, **options)
            self.paint(line, (color, on_dark(color)), "line_color")
            lines.append(line)

        for group in self.groups[:LINES]:
            members = [index for index, run in enumerate(self.runs) if run.group == group]
            several = len(members) > 1
            look = {"line_width": 1, "line_alpha": 0.35} if several else {"line_width": 2.2, "legend_label": group}
            for index in members if len(self.runs) <= LINES or not several else []:
                self.curves[index] = _source(["round", "slots_spent", "accuracy"])
                draw(self.curves[index], group, self.runs[index].label, **look)
            if several:
                self.means[group] = _source(["slots_spent", "accuracy"])
                draw(self.means[group], group, f"{group}, mean", line_width=2.6, legend_label=group)
        tooltips = f"<b>$name</b><br>{label} @accuracy{{0.000}} at @slots_spent{{0}} slots"
        plot.add_tools(HoverTool(renderers=lines, tooltips=tooltips, line_policy="nearest"))
        dot = plot.scatter("slots_spent", "accuracy", source=self.here, size=11, fill_alpha=0, line_width=2.5)
        self.paint(dot, INK, "line_color")
        legend = plot.legend[0]
        legend.visible = len(self.groups) <= 14  # else the pointer says which is which
        legend.update(location="bottom_right", click_policy="hide", ncols=1 if len(self.groups) <= 7 else 2)
        legend.update(label_text_font_size="12px", spacing=1, padding=6, background_fill_alpha=0.7)
        legend.border_line_color = None
        self.paint(legend, TEXT, "label_text_color")
        self.paint(legend, ("#ffffff", "#1c1f25"), "background_fill_color")
        return plot

    def _ues(self) -> figure:
        plot = self._figure("ues", 310, "rank", "value", "box_zoom,reset")
        plot.add_tools(TapTool())
        whisker = Whisker(base="rank", lower="low", upper="high", source=self.ues, line_width=1)
        whisker.upper_head = whisker.lower_head = None
        self.paint(whisker, GREY, "line_color")
        plot.add_layout(whisker)
        self.counts = LinearColorMapper(palette=Cividis256[::-1], low=0, high=1, syncable=False)
        counted = {"field": "received", "transform": self.counts}
        steady = {"nonselection_alpha": 1, "nonselection_fill_alpha": 1}
        dots = plot.scatter("rank", "height", source=self.ues, size=9, fill_color=counted, line_width=0.7, **steady)
        self.paint(dots, EDGE, "line_color")
        tooltips = (
            "<b>UE @ue{0}</b>, rank @rank{0}<br>@about<br>received @received{0} times, collided @collided{0} times"
        )
        plot.add_tools(HoverTool(renderers=[dots], tooltips=tooltips))
        ticker = BasicTicker(desired_num_ticks=4, mantissas=[1, 2, 5], min_interval=1)
        bar = ColorBar(color_mapper=self.counts, width=8, title="received", padding=4, ticker=ticker)
        bar.background_fill_color = None
        bar.formatter = PrintfTickFormatter(format="%.0f")
        self.paint(bar, TEXT, "title_text_color", "major_label_text_color")
        plot.add_layout(bar, "right")
        ring = plot.scatter("rank", "height", source=self.ring, size=16, fill_alpha=0, line_width=2.5)
        self.paint(ring, INK, "line_color")
        return plot

    def _frames(self) -> figure:
        slots = max(run.scenario.frame.slots for run in self.runs)
        height = 62 + 18 * min(max(slots, FEWEST_SLOTS), MOST_SLOTS)
        upright = Range1d(start=slots + 0.5, end=0.5, syncable=False)
        ranges = {"x_range": self.window, "y_range": upright}
        plot = self._figure("frames", height, "round", "uplink slot", "xpan", **ranges)
        plot.add_tools(TapTool())
        plot.grid.visible = False
        plot.yaxis.ticker = FixedTicker(ticks=[0, 1, *range(5, slots + 1, 5)])
        plot.yaxis.major_label_overrides = {0: "barred"}
        self._mark(plot)
        self.cursors[-1].level = "overlay"
        box = {"x": "x", "y": "slot", "width": "width", "height": 0.86, "source": self.cells, "line_color": None}
        cells = plot.rect(**box, fill_color=self._by_event(), nonselection_fill_alpha=1)
        for event, (_, _, _, pattern) in EVENTS.items():
            if pattern != " ":  # a renderer for each: Bokeh draws a pattern that varies by row row by row, too slowly
                view = CDSView(filter=GroupFilter(column_name="event", group=event))
                hatch = {"hatch_pattern": value(pattern), "hatch_scale": 6, "hatch_weight": 1, "hatch_alpha": 0.55}
                hatched = plot.rect(**box, view=view, fill_alpha=0, **hatch)
                hatched.nonselection_glyph = None
                self.paint(hatched, HATCH, "hatch_color")
        ink = factor_cmap("event", ["#ffffff", "#ffffff", *["#222222"] * (len(EVENTS) - 2)], list(EVENTS))
        center = {"text_align": "center", "text_baseline": "middle", "text_font_size": "10px"}
        self.labels = plot.text("x", "slot", text="label", source=self.cells, text_color=ink, **center)
        self.labels.syncable = False
        self.labels.nonselection_glyph = None
        ring = plot.rect("x", "slot", "width", 0.86, source=self.followed, fill_alpha=0, line_width=2.5)
        self.paint(ring, ("#000000", "#ffffff"), "line_color")
        tooltips = "<b>@who</b>: @event<br>round @round{0}, slot @slot{0}<br>@about"
        plot.add_tools(HoverTool(renderers=[cells], tooltips=tooltips))
        return plot

    def _by_round(self, name: str, y: str) -> figure:
        plot = self._figure(name, 190, "round", y, "xpan", x_range=self.window)
        plot.y_range.start = 0
        self._mark(plot)
        return plot

    def _cost(self) -> figure:
        plot = self._by_round("cost", "slots")
        announced = plot.step("round", "cost_frame", source=self.rounds, mode="center", line_dash="dotted")
        spent = plot.vbar("round", FILLED, "cost_max", source=self.rounds)
        self.paint(spent, ("#7A9CC0", "#5E84AD"), "fill_color", "line_color")
        self.paint(announced, TEXT, "line_color")
        tooltips = "round @round{0}: @cost_max{0} slots by the clock,<br>@cost_frame{0} announced"
        plot.add_tools(HoverTool(renderers=[spent], tooltips=tooltips, mode="vline"))
        return plot

    def _air(self) -> figure:
        plot = self._by_round("air", "UEs")
        bars = plot.vbar_stack(list(AIR), x="round", width=FILLED, source=self.rounds, line_color=None)
        for name, bar in zip(AIR, bars, strict=True):
            _, light, dark, pattern = EVENTS[name]
            self.paint(bar, (light, dark), "fill_color")
            bar.glyph.update(hatch_pattern=value(pattern), hatch_scale=6, hatch_alpha=0.55)
            self.paint(bar, HATCH, "hatch_color")
        tooltips = "round @round{0}: @pulled{0} pulled, @pushed{0} pushed,<br>@collided{0} collided, @wasted{0} wasted"
        plot.add_tools(HoverTool(renderers=[bars[0]], tooltips=tooltips, mode="vline"))
        return plot

    def _load(self) -> figure:
        plot = self._by_round("load", "per push slot")
        best = Span(location=1, dimension="width", line_dash="dotted", line_width=1)
        self.paint(best, GREY, "line_color")
        plot.add_layout(best)
        marks = {}
        for column, colors, marker, size in (("load", LOAD, "circle", 5), ("throughput", RECEIVED, "triangle", 6)):
            line = plot.line("round", column, source=self.rounds, line_width=1.2)
            marks[column] = plot.scatter("round", column, source=self.rounds, size=size, marker=marker)
            self.paint(line, colors, "line_color")
            self.paint(marks[column], colors, "line_color", "fill_color")
        tooltips = "round @round{0}: @contenders{0} contenders in @push_slots{0} push slots,<br>@pushed{0} received"
        plot.add_tools(HoverTool(renderers=[marks["load"]], tooltips=tooltips, mode="vline"))
        return plot

    def _followed(self) -> figure:
        plot = self._figure("followed", 190, "round", "value", "box_zoom,reset")
        line = plot.step("round", "height", source=self.followed, mode="after", line_width=1.2)
        self.paint(line, GREY, "line_color")
        colors = self._by_event()
        dots = plot.scatter("round", "height", source=self.followed, size=8, line_width=0.5, fill_color=colors)
        self.paint(dots, EDGE, "line_color")
        tooltips = "round @round{0}, slot @slot{0}: @event<br>@about"
        plot.add_tools(HoverTool(renderers=[dots], tooltips=tooltips))
        return plot


def _dash(style: Any) -> Any:
    """Return a line style of Matplotlib as Bokeh has it."""
    return DASHES[style] if isinstance(style, str) else [3 * length for length in style[1]]
