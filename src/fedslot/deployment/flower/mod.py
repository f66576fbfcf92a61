"""The device's side: a client mod that draws the slot before any training."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedslot.deployment.flower.turn import LABEL, UE, WHO, Turn, answer

PARTITION = "partition-id"  # where Flower's node config says which UE a device is


def slot_access(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Say who this UE is, keep silent if barred, else train and write the slots used on the reply.

    A mod for `ClientApp(mods=[slot_access])`. The UE is the node config's `partition-id`. Messages that do not
    come from `SlotAccess` pass untouched.
    """
    label = message.content.config_records.get(LABEL)
    if label is None:
        return call_next(message, context)
    if WHO in label:
        return Message(RecordDict({LABEL: ConfigRecord({UE: context.node_config[PARTITION]})}), reply_to=message)
    turn = Turn.from_record(label)
    slots = turn.draw()
    if not slots:
        return Message(RecordDict({LABEL: answer(turn.round, [])}), reply_to=message)
    reply = call_next(message, context)
    if reply.has_content():
        reply.content[LABEL] = answer(turn.round, slots)
    return reply
