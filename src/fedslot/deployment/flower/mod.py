"""The device's side: a client mod that draws the slot before any training."""

from __future__ import annotations

from dataclasses import replace

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedslot.deployment.flower.messages import LABEL, ROUND, SLOTS, UE, WHO
from fedslot.deployment.flower.wire import Wire
from fedslot.deployment.frame import Turn
from fedslot.messages import OWN, TRAINED

PARTITION = "partition-id"  # key of Flower's node config that says which UE a device is


def slot_access(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Draw the UE's slots, train only if there is one, and write the slots on the reply.

    A mod for `ClientApp(mods=[slot_access])`. It also answers which UE this is, by the node config's `partition-id`.
    A node config may have the UE's own `noise` and `samples`, by which strategies may choose who pushes; its `loss` and
    `norm` are among the metrics of the app's reply, or the UE does not push where the PS chooses by them.
    Where the scenario compresses them, the app finds the decoded model in its message, and its arrays are encoded.
    Messages that do not come from `SlotAccess` pass through unchanged.
    """
    label = message.content.config_records.get(LABEL)
    if label is None:
        return call_next(message, context)
    if WHO in label:
        return Message(RecordDict({LABEL: ConfigRecord({UE: context.node_config[PARTITION]})}), reply_to=message)
    turn = Turn(**label)  # type: ignore[arg-type]
    own: dict[str, float] = {name: float(context.node_config[name]) for name in OWN if name in context.node_config}
    is_later = not turn.slot and turn.attribute in TRAINED
    slots = replace(turn, attribute="").draw() if is_later else turn.draw(own)
    wire = Wire(message, turn, context.state)
    if slots:
        wire.hear()
    reply = call_next(message, context) if slots else Message(RecordDict(), reply_to=message)
    if slots and is_later and reply.has_content():
        for metrics in reply.content.metric_records.values():
            own |= {name: float(number) for name, number in metrics.items() if name in TRAINED}  # type: ignore[arg-type]
        if not turn.eligible(own):
            slots, reply = [], Message(RecordDict(), reply_to=message)
    if reply.has_content():
        reply.content[LABEL] = ConfigRecord({ROUND: turn.round, SLOTS: slots})
        if slots:
            wire.say(reply)
    return reply
