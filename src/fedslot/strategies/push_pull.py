"""Push-pull, the paper's proposal (Algorithm 1): pull the most valued UEs, leave the other slots open."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import ByValue, Ledger, warm_up


class PushPull(ByValue):
    """All slots pull during warm-up; then Q slots pull the most valued UEs and M - Q are open to contention.

    smoothed: UEs whose values are smoothed, all that were `received`, or only those that were `pulled`, as Algorithm 1
        is printed.
    """

    uses: ClassVar[Uses] = ("frame.pull", "push", "push.probability", "strategy.warmup", "strategy.memory")

    def __init__(self, cell: Cell, *, smoothed: Literal["received", "pulled"] = "received") -> None:
        super().__init__(cell)
        self.smoothed = smoothed

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first)
        return Grant(state.top(self.cell.pull), push=True)

    def observe(self, state: Ledger, receipt: Receipt, values: NDArray[np.float64]) -> Ledger:
        ues = receipt.received if self.smoothed == "received" else receipt.pulled  # which come first
        return state.note(receipt).mix(ues, values[: len(ues)], self.cell.memory)
