"""Simulated frames, by the code that plays the frames of a run.

They are single frames, or runs of a cell whose frames depend on those before, because UEs stay backlogged until they
are received or because the PS controls the access barring.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel
from fedslot.access.controller import Contention, Controller, best_load, collided_slots
from fedslot.planning.cell import PushCell
from fedslot.planning.contenders import Floats
from fedslot.planning.readiness import ALL_READY, Readiness, ReadinessBySlot
from fedslot.support.rng import PLAN, stream

Numbers = NDArray[np.int64]

RUNS, BLOCK, MOST_BLOCKS = 25, 100, 30
"""Number of runs of a cell, and of frames after which they are looked at; the most blocks of frames until it is
stationary."""


def play_pushes(
    medium: Channel, number: Numbers, slots: int, rng: np.random.Generator, ready: Readiness = ALL_READY
) -> Floats:
    """Play a batch of frames in which `number` (F,) UEs contend.

    ready: whether they are ready in time.
    returns: (F, 5), the first columns of `PushYield.frames`, and the number of collided slots.
    """
    count, most = len(number), int(number.max(initial=0))
    if not most or not slots:
        return np.zeros((count, 5))
    first: int | Numbers = 1
    if isinstance(ready, ReadinessBySlot):
        first = 1 + np.searchsorted(np.cumsum(ready.first_slots(slots)), rng.random((count, most)), "right")
    earliest = np.where(np.arange(most) < number[:, None], first, slots + 1).astype(np.int64)
    sent = medium.send(earliest, slots, rng)
    slot = medium.receive(sent, slots, rng)
    sums = [(slot > 0).sum(axis=1), slot.max(axis=1), slot.sum(axis=1), (sent > 0).sum(axis=(1, 2))]
    return np.stack([*sums, collided_slots(sent, slot, slots)], axis=1).astype(float)


class Runs(NamedTuple):
    """Stationary runs of a cell.

    frames: (R T, 4) the first columns of `PushYield.frames`, run by run. contending: mean number of UEs not barred.
    backlogs: (R,) mean number of UEs that may contend.
    """

    frames: Floats
    backlogs: Floats
    contending: float


def play_cell(cell: PushCell, pmf: Floats, pull: int, slots: int, ready: Readiness) -> Runs:
    """Play runs of a cell with `pull` pull slots, for the same UEs in every frame, and `slots` push slots.

    A run begins with no UE backlogged; its first frames, until the runs together do not change any more, do not count.
    pmf: of the number of contenders, without arrivals.
    """
    rng = stream(cell.seed, PLAN, pull, slots)
    arrivals, ues = cell.arrivals or 0.0, cell.ues or len(pmf) - 1
    others = ues - pull
    controller = Controller(cell.medium, ues)
    estimates = [Contention(float(np.arange(len(pmf)) @ pmf))] * RUNS
    load = 0.0 if cell.barring != "best" else best_load(cell.medium, slots).load
    waiting = np.zeros(RUNS, dtype=np.int64)
    last_pulls = _last_pull_pmf(pull, ready)

    def frame() -> Floats:
        """Play a frame of each run. Returns (R, 6): four columns of `play_pushes`, backlogged and contending UEs."""
        nonlocal waiting
        number = waiting if arrivals else rng.choice(len(pmf), RUNS, p=pmf)
        chances = np.full(RUNS, 1.0)
        if cell.barring == "auto":
            chances[:] = [controller.probability(now, slots) for now in estimates]
        elif cell.barring == "best":
            chances = np.minimum(1.0, load * slots / np.maximum(number, 1))
        else:
            chances[:] = float(cell.barring)
        contending = rng.binomial(number, chances)
        rows = play_pushes(cell.medium, contending, slots, rng, ready)
        received = rows[:, 0].astype(np.int64)
        if cell.barring == "auto":
            seen = zip(estimates, chances.tolist(), received.tolist(), rows[:, 4].astype(int).tolist(), strict=True)
            estimates[:] = [controller.observe(now, slots, *frame) for now, *frame in seen]
        if arrivals:
            last = np.where(received > 0, pull + rows[:, 1], rng.choice(len(last_pulls), RUNS, p=last_pulls))
            cost = 1 + (last if cell.rule == "max" else pull + slots)
            left = waiting - received
            waiting = left + rng.binomial(others - left, -np.expm1(-arrivals * cost / ues))
        return np.column_stack([rows[:, :4], number, contending])

    def block(frames: int) -> Floats:
        return np.stack([frame() for _ in range(frames)], axis=1)

    now = block(BLOCK)
    for _ in range(MOST_BLOCKS):
        before, now = now, block(BLOCK)
        change = (now - before).mean(axis=1)[:, [0, 4]]
        if (np.abs(change.mean(axis=0)) <= 2 * change.std(axis=0, ddof=1) / math.sqrt(RUNS) + 1e-9).all():
            break
    counted = block(math.ceil(cell.frames / RUNS))
    return Runs(counted[:, :, :4].reshape(-1, 4), counted[:, :, 4].mean(axis=1), float(counted[:, :, 5].mean()))


def _last_pull_pmf(pull: int, ready: Readiness) -> Floats:
    """Return the distribution (Q + 1,) of the last pull slot whose UE is ready, 0 if there is none."""
    return np.diff([ready.none_after(last, pull) for last in range(pull + 1)], prepend=0.0).clip(min=0.0)
