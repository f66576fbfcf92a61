"""What the PS and a UE write on their messages: who may use which slots, and who did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord

from fedslot.access.channels import CHANNELS, Channel, make_channel
from fedslot.access.frame import contend
from fedslot.errors import InputError
from fedslot.rng import CONTENTION, stream

LABEL = "fedslot"  # key of the record that carries all this
WHO = "who"  # its key in the question which UE a node is
ROUND, SLOTS, UE = "round", "slots", "ue"  # its keys in replies


@dataclass(frozen=True)
class Turn:
    """A UE's part in a frame: a reserved slot, or a window of push slots. Slots count uplink slots from 1.

    round: the frame, from 0. ue: whose turn it is.
    slot: the reserved slot; 0 stands for push.
    first, slots: the first push slot, and how many there are.
    probability: access barring.
    channel: name and options of the channel, as JSON.
    backlogged, rank: how many UEs may push, and which of them this is, from 0.
    seed: seed of the draw, by which PS and simulator can repeat it; empty: the device's own entropy.
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
        """The slots that the UE uses; none if it is barred. One slot, or several for the copies of coded access."""
        if self.slot:
            return [self.slot]
        rng = stream(int(self.seed), CONTENTION, self.round) if self.seed else np.random.default_rng()
        sent = contend(np.zeros(self.backlogged), self.slots, self.probability, read_channel(self.channel), rng)
        return sorted(self.first - 1 + int(slot) for slot in sent[self.rank] if slot > 0)

    def to_record(self) -> ConfigRecord:
        """The label of the message that the PS sends."""
        return ConfigRecord(asdict(self))

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Turn:
        """Read it back."""
        return cls(**record)  # type: ignore[arg-type]


def write_channel(name: str, options: dict[str, Any]) -> str:
    """A channel for the label."""
    written = json.dumps([name, options])
    read_channel(written)
    return written


def read_channel(written: str) -> Channel:
    """The channel of a label: one of those that come with fedslot, for a label must not import anything."""
    name, options = json.loads(written)
    if name not in CHANNELS:
        raise InputError("push.channel", name, f"one of {', '.join(CHANNELS)} in a deployment")
    if isinstance(options.get("degrees"), dict):  # JSON has no numbers as keys
        options["degrees"] = {int(copies): chance for copies, chance in options["degrees"].items()}
    return make_channel(name, **options)


def answer(round: int, slots: Iterable[int]) -> ConfigRecord:
    """The label of a UE's reply: the slots that it used, none if it was barred."""
    return ConfigRecord({ROUND: round, SLOTS: list(slots)})
