"""An announced frame: the turn of each UE in it, and its receipt.

A device needs `Turn` only, which loads neither PyTorch nor a transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedslot.access.channels import CHANNELS, Channel, make_channel
from fedslot.access.frame import COLLIDED, contend, resolve, tally
from fedslot.errors import InputError
from fedslot.messages import Grant, Receipt, UEs
from fedslot.rng import CHANNEL, CONTENTION, stream

if TYPE_CHECKING:
    from fedslot.scenario import Scenario


@dataclass(frozen=True)
class Turn:
    """A UE's part in a frame: a reserved slot, or a window of push slots. Slots count uplink slots from 1.

    All fields are plain numbers and strings, so that `dataclasses.asdict` writes a turn into any message and
    `Turn(**fields)` reads it back.

    round: the frame, from 0. ue: the UE whose turn it is.
    slot: the reserved slot, or 0 for a UE that may push.
    first, slots: the first push slot, and the number of push slots.
    probability: access barring, the probability with which the UE contends.
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
    probability: float = 1.0
    channel: str = ""
    backlogged: int = 0
    rank: int = 0
    seed: str = ""

    def draw(self) -> list[int]:
        """Return the slots in which the UE sends: one, several on a coded channel, none if it is barred."""
        if self.slot:
            return [self.slot]
        rng = stream(int(self.seed), CONTENTION, self.round) if self.seed else np.random.default_rng()
        sent = contend(np.zeros(self.backlogged), self.slots, self.probability, read_channel(self.channel), rng)
        return sorted(self.first - 1 + int(slot) for slot in sent[self.rank] if slot > 0)

    def allows(self, slots: list[int]) -> bool:
        """Tell whether the UE may have sent in these slots."""
        if self.slot or self.seed:  # the PS repeats the draw
            return slots == self.draw()
        window = range(self.first, self.first + self.slots)
        return len(slots) <= self.copies and len(set(slots)) == len(slots) and set(slots) <= set(window)

    @property
    def copies(self) -> int:
        """The largest number of slots in which a pushing UE may send."""
        earliest = np.ones((1, 1), dtype=np.int64)
        sent = read_channel(self.channel).draw(earliest, self.slots, np.random.default_rng(0))
        return int(sent.shape[2])


class Frame:
    """A frame as the PS announced it.

    grant: the strategy's grant. backlogged: the UEs that have an update to push.
    seeded: whether UEs draw their slots from the scenario's seed, as in the simulator.
    """

    def __init__(self, scenario: Scenario, grant: Grant, backlogged: UEs, round: int, seeded: bool) -> None:
        self.grant, self.round, self.seed = grant, round, scenario.seed
        self.push_slots = scenario.frame.slots - len(grant.pull)
        self.backlogged = backlogged if grant.push and self.push_slots else backlogged[:0]
        self._window = Turn(
            round,
            ue=-1,
            slot=0,
            first=len(grant.pull) + 1,
            slots=self.push_slots,
            probability=float(grant.probability),
            channel=write_channel(scenario.push.channel, scenario.push.channel_options),
            backlogged=len(self.backlogged),
            seed=str(scenario.seed) if seeded else "",
        )

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """The turn of each UE that is pulled or may push."""
        pull, push = self.grant.pull.tolist(), self.backlogged.tolist()
        pulls = {ue: Turn(self.round, ue, slot) for slot, ue in enumerate(pull, 1)}
        return pulls | {ue: replace(self._window, ue=ue, rank=rank) for rank, ue in enumerate(push)}

    def receipt(self, used: Mapping[int, list[int]], sound: AbstractSet[int]) -> Receipt:
        """Resolve the slots on the channel and return the receipt of the frame.

        used: the slots in which each UE sent.
        sound: the UEs whose update can be used. An unusable message occupies its slots like any other: it collides
            with others in a push slot and wastes a reserved one.
        """
        pull = self.grant.pull
        in_time = np.array([ue in sound for ue in pull.tolist()], dtype=bool)
        return tally(pull, in_time, self.backlogged, self._outcome(used, sound))

    def _outcome(self, used: Mapping[int, list[int]], sound: AbstractSet[int]) -> UEs:
        """Return the outcome (N,) of each backlogged UE's push."""
        if not len(self.backlogged):
            return np.empty(0, dtype=np.int64)
        window, ues = self._window, self.backlogged.tolist()
        sent = np.zeros((len(ues), window.copies), dtype=np.int64)
        for rank, ue in enumerate(ues):
            own = used.get(ue, [])
            sent[rank, : len(own)] = [slot - window.first + 1 for slot in own]
        fading = stream(self.seed, CHANNEL, self.round)
        outcome = resolve(sent, self.push_slots, read_channel(window.channel), fading)
        usable = np.array([ue in sound for ue in ues])
        return np.where(usable, outcome, np.minimum(outcome, COLLIDED))


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
    return make_channel(name, **options)
