"""The size of a cell: a request about frames, contenders, seconds and joules, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedslot.access.clock import NO_RADIO, Radio, Usage
from fedslot.planning.cell import Barring, Progress, PushCell
from fedslot.planning.goals import longest_frame, shortest_frame, supported_contenders
from fedslot.planning.inputs import readiness
from fedslot.planning.planner import MOST_RECEIVED, FrameSplit, Objective, Plan, compare
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Sizes of updates that are compared, relative to the given one."""
MOST_RESIZED = 1000
"""Largest frame for which other sizes of updates are compared."""


class UpdateSize(NamedTuple):
    """A frame of the same time with updates of another size: `size` times as large, `update_slots` radio slots each.

    slots: uplink slots that fit. best: the best split, and usage: what it takes; None if no update fits.
    """

    size: float
    update_slots: int
    slots: int
    best: FrameSplit | None
    usage: Usage | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        best = None if self.best is None or self.usage is None else {**self.best.as_dict(), **self.usage.as_dict()}
        return {"size": self.size, "update_slots": self.update_slots, "slots": self.slots, "best": best}


class ShortestFrame(NamedTuple):
    """A shortest frame for a number of updates: with the best split or `pull` pull slots, and with barring.

    frame: its split; None if no frame of at most `searched` slots yields that number.
    """

    pull: int | None
    barring: Barring
    frame: FrameSplit | None
    searched: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        frame = self.frame and {"slots": self.frame.pull + self.frame.push, **self.frame.as_dict()}
        return {**self._asdict(), "pull": "best" if self.pull is None else self.pull, "frame": frame}


@dataclass(frozen=True)
class SizingRequest:
    """A cell to plan.

    slots: uplink slots of a frame. pull: only this number of pull slots; None: all.
    own_pull: the scenario's number of pull slots, to compare the best split with.
    late: a scenario whose computing times say when UEs are ready, instead of `cell.ready`.
    want_updates: number of updates that a frame shall receive. success: probability that a contender is received.
    """

    slots: int
    cell: PushCell
    objective: Objective = MOST_RECEIVED
    pull: int | None = None
    own_pull: int | None = None
    radio: Radio = NO_RADIO
    late: Scenario | None = None
    want_updates: float | None = None
    success: float | None = None

    def answer(self, progress: Progress | None = None) -> Sizing:
        """Compute the answer."""
        if self.late is not None:
            for name, value in (("want_updates", self.want_updates), ("success", self.success)):
                if value is not None:
                    raise InputError(name, value, "given with --ready, since the scenario's UEs are ready late")
        if self.want_updates is not None and self.objective.frame_limit is not None:
            raise InputError("want_updates", self.want_updates, "left out with --frame-limit")
        if self.success is not None and not self.cell.computed and self.pull is None:
            raise InputError("success", self.success, "given with --pull on a channel that is simulated")
        result = self.compare(progress)
        supported = {}
        if self.success is not None:
            supported = {split.pull: self._supported(self.success, split.push) for split in result.splits}
        wanted = () if self.want_updates is None else self._shortest_frames(self.want_updates)
        return Sizing(self, result, supported, wanted, self._resize())

    def compare(self, progress: Progress | None = None) -> Plan:
        """Compare the splits."""
        cell = self.cell
        if self.late is not None:
            assert self.radio.slot_seconds is not None
            cell = replace(cell, ready=readiness(self.late, self.slots, self.radio.slot_seconds))
        return compare(cell, self.slots, None if self.pull is None else [self.pull], self.objective, progress)

    def usage(self, split: FrameSplit) -> Usage:
        """Return what a frame takes. Without a number of UEs, those listen that are pulled or would contend."""
        listeners = split.pull + self.cell.contenders_mean if self.cell.ues is None else self.cell.ues
        return self.radio.usage(split, listeners)

    def _resize(self) -> tuple[UpdateSize, ...]:
        """Compare other sizes of updates in frames of the same time, each with its split of most value per frame."""
        limits = (self.pull, self.objective.budget, self.objective.frame_limit)
        if self.radio.bits_per_slot is None or any(limit is not None for limit in limits):
            return ()
        radio_slots, sizes = self.radio.frame_slots(self.slots), []
        for size in SIZES:
            radio = self.radio.scaled(size)
            slots = max(0, radio.uplink_slots_in(radio_slots))
            if slots > MOST_RESIZED:
                continue
            best = usage = None
            if slots:
                other = replace(self, slots=slots, radio=radio)
                best = other.compare().best
                usage = other.usage(best)
            sizes.append(UpdateSize(size, radio.update_slots, slots, best, usage))
        return tuple(sizes)

    def _shortest_frames(self, updates: float) -> tuple[ShortestFrame, ...]:
        """Return the shortest frames with the best split, the own split and push alone, with given and best barring."""
        own = self.own_pull if self.pull is None else self.pull
        ways = dict.fromkeys([None, 0] if own is None else [None, own, 0])
        cells = [replace(self.cell, barring=barring) for barring in dict.fromkeys([self.cell.barring, "best"])]
        return tuple(
            ShortestFrame(pull, cell.barring, shortest_frame(cell, updates, pull), longest_frame(pull, cell))
            for pull in ways
            for cell in cells
        )

    def _supported(self, success: float, push: int) -> tuple[int, int]:
        """Return the most contenders with the given probability of sending (1 if it is the best), and with the best."""
        barrings: list[Barring] = [1.0 if self.cell.barring == "best" else self.cell.barring, "best"]
        given, best = (supported_contenders(replace(self.cell, barring=p), success, push) for p in barrings)
        return given, max(given, best)


@dataclass(frozen=True)
class Sizing:
    """The answer to a request.

    supported: by number of pull slots, the most contenders that each succeed with probability `success`, with the given
    and with the best probability of sending; empty without `success`. wanted: empty without `want_updates`.
    resized: updates of other sizes, if their size is known.
    """

    request: SizingRequest
    plan: Plan
    supported: Mapping[int, tuple[int, int]]
    wanted: tuple[ShortestFrame, ...]
    resized: tuple[UpdateSize, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON: those of the only split, or of all of them and the best."""
        radio = self.request.radio
        splits = [{**split.as_dict(), **self.more(split)} for split in self.plan.splits]
        if self.request.pull is not None:
            answer = splits[0]
        else:
            best = splits[self.plan.splits.index(self.plan.best)]
            break_even = {"break_even_value_ratio": self.plan.break_even}
            answer = {"by": self.plan.by, **break_even, "best": best, "splits": splits}
        if radio.bits_per_slot is not None:
            answer |= {"bits": radio.bits, "update_slots": radio.update_slots, "downlink_slots": radio.downlink_slots}
        if self.resized:
            answer["resized"] = [row.as_dict() for row in self.resized]
        if self.wanted:
            answer["wanted"] = [row.as_dict() for row in self.wanted]
        return answer

    def more(self, split: FrameSplit) -> dict[str, float | None]:
        """Return what a split takes in seconds and joules, and the contenders that it bears, if asked for."""
        more: dict[str, float | None] = {}
        if self.request.radio != NO_RADIO:
            more |= self.request.usage(split).as_dict()
        if split.pull in self.supported:
            more |= dict(zip(("bears", "bears_with_best_barring"), self.supported[split.pull], strict=True))
        return more
