"""UCB: every slot pulls one of the UEs with the highest upper confidence bound on their value."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import ByValue, Ledger
from fedslot.strategies.selection import top


class UCB(ByValue):
    """Pull with all M slots: UEs without a value first, then those of the highest value + bonus.

    The bonus of UE k is exploration * spread * sqrt(ln t / n_k), where n_k counts the values observed of k and t those
    of all UEs (UCB1 of Auer et al. 2002, where exploration is sqrt(2)). Values have no fixed scale: their standard
    deviation over the UEs, `spread`, takes the place of the range of rewards. `strategy.memory: mean` gives the means
    of UCB1.
    """

    uses: ClassVar[Uses] = ("strategy.memory",)

    def __init__(self, cell: Cell, *, exploration: Annotated[float, Field(ge=0, le=1e6)] = 1.0) -> None:
        super().__init__(cell)
        self.exploration = exploration

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        seen = state.seen > 0
        bound = np.full(self.cell.ues, np.inf)
        times = state.seen[seen]
        bonus = self.exploration * state.spread * np.sqrt(np.log(max(times.sum(), 1)) / times)
        bound[seen] = state.value[seen] + bonus
        bound[np.flatnonzero(state.away)] = -np.inf
        return Grant(top(bound, self.cell.slots))

    def observe(self, state: Ledger, receipt: Receipt, values: NDArray[np.float64]) -> Ledger:
        # a wasted pull contributed nothing; as a value of 0 it counts as a visit, else the UE would be pulled forever
        wasted = receipt.wasted
        return super().observe(state, receipt, values).mix(wasted, np.zeros(len(wasted)), self.cell.memory)
