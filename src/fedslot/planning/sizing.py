"""The size of a cell: what `fedslot plan` answers about frames, contenders, seconds and joules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from fedslot.access.clock import NO_RADIO, Radio, Usage
from fedslot.planning.backlog import StationaryCell
from fedslot.planning.cell import Barring, Progress, PushCell
from fedslot.planning.goals import longest_frame, shortest_frame, supported_contenders
from fedslot.planning.inputs import readiness
from fedslot.planning.planner import MOST_RECEIVED, FrameSplit, Objective, Plan, compare
from fedslot.planning.readiness import make_readiness
from fedslot.planning.training import NO_LOSS, NOTHING_ASKED, PacketLoss, TrainingPlan
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Sizes of updates that are compared, relative to the given one."""
MOST_RESIZED = 1000
"""Largest frame for which other sizes of updates are compared."""


class UpdateSize(NamedTuple):
    """A frame of the same time with updates of another size: `size` times as large, `update_slots` radio slots each.

    slots: uplink slots that fit. best: the numbers of the best split, as of `Sizing.numbers`; None if no update fits.
    """

    size: float
    update_slots: int
    slots: int
    best: dict[str, Any] | None


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
class Sizing:
    """A cell to plan, and what is asked about it. Answers are computed when they are first used.

    slots: uplink slots of a frame. pull: only this number of pull slots; None: all.
    own_pull: the scenario's number of pull slots, to compare the best split with.
    late: a scenario whose computing times say when UEs are ready, instead of `cell.ready`.
    link: how packets get through; `radio` has no room yet for those that are sent again. training: the whole of it.
    want_updates: number of updates that a frame shall receive. success: probability that a contender is received.
    """

    slots: int
    cell: PushCell
    objective: Objective = MOST_RECEIVED
    pull: int | None = None
    own_pull: int | None = None
    radio: Radio = NO_RADIO
    late: Scenario | None = None
    link: PacketLoss = NO_LOSS
    training: TrainingPlan = NOTHING_ASKED
    want_updates: float | None = None
    success: float | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.late is not None:
            for name, value in (("want_updates", self.want_updates), ("success", self.success)):
                if value is not None:
                    raise InputError(name, value, "given with --ready, since the scenario's UEs are ready late")
        if self.want_updates is not None and self.objective.frame_limit is not None:
            raise InputError("want_updates", self.want_updates, "left out with --frame-limit")
        if self.success is not None and self.cell.feeds_back:
            raise InputError("success", self.success, "left out with arrivals, and with --barring auto")
        if self.success is not None and not self.cell.computed and self.pull is None:
            raise InputError("success", self.success, "given with --pull on a channel that is simulated")

    @cached_property
    def plan(self) -> Plan:
        """The splits."""
        pulls = None if self.pull is None else [self.pull]
        return compare(self._ready_cell, self.slots, pulls, self.objective, self.progress)

    @cached_property
    def _ready_cell(self) -> PushCell:
        if self.late is None:
            return self.cell
        slot_seconds = self._on_air.seconds(1, downlinks=0)
        assert slot_seconds is not None
        return replace(self.cell, ready=readiness(self.late, self.slots, slot_seconds))

    @property
    def own(self) -> FrameSplit:
        """The scenario's split if it is among the splits, else the best."""
        return next((split for split in self.plan.splits if split.pull == self.own_pull), self.plan.best)

    @cached_property
    def backlog(self) -> StationaryCell | None:
        """What limits the arrivals of the own split; None without arrivals."""
        if self.cell.arrivals is None:
            return None
        cell = self._ready_cell
        return StationaryCell(cell, self.own.pull, self.own.push, make_readiness(cell.ready, self.slots))

    @cached_property
    def supported(self) -> Mapping[int, tuple[int, int]]:
        """By number of pull slots, the most contenders that each succeed with probability `success`; {} without it.

        The first number is with the given probability of sending (1 if that is the best), the second with the best.
        """
        if self.success is None:
            return {}
        cells = [
            replace(self.cell, barring=p) for p in (1.0 if self.cell.barring == "best" else self.cell.barring, "best")
        ]
        numbers = {}
        for split in self.plan.splits:
            given, best = (supported_contenders(cell, self.success, split.push) for cell in cells)
            numbers[split.pull] = given, max(given, best)
        return numbers

    @cached_property
    def wanted(self) -> tuple[ShortestFrame, ...]:
        """The shortest frames for `want_updates`, by the best split, the own one and push alone, and by barring."""
        if self.want_updates is None:
            return ()
        own = self.own_pull if self.pull is None else self.pull
        ways = dict.fromkeys([None, 0] if own is None else [None, own, 0])
        cells = [replace(self.cell, barring=barring) for barring in dict.fromkeys([self.cell.barring, "best"])]
        return tuple(
            ShortestFrame(pull, cell.barring, shortest_frame(cell, self.want_updates, pull), longest_frame(pull, cell))
            for pull in ways
            for cell in cells
        )

    @cached_property
    def resized(self) -> tuple[UpdateSize, ...]:
        """Updates of other sizes in frames of the same time, each with its best split; () if sizes are not known."""
        limits = (self.pull, self.objective.budget, self.objective.frame_limit)
        if self.radio.bits_per_slot is None or any(limit is not None for limit in limits):
            return ()
        radio_slots, sizes = self._on_air.frame_slots(self.slots), []
        for size in SIZES:
            radio = self.radio.scaled(size)
            slots = max(0, self.link.on(radio).uplink_slots_in(radio_slots))
            if slots > MOST_RESIZED:
                continue
            other = replace(self, slots=slots, radio=radio, success=None, progress=None)
            best = other.numbers(other.plan.best) if slots else None
            sizes.append(UpdateSize(size, radio.update_slots, slots, best))
        return tuple(sizes)

    def usage(self, split: FrameSplit) -> Usage:
        """Return what a frame takes, by updates that arrive."""
        ues, arrives = self._listeners(split), self.arrives
        usage = self._on_air.usage(split, ues)
        period = self.training.period(self._on_air, usage, split, ues)
        per_update, per_joule = usage.energy_mj_per_update, usage.updates_per_joule
        return replace(
            usage,
            updates_per_second=None if period is None else arrives * split.expected_received / period,
            energy_mj_per_update=None if per_update is None or not arrives else per_update / arrives,
            updates_per_joule=None if per_joule is None or not arrives else per_joule * arrives,
        )

    @cached_property
    def arrives(self) -> float:
        """Probability that an update that did not collide arrives."""
        return self.link.arrives(self.radio.update_slots)

    @cached_property
    def _on_air(self) -> Radio:
        return self.link.on(self.radio)

    def _listeners(self, split: FrameSplit) -> float:
        """Return the number of UEs. Where it is not given, those listen that are pulled or would contend."""
        return split.pull + self.cell.contenders_mean if self.cell.ues is None else self.cell.ues

    def numbers(self, split: FrameSplit) -> dict[str, Any]:
        """Return the numbers of a split, and if asked for, its seconds and joules, and the contenders that it bears."""
        numbers = split.as_dict()
        if self.radio != NO_RADIO:
            usage = self.usage(split)
            numbers |= usage.as_dict()
            if self.link != NO_LOSS or self.training != NOTHING_ASKED:
                demand = self.training.demand(self._on_air, usage, split, self._listeners(split), self.arrives)
                numbers |= demand.as_dict()
        if split.pull in self.supported:
            numbers |= dict(zip(("bears", "bears_with_best_barring"), self.supported[split.pull], strict=True))
        return numbers

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON: those of the only split, or of all of them and the best."""
        splits = [self.numbers(split) for split in self.plan.splits]
        if self.pull is not None:
            answer = splits[0]
        else:
            best = splits[self.plan.splits.index(self.plan.best)]
            answer = {
                "by": self.plan.by,
                "break_even_value_ratio": self.plan.break_even,
                "best": best,
                "splits": splits,
            }
        if self.backlog is not None:
            most = self.backlog.most_arrivals
            answer["most_arrivals"] = None if math.isinf(most) else most
        if self.radio.bits_per_slot is not None:
            answer |= {name: getattr(self.radio, name) for name in ("bits", "update_slots", "downlink_slots")}
        if self.radio.full_bits is not None:
            names = ("bits", "full_bits", "model_bits", "uplink_length", "downlink_length")
            answer |= {name: getattr(self.radio, name) for name in names}
        if self.resized:
            answer["resized"] = [row._asdict() for row in self.resized]
        if self.wanted:
            answer["wanted"] = [row.as_dict() for row in self.wanted]
        return answer
