"""The trace of a frame: what happened in each of its slots, and what the PS then knows of the UEs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Receipt, UEs

EVENTS = ("pulled", "wasted", "pushed", "collided", "idle", "barred")
PULLED, WASTED, PUSHED, COLLIDED, IDLE, BARRED = range(len(EVENTS))
TRACED = {"value", "noise"}  # what a state may tell of the UEs
MOST_ROWS = 100  # of a slot, and of UEs that were barred, which bounds the size of a frame's trace


class Event(NamedTuple):
    """One row of `frames.csv`.

    round: the round, from 0. slot: the uplink slot of the frame, from 1; 0 for an event without a slot.
    event: `pulled`: received in its reserved slot. `wasted`: a reserved slot in which nothing usable came.
        `pushed`: received by contention; a row for each copy that was sent. `collided`: sent in this push slot, but not
        received. `idle`: nobody sent in this slot. `barred`: kept from contending by access barring or merit.
    ue: the UE; None for idle slots.
    value, noise: the UE's value at the PS, and the PS's estimate of its noise, after the round; None if not known.
    """

    round: int
    slot: int
    event: str
    ue: int | None
    value: float | None
    noise: float | None


def trace_frame(
    round: int,
    receipt: Receipt,
    value: NDArray[np.float64] | None = None,
    noise: NDArray[np.float64] | None = None,
) -> list[Event]:
    """Return the events of a frame in the order of its slots, and of the UEs within a slot.

    Each announced uplink slot has an event. Of a slot, and of barred UEs, at most `MOST_ROWS` are listed, those of the
    UEs with the lowest numbers.

    value, noise: (K,) what the PS knows of each UE after the round, not finite where it knows nothing.
    """
    slots, events, ues = _events(receipt)
    order = np.lexsort((ues, slots))
    slots, events, ues = slots[order], events[order], ues[order]
    listed = np.arange(len(slots)) - np.searchsorted(slots, slots) < MOST_ROWS
    slots, events, ues = slots[listed], events[listed], ues[listed]
    return [
        Event(round, slot, EVENTS[event], None if ue < 0 else ue, value_of, noise_of)
        for slot, event, ue, value_of, noise_of in zip(
            slots.tolist(), events.tolist(), ues.tolist(), _of(ues, value), _of(ues, noise), strict=True
        )
    ]


def _events(receipt: Receipt) -> tuple[UEs, UEs, UEs]:
    """Return slot, index of the event and UE (-1 for none) of all that happened in a frame."""
    reserved = np.arange(1, len(receipt.pulled) + len(receipt.wasted) + 1)
    parts = [
        (receipt.pull_slots, PULLED, receipt.pulled),
        (np.setdiff1d(reserved, receipt.pull_slots, assume_unique=True), WASTED, receipt.wasted),
    ]
    used = [reserved]
    if receipt.attempts is not None:
        sender, copy = np.nonzero(receipt.attempts.slots)
        sent, ues = receipt.attempts.slots[sender, copy], receipt.attempts.ues[sender]
        received = np.isin(ues, receipt.pushed)
        parts += [
            (sent[received], PUSHED, ues[received]),
            (sent[~received], COLLIDED, ues[~received]),
            (np.zeros_like(receipt.attempts.barred), BARRED, receipt.attempts.barred),
        ]
        used.append(sent)
    idle = np.setdiff1d(np.arange(1, receipt.slots + 1), np.concatenate(used))
    parts.append((idle, IDLE, np.full_like(idle, -1)))
    slots, events, ues = zip(*((slots, np.full_like(slots, event), ues) for slots, event, ues in parts), strict=True)
    return np.concatenate(slots), np.concatenate(events), np.concatenate(ues)


def _of(ues: UEs, known: NDArray[np.float64] | None) -> list[float | None]:
    """Return what is known of each UE; None where nothing is, and for no UE (-1)."""
    if known is None:
        return [None] * len(ues)
    mine = known[ues]  # of -1 too, which is then left out
    there = (ues >= 0) & np.isfinite(mine)
    return [float(number) if finite else None for number, finite in zip(mine.tolist(), there.tolist(), strict=True)]
