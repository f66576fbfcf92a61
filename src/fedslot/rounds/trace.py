"""The trace of a frame: what happened in each of its slots, and what the PS then knows of the UEs."""

from __future__ import annotations

import math
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Attempts, Receipt, UEs

EVENTS = PULLED, WASTED, LOST, PUSHED, COLLIDED, IDLE, BARRED = (
    "pulled",
    "wasted",
    "lost",
    "pushed",
    "collided",
    "idle",
    "barred",
)
TRACED = {"value", "noise"}  # what a state may tell of the UEs
MOST_ROWS = 100  # of a slot, and of UEs that were barred, which bounds the size of a frame's trace
MOST_IDLE = 1000  # idle slots of a frame, which would be nearly all rows of a very long one


class Event(NamedTuple):
    """One row of `frames.csv`."""

    round: int
    """The round, from 0."""
    slot: int
    """The uplink slot of the frame, from 1; 0 for `barred`, which has no slot."""
    event: str
    """`pulled`: received in its reserved slot. `wasted`: a reserved slot in which nothing usable came. `lost`: sent in
    its reserved slot, but not received. `pushed`: received by contention; a row for each copy that was sent, and for
    each slot of an update that takes several. `collided`: sent in this push slot, but not received.
    `idle`: nobody sent in this slot. `barred`: kept from contending by access barring or merit."""
    ue: int | None
    """The UE; None for idle slots."""
    value: float | None
    """The UE's value at the PS after the round; None if it is not known."""
    noise: float | None
    """The PS's estimate of the UE's noise after the round; None if it is not known."""
    update_value: float | None
    """The value of the update that was received in this round, before smoothing; None if there is none."""
    staleness: int | None = None
    """The frames since the broadcast from which the received update was trained; None if nothing was received."""


def trace_frame(
    round: int,
    receipt: Receipt,
    value: NDArray[np.float64] | None = None,
    noise: NDArray[np.float64] | None = None,
    update_values: NDArray[np.float64] | None = None,
) -> list[Event]:
    """Return the events of a frame in the order of its slots, and of the UEs within a slot.

    Each announced uplink slot has an event, except idle ones after the first `MOST_IDLE`. Of a slot, and of barred UEs,
    at most `MOST_ROWS` are listed, those of the UEs with the lowest numbers.

    value, noise: (K,) what the PS knows of each UE after the round, not finite where it knows nothing.
    update_values: (Y,) values of the received updates, in the order of `receipt.received`; None if there are none.
    """
    rows = _events(receipt)
    rows.sort()
    ues = receipt.received.tolist()
    received = {} if update_values is None else dict(zip(ues, update_values.tolist(), strict=True))
    ages = [0] * len(ues) if receipt.versions is None else (round - receipt.versions).tolist()
    stale = dict(zip(ues, ages, strict=True))
    columns = _of(rows, value), _of(rows, noise)
    return [
        Event(round, slot, event, None if ue < 0 else ue, value_of, noise_of, received.get(ue), stale.get(ue))
        for (slot, ue, event), value_of, noise_of in zip(rows, *columns, strict=True)
    ]


Row = tuple[int, int, str]
"""Slot, UE and event; the UE is -1 where there is none."""


def _events(receipt: Receipt) -> list[Row]:
    """Return all that happened in a frame, in plain Python, which is the fastest for the few rows of most frames."""
    rows = _reserved(receipt, receipt.pulled, receipt.pull_slots, PULLED)
    rows += _reserved(receipt, receipt.wasted, receipt.wasted_slots, WASTED)
    rows += _reserved(receipt, receipt.lost, receipt.lost_slots, LOST)
    if receipt.attempts is not None:
        received = set(receipt.pushed.tolist())
        rows += [(slot, ue, PUSHED if ue in received else COLLIDED) for slot, ue in _sent(receipt.attempts)]
        barred = receipt.attempts.barred
        lowest = np.partition(barred, MOST_ROWS)[:MOST_ROWS] if len(barred) > MOST_ROWS else barred
        rows += [(0, ue, BARRED) for ue in lowest.tolist()]
    used = {slot for slot, _, _ in rows}
    idle = ((slot, -1, IDLE) for slot in range(1, receipt.slots + 1) if slot not in used)
    return [*rows, *islice(idle, MOST_IDLE)]


def _reserved(receipt: Receipt, ues: UEs, last: UEs | None, event: str) -> list[Row]:
    """Return a row for each reserved slot of UEs whose last ones these are."""
    rows = [] if last is None else list(zip(last.tolist(), ues.tolist(), strict=True))
    if receipt.bursts is None:
        return [(slot, ue, event) for slot, ue in rows]
    return [(slot - before, ue, event) for slot, ue in rows for before in range(int(receipt.bursts[ue]))]


def _sent(attempts: Attempts) -> list[tuple[int, int]]:
    """Return slot and UE of the copies that were sent; of each slot at most `MOST_ROWS`."""
    sender, copy = attempts.slots.nonzero()
    slots, ues = attempts.slots[sender, copy], attempts.ues[sender]
    if len(slots) > MOST_ROWS:
        order = np.lexsort((ues, slots))
        slots, ues = slots[order], ues[order]
        listed = np.arange(len(slots)) - np.searchsorted(slots, slots) < MOST_ROWS
        slots, ues = slots[listed], ues[listed]
    return list(zip(slots.tolist(), ues.tolist(), strict=True))


def _of(rows: list[Row], numbers: NDArray[np.float64] | None) -> list[float | None]:
    """Return what is known of the UE of each row; None where nothing is."""
    if numbers is None:
        return [None] * len(rows)
    shown = [float(numbers[ue]) if ue >= 0 else math.nan for _, ue, _ in rows]
    return [number if math.isfinite(number) else None for number in shown]
