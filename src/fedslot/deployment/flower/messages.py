"""The record that fedslot adds to Flower's messages, and how it reads replies.

This loads no PyTorch, because devices need it before they know whether they train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from flwr.app import ConfigRecord, Message

from fedslot.deployment.frame import Turn
from fedslot.deployment.screening import Refusal

LABEL = "fedslot"  # key of the record that is added
WHO, UE = "who", "ue"  # its keys in the question which UE a node is, and in the answer
ROUND, SLOTS = "round", "slots"  # its keys in the reply to a turn


def write_turn(turn: Turn) -> ConfigRecord:
    """Return the record that tells a UE its turn."""
    return ConfigRecord(asdict(turn))


def read_turn(record: ConfigRecord) -> Turn:
    """Return the turn that a record tells."""
    return Turn(**record)  # type: ignore[arg-type]


def write_slots(round: int, slots: list[int]) -> ConfigRecord:
    """Return the record that tells the PS which slots a UE used; none if it was barred."""
    return ConfigRecord({ROUND: round, SLOTS: slots})


@dataclass(frozen=True)
class FlowerReply:
    """A device's message as `fedslot.deployment.reception.Reply`."""

    message: Message

    def slots(self) -> tuple[object, object]:
        if self.message.has_error():
            raise Refusal("error", self.message.error.reason or "")
        label = self.message.content.config_records.get(LABEL)
        if label is None:
            raise Refusal("label", "no slots on the reply; is slot_access among the mods?")
        return label.get(ROUND), label.get(SLOTS)

    def size(self) -> int:
        return sum(record.count_bytes() for record in self.message.content.values())

    def content(self) -> tuple[Mapping[str, bytes], Mapping[str, object]]:
        records = self.message.content
        if len(records.array_records) != 1 or len(records.metric_records) != 1:
            raise Refusal("records", "not one of arrays and one of metrics")
        (arrays,), (metrics,) = records.array_records.values(), records.metric_records.values()
        return {name: array.data for name, array in arrays.items()}, metrics
