"""Replies of devices as the parameter server reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedslot.deployment.flower.labels import LABEL, ROUND, SLOTS
from fedslot.deployment.screening import Refusal


@dataclass(frozen=True)
class FlowerReply:
    """A Flower message as `fedslot.deployment.reception.Reply`."""

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
