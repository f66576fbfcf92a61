"""Push-pull, the paper's proposal (Algorithm 1): pull the most valued UEs, leave the other slots open."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import Ledger, warm_up


class PushPull:
    """All slots pull during warm-up; then Q slots pull the most valued UEs and M - Q are open to contention."""

    needs_values = True
    uses: ClassVar[Uses] = ("frame.pull", "push", "push.probability", "strategy.warmup", "strategy.memory")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> Ledger:
        return Ledger.blank(self.cell.ues)

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first)
        best = state.top(self.cell.pull)
        return Grant(best, push=True, probability=self.cell.barring(len(best)))

    def observe(self, state: Ledger, receipt: Receipt, values: NDArray[np.float64]) -> Ledger:
        return state.smooth(receipt, values, self.cell.memory)
