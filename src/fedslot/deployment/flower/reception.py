"""What the PS hears in a frame: sound updates, slots in use, and what went wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor

from fedslot.deployment.flower.faults import Fault
from fedslot.deployment.flower.frame import Announced
from fedslot.deployment.flower.screening import Refusal, Update, place, read, too_far


@dataclass(frozen=True)
class Heard:
    """What came of the messages of a frame.

    used: slots in which each UE was on the air. updates: those that are sound, by UE. faults: all others.
    """

    used: dict[int, list[int]] = field(default_factory=dict)
    updates: dict[int, Update] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """What a sound update looks like.

    model: (P,) the global model. shapes: of its parameters. weight: the metric that counts training samples.
    reach: the longest move from the model. loss: of a model on the PS's validation samples.
    """

    model: NDArray[np.float32]
    shapes: Mapping[str, tuple[int, ...]]
    weight: str
    reach: float
    loss: Callable[[Tensor], float]


def hear(frame: Announced, sent: Mapping[int, Message], replies: Iterable[Message], expected: Expected) -> Heard:
    """Screen the replies to a frame. sent: the message to each UE that could be reached."""
    heard, round = Heard(), frame.round
    asked = {message.metadata.message_id: ue for ue, message in sent.items()}
    nodes = {ue: message.metadata.dst_node_id for ue, message in sent.items()}
    answered: set[int] = set()
    order = {name: position for position, name in enumerate(asked)}  # rather than the order in which they came
    for reply in sorted(replies, key=lambda reply: order.get(reply.metadata.reply_to_message_id, len(order))):
        node, ue = reply.metadata.src_node_id, asked.get(reply.metadata.reply_to_message_id, -1)
        if ue < 0 or (node != nodes[ue] and not reply.has_error()):
            heard.faults.append(Fault(round, -1, node, "stray", "answers no message to this node in this round"))
        elif ue in answered:
            heard.faults.append(Fault(round, ue, node, "duplicate"))
        else:
            answered.add(ue)
            if refusal := _take(reply, frame, ue, expected, heard):
                heard.faults.append(Fault(round, ue, nodes[ue], refusal.reason, refusal.detail))
    for ue, missing in _incomplete(heard.updates).items():
        del heard.updates[ue]
        heard.faults.append(Fault(round, ue, nodes[ue], "metrics", f"{missing} is missing"))
    heard.faults.extend(Fault(round, ue, nodes[ue], "silent") for ue in sent if ue not in answered)
    heard.faults.extend(Fault(round, ue, 0, "absent") for ue in frame.turns if ue not in sent)
    return heard


def _incomplete(updates: Mapping[int, Update]) -> dict[int, str]:
    """UEs whose update lacks a metric that most others have, and which: stock strategies may need it of all."""
    counts = Counter(name for update in updates.values() for name in update.metrics)
    usual = sorted(name for name, count in counts.items() if 2 * count > len(updates))
    lacking = {ue: [name for name in usual if name not in update.metrics] for ue, update in updates.items()}
    return {ue: names[0] for ue, names in lacking.items() if names}


def _take(reply: Message, frame: Announced, ue: int, expected: Expected, heard: Heard) -> Refusal | None:
    """Enter one reply; why not, if not."""
    try:
        slots = place(reply, frame.turns[ue], frame.copies)
        if not slots:
            return None
        heard.used[ue] = slots  # a bad message was on the air all the same
        update = read(reply, expected.shapes, expected.weight)
        too_far(update, expected.model, expected.reach)
        if not math.isfinite(expected.loss(torch.from_numpy(update.row))):
            raise Refusal("loss", "is not finite")
        heard.updates[ue] = update
    except Refusal as refusal:
        return refusal
    except Exception as error:  # records are made by others: whatever is odd about them is their fault
        return Refusal("malformed", f"{type(error).__name__}: {error}")
    return None
