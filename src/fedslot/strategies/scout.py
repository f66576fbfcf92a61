"""Scout: short frames pull the cleanest of the known UEs and, until all are known, one unknown UE."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.survey import Survey

LEAST_SHARE = 1 / 4  # of the known UEs in a small pool


class Scout:
    """Pull from a pool of clean UEs the number that makes the most progress per slot, and one UE never received yet.

    The frame has no other slots, unless pulled UEs were not ready: then it pulls further UEs first. The first frame
    pulls UEs at random with half of the slots. `horizon` is the number of updates over which noise averages out; the
    larger it is, the noisier the UEs that the pool admits.
    """

    needs_values = False
    needs_measurements = True
    uses: ClassVar[Uses] = ()

    def __init__(self, cell: Cell, *, horizon: Annotated[float, Field(ge=1, le=1e6)] = 1.0) -> None:
        self.cell, self.horizon = cell, horizon

    def init(self) -> Survey:
        return Survey.blank(self.cell.ues)

    def schedule(self, state: Survey, round: int, rng: np.random.Generator) -> Grant:
        if not state.measured:
            return first_frame(self.cell, rng)
        pool, unseen = state.pool(self.horizon, LEAST_SHARE), np.flatnonzero((state.seen == 0) & ~state.away)
        if self.cell.slots == 1:  # a UE that never answers takes turns with the pool
            unseen = unseen[state.last[unseen] <= state.last[pool].min()]
        # those tried the longest ago, so that a late UE waits for the others
        unseen = unseen[state.last[unseen] == state.last[unseen].min(initial=state.frames)]
        new = rng.choice(unseen, size=min(1, len(unseen)), replace=False)
        old = state.next_of(pool, state.best_updates(pool, self.cell.slots - len(new), self.cell.downlink))
        chosen = np.concatenate([old, new])
        pull = np.concatenate([state.further(chosen, self.cell.slots), chosen])
        return Grant(pull, slots=len(pull))

    def observe(self, state: Survey, receipt: Receipt, values: NDArray[np.float64]) -> Survey:
        return state.add(receipt)


def first_frame(cell: Cell, rng: np.random.Generator) -> Grant:
    """Return a grant of half of the slots to UEs at random."""
    pull = rng.choice(cell.ues, size=min((cell.slots + 1) // 2, cell.ues), replace=False)
    return Grant(pull, slots=len(pull))
