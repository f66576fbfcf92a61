"""GreedyShap: every slot pulls one of the UEs of highest Shapley value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.exchange import Grant, Receipt
from fedslot.strategies.base import Cell
from fedslot.strategies.ledger import Ledger, warm_up


class GreedyShap:
    """Pull every UE once, then the M most valued in every round."""

    needs_values = True
    pools_data = False

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> Ledger:
        return Ledger.blank(self.cell.ues)

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        return Grant(state.top(self.cell.slots) if first is None else first)

    def observe(self, state: Ledger, receipt: Receipt, values: NDArray[np.float64]) -> Ledger:
        return state.smooth(receipt, values, self.cell.memory)
