"""The size of a cell: a request about frames, contenders, seconds and joules, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel, Collision
from fedslot.access.clock import NO_RADIO, Radio, Usage
from fedslot.access.contenders import contender_pmf, parse_contenders
from fedslot.access.goals import least_slots, longest_frame, most_contenders
from fedslot.access.planner import FrameSplit, Plan, plan
from fedslot.access.pushes import Barring, Progress
from fedslot.planning.inputs import readiness
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
        numbers = {"size": self.size, "update_slots": self.update_slots, "slots": self.slots}
        if self.best is None or self.usage is None:
            return {**numbers, "best": None}
        return {**numbers, "best": {**self.best.as_dict(), **self.usage.as_dict()}}


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
        return {
            "pull": "best" if self.pull is None else self.pull,
            "barring": self.barring,
            "frame": frame,
            "searched": self.searched,
        }


class SupportedContenders(NamedTuple):
    """The most contenders that each succeed with a probability.

    given: with the given probability of sending, or always if the best was asked for. best: with the best probability.
    """

    given: int
    best: int


@dataclass(frozen=True)
class SizingRequest:
    """A cell to plan; fields that are not explained here are arguments of `access.plan`.

    contenders: as text, see `access.contenders.parse_contenders`.
    pull: only this number of pull slots; None: all.
    own_pull: the scenario's number of pull slots, to compare the best split with.
    ready: probability that a pulled UE is ready; None: by the computing times of `scenario`.
    want_updates: number of updates that a frame shall receive. success: probability that a contender is received.
    """

    slots: int
    contenders: str
    channel: Channel
    pull: int | None = None
    own_pull: int | None = None
    value_ratio: float = 1.0
    ready: float | None = 1.0
    ues: int | None = None
    barring: Barring = 1.0
    budget: float | None = None
    frame_limit: float | None = None
    confidence: float | None = None
    frames: int = 4000
    precision: float | None = None
    seed: int = 0
    radio: Radio = NO_RADIO
    scenario: Scenario | None = None
    want_updates: float | None = None
    success: float | None = None

    @property
    def simulated(self) -> bool:
        """Whether the channel is simulated."""
        return type(self.channel) is not Collision

    def answer(self, progress: Progress | None = None) -> Sizing:
        """Compute the answer."""
        if self.ready is None:
            for name, value in (("want_updates", self.want_updates), ("success", self.success)):
                if value is not None:
                    raise InputError(name, value, "given with --ready, since the scenario's UEs are ready late")
        if self.want_updates is not None and self.frame_limit is not None:
            raise InputError("want_updates", self.want_updates, "left out with --frame-limit")
        if self.success is not None and self.simulated and self.pull is None:
            raise InputError("success", self.success, "given with --pull on a channel that is simulated")
        result = self.compare(progress)
        success = self.success
        return Sizing(
            self,
            result,
            {} if success is None else {split.pull: self._supported(success, split.push) for split in result.splits},
            () if self.want_updates is None else self._want(self.want_updates),
            self._resize(),
        )

    def compare(self, progress: Progress | None = None) -> Plan:
        """Compare the splits."""
        return plan(
            self.slots,
            parse_contenders(self.contenders),
            pulls=None if self.pull is None else [self.pull],
            value_ratio=self.value_ratio,
            ready=self._readiness() if self.ready is None else self.ready,
            ues=self.ues,
            budget=self.budget,
            frame_limit=self.frame_limit,
            confidence=self.confidence,
            barring=self.barring,
            channel=self.channel,
            frames=self.frames,
            precision=self.precision,
            seed=self.seed,
            progress=progress,
        )

    def usage(self, split: FrameSplit) -> Usage:
        """Return what a frame takes. Without a number of UEs, those listen that are pulled or would contend."""
        pmf = contender_pmf(parse_contenders(self.contenders))
        listeners = split.pull + float(np.arange(len(pmf)) @ pmf) if self.ues is None else self.ues
        return self.radio.usage(split, listeners)

    def _resize(self) -> tuple[UpdateSize, ...]:
        """Compare other sizes of updates in frames of the same time, each with its split of most value per frame."""
        if self.radio.bits_per_slot is None:
            return ()
        if any(given is not None for given in (self.pull, self.budget, self.frame_limit)):
            return ()
        radio_slots, found = self.radio.frame_slots(self.slots), []
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
            found.append(UpdateSize(size, radio.update_slots, slots, best, usage))
        return tuple(found)

    def _want(self, updates: float) -> tuple[ShortestFrame, ...]:
        """Return the shortest frames with the best split, the own split and push alone, with given and best barring."""
        own = self.own_pull if self.pull is None else self.pull
        ways = dict.fromkeys([None, 0] if own is None else [None, own, 0])
        return tuple(
            ShortestFrame(pull, barring, self._least(updates, pull, barring), longest_frame(pull, self.channel))
            for pull in ways
            for barring in dict.fromkeys([self.barring, "best"])
        )

    def _least(self, updates: float, pull: int | None, barring: Barring) -> FrameSplit | None:
        return least_slots(
            updates,
            parse_contenders(self.contenders),
            pull=pull,
            ready=1.0 if self.ready is None else self.ready,
            ues=self.ues,
            barring=barring,
            channel=self.channel,
            frames=self.frames,
            precision=self.precision,
            seed=self.seed,
        )

    def _supported(self, success: float, push: int) -> SupportedContenders:
        numbers = [
            most_contenders(
                success,
                push,
                barring=barring,
                channel=self.channel,
                frames=self.frames,
                precision=self.precision,
                seed=self.seed,
            )
            for barring in (1.0 if self.barring == "best" else self.barring, "best")
        ]
        return SupportedContenders(numbers[0], max(numbers))

    def _readiness(self) -> NDArray[np.float64]:
        assert self.scenario is not None
        assert self.radio.slot_seconds is not None
        return readiness(self.scenario, self.slots, self.radio.slot_seconds)


@dataclass(frozen=True)
class Sizing:
    """The answer to a request.

    supported: by number of pull slots; empty without `success`. wanted: empty without `want_updates`.
    resized: updates of other sizes, if their size is known.
    """

    request: SizingRequest
    plan: Plan
    supported: Mapping[int, SupportedContenders]
    wanted: tuple[ShortestFrame, ...]
    resized: tuple[UpdateSize, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON: those of the only split, or of all of them and the best."""
        request, radio, best = self.request, self.request.radio, self.plan.best
        splits = [self._describe(split) for split in self.plan.splits]
        if request.pull is not None:
            answer = splits[0]
        else:
            break_even = {"break_even_value_ratio": self.plan.break_even}
            answer = {"by": self.plan.by, **break_even, "best": self._describe(best), "splits": splits}
        if radio.bits_per_slot is not None:
            answer |= {"bits": radio.bits, "update_slots": radio.update_slots, "downlink_slots": radio.downlink_slots}
        if self.resized:
            answer["resized"] = [row.as_dict() for row in self.resized]
        if self.wanted:
            answer["wanted"] = [row.as_dict() for row in self.wanted]
        return answer

    def _describe(self, split: FrameSplit) -> dict[str, Any]:
        return {**split.as_dict(), **self.more(split)}

    def more(self, split: FrameSplit) -> dict[str, float | None]:
        """Return what is known of a split beyond its own fields: what it takes, and the contenders that it bears."""
        more: dict[str, float | None] = {}
        if self.request.radio != NO_RADIO:
            more |= self.request.usage(split).as_dict()
        if found := self.supported.get(split.pull):
            more |= {"bears": found.given, "bears_with_best_barring": found.best}
        return more
