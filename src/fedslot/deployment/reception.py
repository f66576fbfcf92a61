"""The replies to a frame: which UEs sent in which slots, which updates are sound, and what went wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.deployment.faults import NO_NODE, Fault
from fedslot.deployment.frame import Frame, Turn
from fedslot.deployment.screening import Refusal, Shapes, Update, check_move, check_size, check_slots, read_update
from fedslot.messages import Receipt


class Reply(Protocol):
    """A reply of a UE. Each method may raise `Refusal`; any other error is the device's fault too.

    They are called in this order, and the next one only if nothing was refused.
    """

    def slots(self) -> tuple[object, object]:
        """Return the round and the list of slots that the reply names."""
        ...

    def size(self) -> int:
        """Return the size of the reply in bytes."""
        ...

    def content(self) -> tuple[Mapping[str, bytes] | bytes, Mapping[str, object]]:
        """Return the parameters, in a form that `screening.read_update` reads, and the metrics."""
        ...


@dataclass(frozen=True)
class Criteria:
    """Criteria of a sound update.

    model: (P,) the global model. shapes: those of its parameters. weight: the metric that counts training samples.
    longest: the longest move from the global model. loss: returns the validation loss of a model (P,).
    """

    model: NDArray[np.float32]
    shapes: Shapes
    weight: str
    longest: float
    loss: Callable[[Tensor], float]


@dataclass(frozen=True)
class Heard:
    """The result of screening the replies to a frame.

    receipt: of the frame, with the sound updates as received.
    updates: the sound updates by UE. faults: everything else.
    """

    receipt: Receipt
    updates: dict[int, Update]
    faults: list[Fault]


def hear(frame: Frame, reached: Mapping[int, str], replies: Iterable[tuple[int, Reply]], criteria: Criteria) -> Heard:
    """Screen the replies to a frame.

    reached: the nodes of the UEs that must answer, by UE. replies: with the UE that each comes from.
    """
    answered, used = dict[int, Reply](), dict[int, list[int]]()
    updates, faults = dict[int, Update](), list[Fault]()

    def fault(ue: int, reason: str, detail: str = "") -> None:
        faults.append(Fault(frame.round, ue, reached.get(ue, NO_NODE), reason, detail))

    order = {ue: position for position, ue in enumerate(frame.turns)}  # rather than the order of arrival
    for ue, reply in sorted(replies, key=lambda pair: order[pair[0]]):
        if ue in answered:
            fault(ue, "duplicate")
            continue
        answered[ue] = reply
        try:
            used[ue] = _slots(reply, frame.turns[ue])  # whatever follows: the message was on the air
        except Refusal as refusal:
            fault(ue, refusal.reason, refusal.detail)
    on_air = frame.resolve(used)
    received = set(on_air.received)
    for ue in used:
        if ue in received:  # the others collided and are dropped unread
            try:
                updates[ue] = _update(answered[ue], criteria)
            except Refusal as refusal:
                fault(ue, refusal.reason, refusal.detail)
    for ue, missing in _incomplete(updates).items():
        del updates[ue]
        fault(ue, "metrics", f"{missing} is missing")
    for ue in frame.expected:
        if ue not in reached:
            fault(ue, "absent")
        elif ue not in answered:
            fault(ue, "silent")
    return Heard(on_air.receipt(updates.keys()), updates, faults)


@contextmanager
def _blaming_the_device() -> Iterator[None]:
    """Turn every error into `Refusal`: replies are made by others, and any error in reading one is their fault."""
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        raise Refusal("malformed", f"{type(error).__name__}: {error}") from error


@_blaming_the_device()
def _slots(reply: Reply, turn: Turn) -> list[int]:
    return check_slots(turn, *reply.slots())


@_blaming_the_device()
def _update(reply: Reply, criteria: Criteria) -> Update:
    """Return the update of a reply; raise `Refusal` if it is not sound."""
    check_size(reply.size(), criteria.shapes)
    update = read_update(*reply.content(), criteria.weight, criteria.shapes)
    check_move(update, criteria.model, criteria.longest)
    if not math.isfinite(criteria.loss(torch.from_numpy(update.model))):
        raise Refusal("loss", "is not finite")
    return update


def _incomplete(updates: Mapping[int, Update]) -> dict[int, str]:
    """Return the UEs whose update lacks a metric that most others have, and that metric: stock strategies need it."""
    counts = Counter(name for update in updates.values() for name in update.metrics)
    usual = sorted(name for name, count in counts.items() if 2 * count > len(updates))
    lacking = {ue: [name for name in usual if name not in update.metrics] for ue, update in updates.items()}
    return {ue: names[0] for ue, names in lacking.items() if names}
