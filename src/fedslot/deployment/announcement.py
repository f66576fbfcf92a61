"""A frame as it is broadcast to all UEs, for transports over which devices speak of their own accord."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ConfigDict, FiniteFloat, TypeAdapter

from fedslot.deployment.encoding import PLAIN, SEED_DIGITS, Encoding
from fedslot.deployment.frame import Frame, Limit, Turn, read_channel
from fedslot.deployment.pace import Pace
from fedslot.deployment.timing import MOST_SECONDS, Timing
from fedslot.support.errors import InputError, reason

if TYPE_CHECKING:
    from fedslot.scenario import Scenario

MOST = 10**12  # rounds and slots of a training
MOST_SLOTS = 10**6  # of a frame
MOST_ARRIVALS = 10_000  # UEs per slot
MOST_DRAWS = 1 << 22  # slots that a device draws to repeat a frame
MOST_FRAME_SECONDS = 31 * MOST_SECONDS
MOST_BYTES = 1 << 22
NOT_OF_DEVICES = (
    *("rounds", "time_budget", "seconds_budget", "joules_budget"),
    *("frame", "push", "strategy", "valuation", "aggregation", "cost_rule"),
)
CLOCK = secrets.token_hex(8)  # the name of this process's clock


@dataclass(frozen=True)
class Announcement:
    """What the PS tells all UEs in the downlink slot, as JSON.

    Infinite numbers, in `told` and as the ends of a condition for pushing, are written as "inf" and "-inf".

    frame: a name of this announcement that no other has; updates name it, so that none is taken for another frame's.
    round: the frame's number, from 0. model: the version of the global model to train. scenario: its `scenario_key`.
    sent: when it was sent, in seconds by the PS's clock. clock: a name of this clock, new when the PS starts.
    timing: when the slots are. slots: number of uplink slots.
    pull: the UEs with a reserved slot, in the order of their slots.
    window: the turn of a UE that may push; None if none may.
    backlogged: the UEs that have an update to push, in the order of their ranks; None: they know by themselves.
    told: ages or values, by UE as text, where these are a condition for pushing; none of a UE whose number is NaN.
    chance: the probability with which a UE that is not pulled gets an update to push, where the PS does not know.
    retries: number of times that a UE pushes again after a push in vain; None: as often as it takes with `arrivals`,
        else never.
    arrivals: mean number of updates to push that a UE gets per slot, in place of `chance`. slots_spent: since the first
        frame. received: the UEs that were received in the frame before.
    pace: what devices need where frames wait for no training; None where they do.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    frame: str
    round: int
    model: str
    scenario: str
    sent: FiniteFloat
    clock: str
    timing: Timing
    slots: int
    pull: list[int]
    window: Turn | None
    backlogged: list[int] | None
    told: dict[str, Limit] = field(default_factory=dict)
    chance: FiniteFloat = 0.0
    retries: int | None = None
    arrivals: FiniteFloat | None = None
    slots_spent: int | FiniteFloat = 0
    received: list[int] = field(default_factory=list)
    encoding: Encoding = PLAIN
    pace: Pace | None = None

    @classmethod
    def of(
        cls,
        frame: Frame,
        scenario: Scenario,
        model: str,
        timing: Timing,
        slots_spent: float,
        received: list[int],
        waiting: int = 0,
        encoding: Encoding = PLAIN,
        pace: Pace | None = None,
    ) -> Announcement:
        """Announce a frame. model: the version of the model. waiting: number of UEs that were backlogged before it."""
        push, others = scenario.push, max(1, scenario.data.ues - len(frame.grant.pull) - waiting)
        wanted = others if push.contenders == "ready" else max(0, push.contenders - waiting)
        turns = [frame.turns[ue] for ue in frame.backlogged.tolist()]
        return cls(
            frame=secrets.token_hex(8),
            round=frame.round,
            model=model,
            scenario=scenario_key(scenario),
            sent=time.monotonic(),
            clock=CLOCK,
            timing=timing,
            slots=frame.slots,
            pull=frame.grant.pull.tolist(),
            window=frame.window if len(frame.backlogged) else None,
            backlogged=None if frame.open else frame.backlogged.tolist(),
            told={str(turn.ue): turn.told for turn in turns if not math.isnan(turn.told)},
            chance=min(1.0, wanted / others),
            retries=push.retries,
            arrivals=None if push.arrivals is None else push.arrivals / scenario.data.ues,
            slots_spent=slots_spent,
            received=received,
            encoding=encoding,
            pace=pace,
        )

    def turn(self, ue: int) -> Turn | None:
        """Return the turn of a UE, or None if it has none in this frame."""
        if ue in self.pull:
            return Turn(self.round, ue, self.pull.index(ue) + 1)
        if self.window is None:
            return None
        own = replace(self.window, ue=ue, told=self.told.get(str(ue), math.nan))
        if self.backlogged is None:
            return own
        return replace(own, rank=self.backlogged.index(ue)) if ue in self.backlogged else None

    def last_received(self, ue: int) -> int:
        """Return the round of the last received update of a UE, if that was in the frame before; otherwise -1."""
        return self.round - 1 if ue in self.received else -1

    def write(self) -> bytes:
        """Return the announcement as JSON."""
        without: dict[str, Any] = {"window": {"told"}}  # every UE has a `told` of its own
        without |= {
            name: True for name, default in (("encoding", PLAIN), ("pace", None)) if getattr(self, name) == default
        }
        return JSON.dump_json(self, exclude=without)

    @classmethod
    def read(cls, data: bytes) -> Announcement:
        """Read JSON that `write` returned; raise `ValueError` if it is none."""
        try:
            if len(data) > MOST_BYTES:
                raise InputError("announcement", f"{len(data)} bytes", f"at most {MOST_BYTES}")
            announced = JSON.validate_json(data, strict=True)
            announced._check()
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"no announcement ({reason(error)[:200]})") from None
        return announced

    def _check(self) -> None:
        """Refuse numbers by which a device could not draw its slot, or would need too much time or memory for it."""
        self.encoding.check()
        pace = self.pace or Pace("", 0)
        window, ues = self.window, 1 if self.backlogged is None else len(self.backlogged)
        last = max(len(self.pull), 0 if window is None else window.first - 1 + window.slots)
        for name, value, most in (
            ("round", self.round, MOST),
            ("slots", self.slots, MOST_SLOTS),
            ("last slot", last, self.slots),
            ("seconds", self.timing.ends(max(0, min(self.slots, MOST_SLOTS))), MOST_FRAME_SECONDS),
            ("chance", self.chance, 1.0),
            ("arrivals", self.arrivals or 0.0, MOST_ARRIVALS),
            ("slots_spent", self.slots_spent, MOST),
            ("most", pace.most, MOST),
            ("start", pace.start or 0, MOST),
            ("wait", pace.wait, MOST_SLOTS),
            ("uplink", 1 / pace.uplink if pace.uplink > 0 else math.inf, MOST),
        ):
            if not 0 <= value <= most:
                raise InputError(name, value, f"from 0 to {most}")
        if window is None:
            return
        if window.slot or window.round != self.round:
            raise InputError("window", f"slot {window.slot}, round {window.round}", f"slot 0, round {self.round}")
        copies = max(getattr(read_channel(window.channel), "degrees", [1]))
        if window.backlogged != ues or ues * copies > MOST_DRAWS:
            raise InputError("backlogged", window.backlogged, f"{ues}, and at most {MOST_DRAWS} with all copies")
        if window.first < 1 or window.slots < 1 or not 0 <= window.probability <= 1:
            raise InputError("window", f"{window.slots} slots from {window.first}", "push slots with a probability")
        if window.seed and not (window.seed.isascii() and window.seed.isdigit() and len(window.seed) <= SEED_DIGITS):
            raise InputError("seed", window.seed, f"at most {SEED_DIGITS} digits")


JSON = TypeAdapter(Announcement)


def scenario_key(scenario: Scenario) -> str:
    """Return a hash of the fields of a scenario by which devices train; all others may change in a training."""
    fields = scenario.model_dump(exclude=set(NOT_OF_DEVICES)) | {"epochs": scenario.epochs}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


class Backlog:
    """Draws from a device's own entropy whether its UE has an update to push, where the PS does not know.

    Without `push.arrivals`, it has one with the announced probability, so that `push.contenders` UEs are backlogged on
    average. With them, updates arrive at the UE at the announced rate, and it stays backlogged until it is received, or
    gives up after `push.retries`.
    """

    def __init__(self, ue: int) -> None:
        self.ue, self._rng = ue, np.random.default_rng()
        self._waiting, self._slots_spent = False, 0.0
        self._sent, self._failures = False, 0

    def sent(self) -> None:
        """Note that the UE sends in the frame that was announced last."""
        self._sent = True

    def __call__(self, announced: Announcement) -> bool:
        """Tell whether the UE has an update to push; to be called once for every announcement."""
        self._learn(announced)
        if announced.arrivals is None:
            return self._waiting or bool(self._rng.random() < announced.chance)
        elapsed = max(0, announced.slots_spent - self._slots_spent)
        self._slots_spent = announced.slots_spent
        self._waiting |= bool(self._rng.poisson(announced.arrivals * elapsed))
        return self._waiting

    def _learn(self, announced: Announcement) -> None:
        """Learn from an announcement what became of the frame before."""
        failed, self._sent = self._sent and self.ue not in announced.received, False
        if self.ue in announced.received:
            self._waiting = False
        elif failed:
            self._failures += 1
            again = announced.arrivals is not None if announced.retries is None else self._failures <= announced.retries
            self._waiting = again
        if not self._waiting:
            self._failures = 0
