"""The replies to a frame: which UEs sent in which slots, which updates are sound, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from fedslot.deployment.faults import ABSENT, NO_NODE, Fault
from fedslot.deployment.frame import Frame, OnAir
from fedslot.deployment.screening import Refusal, Update, check_slots
from fedslot.messages import Receipt


class Reply(Protocol):
    """A reply of a UE. Each method may raise `Refusal`; any other error is the device's fault too.

    They are called in this order, and the next one only if nothing was refused.
    """

    def slots(self) -> tuple[object, object]:
        """Return the round and the list of slots that the reply names."""

    def size(self) -> int:
        """Return the size of the reply in bytes."""

    def content(self) -> tuple[Mapping[str, bytes] | bytes, Mapping[str, object]]:
        """Return the parameters, in a form that `screening.read_model` reads, and the metrics.

        Where updates are compressed, the parameters are the bytes of the encoded change.
        """


def screen(
    frame: Frame, reached: Mapping[int, str], replies: Iterable[tuple[int, Reply]], read: Callable[[int, Reply], Update]
) -> tuple[Receipt, dict[int, Update], list[Fault]]:
    """Return the receipt of a frame, the sound updates by UE, and a fault for everything else.

    reached: the nodes of the UEs that must answer, by UE. replies: with the UE that each comes from.
    read: returns the update of a UE's reply, or raises `Refusal` if it is not sound.
    """
    answered, used = dict[int, Reply](), dict[int, list[int]]()
    updates, faults = dict[int, Update](), list[Fault]()

    def fault(ue: int, reason: str, detail: str = "") -> None:
        faults.append(Fault(frame.round, ue, reached.get(ue, NO_NODE), reason, detail))

    @contextmanager
    def blaming(ue: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # replies are made by others, and any error in reading one is their fault
            refusal = error if isinstance(error, Refusal) else Refusal("malformed", f"{type(error).__name__}: {error}")
            fault(ue, refusal.reason, refusal.detail)

    order = {ue: position for position, ue in enumerate(frame.turns)}  # rather than the order of arrival
    for ue, reply in sorted(replies, key=lambda pair: order[pair[0]]):
        if ue in answered:
            fault(ue, "duplicate")
            continue
        answered[ue] = reply
        with blaming(ue):
            used[ue] = check_slots(
                frame.turns[ue], *reply.slots(), late=not frame.waits
            )  # whatever follows: the message was on the air
    on_air = OnAir(frame, used)
    received = set(on_air.received)
    for ue in used:
        if ue in received:  # the others collided and are dropped unread
            with blaming(ue):
                updates[ue] = read(ue, answered[ue])
    for ue in frame.expected:
        if ue not in reached:
            fault(ue, ABSENT)
        elif ue not in answered and frame.waits:
            fault(ue, "silent")
    return on_air.receipt(updates.keys()), updates, faults
