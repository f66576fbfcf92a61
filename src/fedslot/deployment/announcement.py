"""A frame as it is broadcast to all UEs, for transports over which devices speak of their own accord.

A device needs this and `frame.Turn`, which load neither PyTorch nor a transport.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedslot.deployment.frame import Frame, Turn
from fedslot.deployment.timing import Timing
from fedslot.support.errors import shorten

if TYPE_CHECKING:
    from fedslot.scenario import Scenario

CLOCK = secrets.token_hex(8)  # the name of this process's clock
KINDS = {  # what the types of fields admit
    "int": int,
    "str": str,
    "float": int | float,
    "float | None": int | float | None,
    "list[int]": list,
    "list[int] | None": list | None,
    "dict[str, float]": dict,
}
T = TypeVar("T", bound="Turn | Announcement")
INFINITIES = "inf", "-inf"  # as text, because JSON has no such numbers
ENDS = "least", "most"  # fields of a turn that may be infinite


@dataclass(frozen=True)
class Announcement:
    """What the PS tells all UEs in the downlink slot, as JSON.

    Infinite numbers, in `told` and as the ends of a condition for pushing, are written as "inf" and "-inf".

    frame: a name of this announcement that no other has; updates name it, so that none is taken for another frame's.
    round: the frame's number, from 0. model: the version of the global model to train. scenario: the hash of the
        scenario, apart from its length.
    sent: when it was sent, in seconds by the PS's clock. clock: a name of this clock, new when the PS starts.
    timing: when the slots are. slots: number of uplink slots.
    pull: the UEs with a reserved slot, in the order of their slots.
    window: the turn of a UE that may push; None if none may.
    backlogged: the UEs that have an update to push, in the order of their ranks; None: they know by themselves.
    told: ages or values, by UE as text, where these are a condition for pushing; none of a UE whose number is NaN.
    chance: the probability with which a UE that is not pulled has an update to push, where the PS does not know.
    arrivals: mean number of updates to push that a UE gets per slot, in place of `chance`. slots_spent: since the first
        frame. received: the UEs that were received in the frame before.
    """

    frame: str
    round: int
    model: str
    scenario: str
    sent: float
    clock: str
    timing: Timing
    slots: int
    pull: list[int]
    window: Turn | None
    backlogged: list[int] | None
    told: dict[str, float] = field(default_factory=dict)
    chance: float = 0.0
    arrivals: float | None = None
    slots_spent: int = 0
    received: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls, frame: Frame, scenario: Scenario, model: str, timing: Timing, slots_spent: int, received: list[int]
    ) -> Announcement:
        """Announce a frame."""
        push, others = scenario.push, max(1, scenario.data.ues - len(frame.grant.pull))
        wanted = others if push.contenders == "ready" else push.contenders
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
            arrivals=None if push.arrivals is None else push.arrivals / scenario.data.ues,
            slots_spent=slots_spent,
            received=received,
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

    def write(self) -> bytes:
        """Return the announcement as JSON."""
        fields = asdict(self)
        fields["told"] = {ue: _written(number) for ue, number in self.told.items()}
        if self.window is not None:
            fields["window"] |= {key: _written(getattr(self.window, key)) for key in ENDS}
            del fields["window"]["told"]  # which every UE has of its own
        return json.dumps(fields, allow_nan=False).encode()

    @classmethod
    def read(cls, data: bytes) -> Announcement:
        """Read JSON that `write` returned; raise `ValueError` if it is none."""
        try:
            fields: dict[str, Any] = json.loads(data, parse_float=_finite, parse_constant=_finite)
            window: Any = fields["window"]
            if window is not None:
                ends = {key: _read(window[key]) for key in ENDS}
                fields["window"] = _checked(Turn(**{**window, **ends}, told=math.nan))
            fields["told"] = {ue: _read(number) for ue, number in fields["told"].items()}
            return _checked(cls(**{**fields, "timing": Timing(**fields["timing"])}))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"no announcement ({type(error).__name__}: {error})") from None


def _written(number: float) -> float | str:
    """Return a number as JSON can hold it."""
    return str(number) if math.isinf(number) else number


def _read(written: Any) -> float:
    """Return the number that `_written` returned."""
    if type(written) in (int, float) or written in INFINITIES:
        return float(written)
    raise ValueError(f"{shorten(written)} is not a number")


def _finite(text: str) -> float:
    """Return a number of the JSON; refuse NaN and infinities, which Python's reader would take."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shorten(text)} is not finite")
    return number


def _checked(made: T) -> T:
    """Return what was read, if its fields have the types that they should."""
    for one in fields_of(made):
        kind, value = str(one.type), getattr(made, one.name)
        whole = "int" not in kind or value is None or all(type(item) is int for item in _items(value))
        if not whole or isinstance(value, bool) or not isinstance(value, KINDS.get(kind, object)):
            raise ValueError(f"{one.name} is {shorten(value)}")
    return made


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def scenario_key(scenario: Scenario) -> str:
    """Return a hash of a scenario that does not change when a run is continued to more rounds."""
    return scenario.replace({"rounds": 1, "time_budget": None}).digest


class Backlog:
    """Draws from a device's own entropy whether its UE has an update to push, where the PS does not know.

    Without `push.arrivals`, it has one with the announced probability, so that `push.contenders` UEs are backlogged on
    average. With them, updates arrive at the UE at the announced rate, and it stays backlogged until it is received.
    """

    def __init__(self, ue: int) -> None:
        self.ue, self._rng = ue, np.random.default_rng()
        self._waiting, self._slots_spent = False, 0

    def __call__(self, heard: Announcement) -> bool:
        """Tell whether the UE has an update to push; to be called once for every announcement that is heard."""
        if heard.arrivals is None:
            return bool(self._rng.random() < heard.chance)
        if self.ue in heard.received:
            self._waiting = False
        elapsed = max(0, heard.slots_spent - self._slots_spent)
        self._slots_spent = heard.slots_spent
        self._waiting |= bool(self._rng.poisson(heard.arrivals * elapsed))
        return self._waiting


Own = Mapping[str, float]
"""Attributes that a UE knows by itself, `noise` and `samples`."""
