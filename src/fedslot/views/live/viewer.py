"""One browser's view of a watched folder: a document, and the increments that it is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pandas as pd
from bokeh.document import Document
from bokeh.models import ColumnDataSource, CustomJS, Div

from fedslot.deployment.presence import Presence
from fedslot.views.live.growing import GrowingTable
from fedslot.views.live.page import Page, read_part, template
from fedslot.views.live.panels import EVENTS, Data, curve_columns, frame_columns, mean_curve, round_columns
from fedslot.views.live.watched import MOST_FRAME_ROWS, MOST_ROUNDS, Progress, Watched, WatchedFolder

QUIET = 60.0  # seconds without news after which the page says so

_WAITING = """
const said = JSON.parse(pulse.tags[0])
if (said.reload) window.location.reload()
document.getElementById("fs-status").textContent = said.status
"""


class Viewer:
    """Builds the document of a browser and keeps it up to date; a tick sends only what is new.

    watched: the folder, which all viewers share.
    """

    def __init__(self, watched: Watched, document: Document) -> None:
        self.watched, self.document = watched, document
        self.page: Page | None = None
        self._sent: dict[object, tuple[int, int]] = {}  # version and number of rows of each table that were sent
        watched.poll()
        self.folder = watched.folder if watched.folder and watched.folder.runs else None
        document.title = f"fedslot: {watched.path.name}"
        document.template = template("page.html")
        document.template_variables.update(
            css=read_part("panels.css"),
            panels=template("panels.html"),
            folder=str(watched.path),
            heading=f"fedslot {self.folder.kind}" if self.folder else "fedslot",
            ready=self.folder is not None,
            events=EVENTS,
        )
        if self.folder:
            self._build(self.folder)
        else:  # the page loads itself again when there is something
            self.pulse = Div(name="pulse", visible=False)
            self.pulse.js_on_change("tags", CustomJS(args={"pulse": self.pulse}, code=_WAITING))
            document.add_root(self.pulse)
        self.tick()

    def _build(self, folder: WatchedFolder) -> None:
        self.page = page = Page(folder.runs)
        under_way = (run for run in page.runs if len(self.watched.rounds(run).rows) and not run.is_finished)
        self.run = next(under_way, page.runs[0])
        page.run.value = self.run.label
        page.add_to(self.document)
        self.pulse = page.pulse
        page.run.on_change("value", lambda attr, old, new: self._focus(page, new))
        page.pause.on_change("active", lambda attr, old, new: self._pause(page))

    def _focus(self, page: Page, label: str) -> None:
        self.run = next(run for run in page.runs if run.label == label)
        self._sent.pop("rounds", None)
        self._sent.pop("frames", None)
        self.tick()

    def _pause(self, page: Page) -> None:
        page.pause.label = "Go on" if page.pause.active else "Pause"
        self.tick()

    def tick(self) -> None:
        """Send what is new since the last tick; while paused, only how things are."""
        self.watched.poll()
        if self.page is None or self.folder is None:
            self._say(status=self.watched.fault, reload=bool(self.watched.folder and self.watched.folder.runs))
            return
        if self.watched.folder and self.watched.folder.digest != self.folder.digest:
            self._say(reload=True)
            return
        if not self.page.pause.active:
            self._send(self.page)
        progress = self.watched.progress()
        self._say(
            status=_describe(len(self.folder.runs), progress, self.watched.presence(self.run)),
            done=round(progress.done, 4),
            fault=self.watched.faults(self.run),
            rows=[count for _, count in self._sent.values()],  # so that the browser looks whenever there is news
        )

    def _say(self, **words: object) -> None:
        tags = [json.dumps(words)]
        if self.pulse.tags != tags:
            self.pulse.tags = tags

    def _send(self, page: Page) -> None:
        panels, watched = page.panels, self.watched
        self._stream("rounds", watched.rounds(self.run), panels.rounds, round_columns, MOST_ROUNDS)
        done = watched.rounds(self.run).rows["round"]
        last = float(done.iloc[-1]) if len(done) else -1.0  # the frame after it may be there in part
        self._stream("frames", watched.frames(self.run), panels.frames, frame_columns, MOST_FRAME_ROWS, last)
        news = set()
        for index, run in enumerate(panels.runs):
            source = panels.curves.get(index)
            if self._stream(index, watched.rounds(run), source, curve_columns, MOST_ROUNDS):
                news.add(run.group)
        for group in news & panels.means.keys():
            members = [watched.rounds(run).rows for run in panels.runs if run.group == group]
            panels.means[group].data = mean_curve(members)

    def _stream(
        self,
        name: object,
        table: GrowingTable,
        source: ColumnDataSource | None,
        columns: Callable[[pd.DataFrame], Data],
        most: int,
        last: float = math.inf,
    ) -> bool:
        """Send the rows of a table that a source, if any, lacks, up to a last round; return whether there were any."""
        sent = self._sent.get(name, (0, 0))
        if sent == (table.version, table.count):
            return False
        new, fresh = table.since(*sent)
        rows = new[new["round"] <= last]
        self._sent[name] = table.version, table.count - (len(new) - len(rows))
        if source is not None and fresh:
            source.data = columns(rows)
        elif source is not None and len(rows):
            source.stream(columns(rows), rollover=most)
        return fresh or len(rows) > 0


def _describe(count: int, progress: Progress, presence: Presence | None = None) -> str:
    """Return how a number of runs are in a few words: progress, time left, and which devices are away."""
    if progress.finished == count:
        return "finished" if count == 1 else f"all {count} runs finished"
    words = [f"{progress.done:.0%}"]
    if count > 1:
        words.append(f"{progress.finished} of {count} runs finished")
    if presence is not None and presence.words:
        words.append(presence.words)
    if progress.quiet > QUIET:
        words.append(f"no news for {say_time(progress.quiet)}")
    elif progress.left is not None and (presence is None or presence.connected):
        words.append(f"{say_time(progress.left)} left")
    return " · ".join(words)


def say_time(seconds: float) -> str:
    """Return a time in words, as exactly as one wants to know it.

    >>> say_time(12.3), say_time(200), say_time(8000)
    ('12 s', '3 min', '2 h 13 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
