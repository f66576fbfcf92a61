"""A folder that is watched: which runs it holds or will hold, their rows so far, progress and time left."""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedslot.deployment.presence import PRESENCE, Presence
from fedslot.runs.folders import (
    ATTACK_STUDY,
    EQUAL_SLOTS,
    KINDS,
    RANDOM_SETTINGS,
    REPRODUCTION,
    RUN,
    FolderKind,
    no_folder,
)
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError
from fedslot.views.live.growing import GrowingTable

SCENARIO, ROUNDS, FRAMES, SUMMARY = RUN.marker, "rounds.csv", "frames.csv", "summary.json"
MOST_ROUNDS, MOST_FRAME_ROWS = 20_000, 60_000  # rows that are held of each run
TABLES_OF_FRAMES = 8  # runs whose frames are held at a time
BUSY = 0.1  # share of the time that polling may take
PERIOD = 0.4  # seconds between polls
PACE = 120.0  # seconds over which the time left is estimated

WHOLE = ("round", "slots", "pulled", "wasted", "lost", "contenders", "push_received", "collided")
COSTS = ("cost_max", "cost_frame", "slots_spent")
SPENT = ("air_seconds", "joules")
NEW = (*SPENT, "test_score", "training", "holding")  # columns that older folders do not have
ROUND_COLUMNS = dict.fromkeys((*WHOLE, *COSTS, "test_accuracy", "seconds", *NEW), "float64")
FRAME_COLUMNS = {"round": "int64", "slot": "int64", "event": "str"} | dict.fromkeys(
    ("ue", "value", "noise", "staleness"), "float64"
)


@dataclass(frozen=True)
class WatchedRun:
    """A run that a folder holds or will hold.

    label: its name on the page. group: its strategy or combination; runs of a group differ in their seeds.
    """

    label: str
    group: str
    folder: Path
    scenario: Scenario

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / SUMMARY).exists()

    def part_done(self, rounds: pd.DataFrame) -> float:
        """Return the part of the run that is done, from 0 to 1, by its rounds or by its budgets."""
        if self.is_finished:
            return 1.0
        if not len(rounds):
            return 0.0
        done, means = int(rounds["round"].iloc[-1]) + 1, rounds[[*SPENT]].mean().fillna(0.0)
        return self.scenario.part_done(done, int(rounds["slots_spent"].iloc[-1]), *(done * means))


@dataclass(frozen=True)
class WatchedFolder:
    """The runs of a folder. kind: what messages call it. digest: changes when other runs belong to it."""

    path: Path
    kind: str
    runs: tuple[WatchedRun, ...]
    digest: str


@dataclass(frozen=True)
class Progress:
    """How far the runs of a folder are.

    done: from 0 to 1. finished: number of runs. left: seconds, None if unknown. quiet: seconds without news.
    """

    done: float
    finished: int
    left: float | None
    quiet: float


GROWING = (REPRODUCTION, EQUAL_SLOTS, RANDOM_SETTINGS, ATTACK_STUDY)
"""Kinds whose runs are known only from the folders of those that have begun."""


def read_folder(path: Path) -> WatchedFolder:
    """Return the runs that belong to the results in a folder; refuse a folder without any."""
    kind = _kind_of(path)
    if kind is None:
        if not path.is_dir():
            raise no_folder(path)
        raise RefusedError(f"{path} holds no run, comparison or sweep; give the folder that --out named")
    return WatchedFolder(path, kind.name, tuple(_runs(path, kind)), _digest(path, kind))


def _kind_of(path: Path) -> FolderKind | None:
    """Return the kind of results in a folder; None if there are none."""
    return next((kind for kind in KINDS if (path / kind.marker).is_file()), None)


def _runs(path: Path, kind: FolderKind) -> list[WatchedRun]:
    if kind is RUN:
        scenario = Scenario.load(path / SCENARIO)
        return [WatchedRun(scenario.label, scenario.strategy.name, path, scenario)]
    if kind in GROWING:
        names = {folder.relative_to(path).as_posix(): folder for folder in _run_folders(path, kind)}
        return [
            WatchedRun(name, re.sub(r"-seed\d+$", "", name), folder, Scenario.load(folder / SCENARIO))
            for name, folder in names.items()
        ]
    from fedslot.experiments.loading import read_study  # it loads PyTorch, which a single run does not need

    study = read_study(path, kind)
    groups = [label for label in study.labels for _ in study.all_seeds]
    return [
        WatchedRun(label, group, task.folder, task.scenario)
        for label, group, task in zip(study.run_labels, groups, study.tasks(path), strict=True)
    ]


def _run_folders(path: Path, kind: FolderKind) -> list[Path]:
    return sorted(file.parent for pattern in kind.runs for file in path.glob(f"{pattern}/{SCENARIO}"))


def _digest(path: Path, kind: FolderKind) -> str:
    content = (path / kind.marker).read_bytes()
    if kind in GROWING:
        content += "".join(map(str, _run_folders(path, kind))).encode()
    return hashlib.sha256(content).hexdigest()


class Watched:
    """The runs of a folder with their rows so far; what cannot be read is a `fault`, never an exception."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: WatchedFolder | None = None
        self.fault = ""
        self._rounds: dict[Path, GrowingTable] = {}
        self._frames: OrderedDict[Path, GrowingTable] = OrderedDict()
        self._next = 0.0
        self._parts: list[float] = []  # done of each run
        self._pace: deque[tuple[float, float]] = deque()  # when which part of all was done
        self._news = time.monotonic()

    def poll(self) -> None:
        """Read whatever is new in the folder, unless that was done a moment ago."""
        began = time.monotonic()
        if began < self._next:
            return
        self._poll_folder()
        if self.folder:
            for table in [*self._rounds.values(), *self._frames.values()]:
                table.poll()
            self._note_pace(self.folder)
        self._next = time.monotonic() + max(PERIOD, (time.monotonic() - began) / BUSY)

    def _poll_folder(self) -> None:
        kind = _kind_of(self.path)
        if kind is None:
            what = "has vanished" if self.folder else "is not there yet"
            self.fault = f"{self.path} {what if not self.path.is_dir() else 'holds no results yet'}"
            return
        try:
            if self.folder is None or self.folder.digest != _digest(self.path, kind):
                self.folder = read_folder(self.path)
                self._rounds = {run.folder: self.rounds(run) for run in self.folder.runs}
            self.fault = ""
        except (InputError, RefusedError) as error:
            self.fault = str(error)
        except OSError as error:
            self.fault = f"{error.filename or self.path} cannot be read ({error.strerror})"

    def rounds(self, run: WatchedRun) -> GrowingTable:
        """Return the rounds of a run, which every poll reads."""
        return self._rounds.get(run.folder) or GrowingTable(run.folder / ROUNDS, ROUND_COLUMNS, MOST_ROUNDS, NEW)

    def frames(self, run: WatchedRun) -> GrowingTable:
        """Return the frames of a run, which polls read from now on."""
        table = self._frames.pop(run.folder, None)
        if table is None:
            table = GrowingTable(run.folder / FRAMES, FRAME_COLUMNS, MOST_FRAME_ROWS, ("staleness",))
            table.poll()
        self._frames[run.folder] = table  # as the latest
        while len(self._frames) > TABLES_OF_FRAMES:
            self._frames.popitem(last=False)
        return table

    def faults(self, run: WatchedRun) -> str:
        """Return what is wrong with the folder or the files of a run; empty if nothing is."""
        frames = self._frames.get(run.folder)
        return self.fault or self.rounds(run).fault or (frames.fault if frames else "")

    def _note_pace(self, folder: WatchedFolder) -> None:
        self._parts, now = [run.part_done(self.rounds(run).rows) for run in folder.runs], time.monotonic()
        done = sum(self._parts) / max(1, len(self._parts))
        if not self._pace or done != self._pace[-1][1]:
            if self._pace and done < self._pace[-1][1]:  # it was started over
                self._pace.clear()
            self._pace.append((now, done))
            self._news = now
        while len(self._pace) > 2 and self._pace[0][0] < now - PACE:
            self._pace.popleft()

    def presence(self, run: WatchedRun) -> Presence | None:
        """Return which devices are here, if a deployment writes into the folder of a run."""
        try:
            return Presence.read((run.folder / PRESENCE).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def progress(self) -> Progress:
        """Return how far the runs are and how long they will take at the pace of the last minutes."""
        now, done, left = time.monotonic(), self._pace[-1][1] if self._pace else 0.0, None
        if len(self._pace) > 1 and done < 1:
            (first, before), (last, _) = self._pace[0], self._pace[-1]
            left = max(0.0, (1 - done) * (last - first) / (done - before) - (now - last))
        return Progress(done, sum(part >= 1 for part in self._parts), left, now - self._news)
