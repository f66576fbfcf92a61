"""The record that fedslot adds to Flower's messages, and how it reads replies.

This loads no PyTorch, because devices need it before they know whether they train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedslot.deployment.screening import Refusal

LABEL = "fedslot"  # key of the record that is added, of a turn's fields or of the keys below
WHO, UE = "who", "ue"  # its keys in the question which UE a node is, and in the answer
ROUND, SLOTS, UPDATE = "round", "slots", "update"  # its keys in the reply to a turn; the last one if it is encoded


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

    def content(self) -> tuple[Mapping[str, bytes] | bytes, Mapping[str, object]]:
        records, update = self.message.content, self.message.content.config_records[LABEL].get(UPDATE)
        if isinstance(update, bytes) and not records.array_records and len(records.metric_records) == 1:
            return update, next(iter(records.metric_records.values()))
        if len(records.array_records) != 1 or len(records.metric_records) != 1:
            raise Refusal("records", "not one of arrays and one of metrics")
        (arrays,), (metrics,) = records.array_records.values(), records.metric_records.values()
        return {name: array.data for name, array in arrays.items()}, metrics
