"""An announced frame: the turn of each UE in it, and its receipt. A device needs `Turn` only, and no PyTorch.

UEs send when they are asked (Flower) or of their own accord (MQTT), and draw their slots from the scenario's seed or
from their own entropy. A `ParameterServer` announces four kinds of frames:

    UEs      slots   open  foreseen  expected
    asked    seeded  no    yes*      all that have a turn
    asked    free    no    no        all that have a turn
    unasked  seeded  no    yes*      pulled UEs, and those that push by the draw that the PS repeats*
    unasked  free    yes   no        pulled UEs

open: only UEs themselves know whether they have an update to push. foreseen: the PS knows who sends.
expected: the UEs that the PS waits for, and that are at fault if they are not heard.
* With a merit that only UEs know (`fedslot.messages.OWN`), no frame is foreseen, and no push is expected of unasked
UEs. In asynchronous mode it is the same, and a pulled UE that says nothing may be training, which is no fault.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import FiniteFloat, PlainSerializer, WrapValidator

from fedslot.access.channels import CHANNELS, Channel, make_channel
from fedslot.access.frame import COLLIDED, contend, resolve, tally
from fedslot.messages import OWN, TRAINED, Grant, Receipt, UEs
from fedslot.support.errors import InputError
from fedslot.support.rng import CHANNEL, CONTENTION, stream

if TYPE_CHECKING:
    from fedslot.scenario import Scenario


MOST_COPIES = 1 << 10  # of an update on a coded channel


def _read_limit(number: Any, read_finite: Any) -> float:
    return float(number) if number in ("inf", "-inf") else read_finite(number)


def _write_limit(number: float) -> float | str:
    return str(number) if math.isinf(number) else number


# infinities are text in JSON, which has no such numbers
Limit = Annotated[FiniteFloat, WrapValidator(_read_limit), PlainSerializer(_write_limit)]


@dataclass(frozen=True)
class Turn:
    """A UE's part in a frame: a reserved slot, or a window of push slots. Slots count uplink slots from 1.

    All fields are plain numbers and strings, so that any message can hold them.

    round: the frame, from 0. slot: the reserved slot, or 0 for a UE that may push.
    first, slots: the first push slot, and the number of push slots.
    probability: access barring, the probability with which the UE contends.
    attribute, least, most, told: a condition for pushing, as in `fedslot.messages.Merit`; "" for none. `told` is this
        UE's age or value.
    channel: name and options of the channel, as JSON.
    backlogged, rank: the number of UEs that may push, and the position of this one among them, from 0.
    seed: seed of the draw in decimal, by which PS and simulator repeat it; "" for the device's own entropy.

    >>> Turn(round=0, ue=7, slot=2).draw()
    [2]
    """

    round: int
    ue: int
    slot: int
    first: int = 0
    slots: int = 0
    probability: FiniteFloat = 1.0
    attribute: str = ""
    least: Limit = 0.0
    most: Limit = 0.0
    told: float = math.nan
    channel: str = ""
    backlogged: int = 0
    rank: int = 0
    seed: str = ""

    def draw(self, own: Mapping[str, float] = MappingProxyType({}), late: int = 0) -> list[int]:
        """Return the slots in which the UE sends: one, several on a coded channel, none if it is barred.

        own: attributes that the UE knows by itself, `fedslot.messages.OWN`. A UE that does not know the one by which
        the PS chooses does not push.
        late: push slots that began before the UE was ready. With a seed, by the clock of the scenario, if it has one.
        """
        return self._draw(late) if self.eligible(own) else []

    def settle(self, own: Mapping[str, float] = MappingProxyType({})) -> Turn | None:
        """Decide before any training whether the UE sends at all; None if it is barred.

        The turn that is returned has only its slots left to draw, once the UE is ready; and its condition to check, if
        that goes by what a UE knows once it has trained.
        """
        if self.slot:
            return self
        attribute = self.attribute if self.attribute in TRAINED else ""
        if not attribute and not self.eligible(own):
            return None
        if self.seed:
            return replace(self, attribute=attribute) if self._draw() else None
        if np.random.default_rng().random() >= self.probability:
            return None
        return replace(self, probability=1.0, attribute=attribute)

    @property
    def certain(self) -> bool:
        """Whether the PS can tell that the UE sends."""
        foreseen = bool(self.seed) and self.attribute not in OWN
        return bool(self.slot) or (foreseen and bool(self.draw()))

    def allows(self, slots: list[int], *, late: bool = False) -> bool:
        """Tell whether the UE may have sent in these slots. late: and may have become ready at any time."""
        if self.attribute and not slots:  # by its own attribute, which the PS does not know
            return True
        if self.slot or self.seed:  # the PS repeats the draw
            return any(slots == self._draw(begun) for begun in range(self.slots if late and self.seed else 1))
        window = range(self.first, self.first + self.slots)
        return len(slots) <= self.copies and len(set(slots)) == len(slots) and set(slots) <= set(window)

    def eligible(self, own: Mapping[str, float]) -> bool:
        """Tell whether the UE meets the condition for pushing."""
        if not self.attribute:
            return True
        value = own.get(self.attribute, math.nan) if self.attribute in OWN else self.told
        return self.least <= value <= self.most

    def _draw(self, late: int = 0) -> list[int]:
        if self.slot:
            return [self.slot]
        rng = stream(int(self.seed), CONTENTION, self.round) if self.seed else np.random.default_rng()
        begun = np.full(self.backlogged, float(late))
        sent = contend(begun, self.slots, self.probability, read_channel(self.channel), rng)
        return sorted(self.first - 1 + int(slot) for slot in sent[self.rank] if slot > 0)

    @property
    def copies(self) -> int:
        """The largest number of slots in which a pushing UE may send."""
        earliest = np.ones((1, 1), dtype=np.int64)
        sent = read_channel(self.channel).draw(earliest, self.slots, np.random.default_rng(0))
        return int(sent.shape[2])


class Frame:
    """A frame as the PS announced it.

    backlogged: the UEs that have an update to push; None if only they themselves know, and any that is not pulled may.
    seeded: whether UEs draw their slots from the scenario's seed, as in the simulator.
    unasked: whether UEs speak of their own accord, so that one that does not send says nothing.
    waits: whether the frame waits for those that it pulls; if not, one may still be training, and sends nothing.
    """

    def __init__(
        self, scenario: Scenario, grant: Grant, backlogged: UEs | None, round: int, seeded: bool, unasked: bool = False
    ) -> None:
        self.grant, self.round, self.seed, self.unasked = grant, round, scenario.seed, unasked
        self.waits = not scenario.is_asynchronous
        self.open = backlogged is None
        if backlogged is None:
            backlogged = np.setdiff1d(np.arange(scenario.data.ues), grant.pull)
        self.slots = grant.uplink_slots(scenario.frame.slots)
        self.push_slots = self.slots - len(grant.pull)
        self.backlogged = backlogged if grant.push and self.push_slots else backlogged[:0]
        merit: dict[str, Any] = {}
        if grant.merit is not None:
            least, most = float(grant.merit.least), float(grant.merit.most)
            merit = {"attribute": grant.merit.attribute, "least": least, "most": most}
        self.window = Turn(  # of any UE that may push
            round,
            ue=-1,
            slot=0,
            first=len(grant.pull) + 1,
            slots=self.push_slots,
            probability=float(grant.barring),
            **merit,
            channel=write_channel(scenario.push.channel.name, scenario.push.channel.options),
            backlogged=1 if self.open else len(self.backlogged),
            seed=str(scenario.seed) if seeded else "",
        )

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """The turn of each UE that is pulled or may push."""
        turns = {ue: Turn(self.round, ue, slot) for slot, ue in enumerate(self.grant.pull.tolist(), 1)}
        told = None if self.grant.merit is None else self.grant.merit.told
        for position, ue in enumerate(self.backlogged.tolist()):
            number, rank = math.nan if told is None else float(told[ue]), 0 if self.open else position
            turns[ue] = replace(self.window, ue=ue, rank=rank, told=number)
        return turns

    @cached_property
    def expected(self) -> list[int]:
        """The UEs that the PS expects to hear: all that have a turn, or, if they speak unasked, all that must send."""
        if not self.waits:
            return [ue for ue, turn in self.turns.items() if turn.slot]
        return [ue for ue, turn in self.turns.items() if not self.unasked or turn.certain]

    @property
    def foreseen(self) -> bool:
        """Whether all UEs that are expected send, and no others, because the PS repeats every draw."""
        return self.waits and bool(self.window.seed) and self.window.attribute not in OWN


class OnAir:
    """A frame after its slots were resolved on the channel, before its messages are read.

    used: the slots in which each UE that answered sent; none if it was barred.
    """

    def __init__(self, frame: Frame, used: Mapping[int, list[int]]) -> None:
        self.frame, self.used, self.backlogged = frame, used, frame.backlogged
        if frame.open:  # of UEs that know by themselves whether they have an update, the PS knows those that sent
            self.backlogged = self.backlogged[np.isin(self.backlogged, list(used))]
        window, ues = frame.window, self.backlogged.tolist()
        self.sent = np.zeros((len(ues), window.copies if ues else 1), dtype=np.int64)  # (N, C) slots, 0 for none
        for row, ue in enumerate(ues):
            slots = used.get(ue, [])
            self.sent[row, : len(slots)] = [slot - window.first + 1 for slot in slots]
        self.outcome = np.empty(0, dtype=np.int64)  # (N,) as `access.frame.resolve` returns it
        if ues:
            fading = stream(frame.seed, CHANNEL, frame.round)
            self.outcome = resolve(self.sent, frame.push_slots, read_channel(window.channel), fading)

    @property
    def received(self) -> list[int]:
        """The UEs whose message came through the channel, whatever it holds."""
        return [*(ue for ue in self.frame.grant.pull.tolist() if ue in self.used), *self.backlogged[self.outcome > 0]]

    def receipt(self, sound: AbstractSet[int]) -> Receipt:
        """Return the receipt of the frame.

        sound: the UEs whose update can be used. An unusable message occupies its slots like any other: it collides
            with others in a push slot and wastes a reserved one.
        """
        grant, ues, expected = self.frame.grant, self.backlogged, set(self.frame.expected)
        in_time, usable = np.isin(grant.pull, list(sound)), np.isin(ues, list(sound))
        outcome = np.where(usable, self.outcome, np.minimum(self.outcome, COLLIDED))
        # one that was expected and not heard is lost; one that was not expected and says nothing was barred, or trains
        silent = self.frame.waits
        barred = [not self.used[ue] if ue in self.used else silent and ue not in expected for ue in ues.tolist()]
        return tally(grant, self.frame.slots, in_time, ues, self.sent, outcome, np.array(barred, dtype=bool))


def write_channel(name: str, options: dict[str, Any]) -> str:
    """Return a channel as JSON; one that cannot be deployed is refused."""
    written = json.dumps([name, options])
    read_channel(written)
    return written


def read_channel(written: str) -> Channel:
    """Return the channel that a turn names: only a built-in one, because a message must not import anything."""
    name, options = json.loads(written)
    if name not in CHANNELS:
        raise InputError("push.channel", name, f"one of {', '.join(CHANNELS)} in a deployment")
    if isinstance(options.get("degrees"), dict):  # JSON has no numbers as keys
        options["degrees"] = {int(copies): chance for copies, chance in options["degrees"].items()}
    channel = make_channel(name, **options)
    most = max(getattr(channel, "degrees", [1]))
    if most > MOST_COPIES:
        raise InputError("push.channel", most, f"at most {MOST_COPIES} copies of an update in a deployment")
    return channel
