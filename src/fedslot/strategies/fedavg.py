"""FedAvg: every slot pulls a UE at random."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, NoState, Receipt
from fedslot.strategies.base import Cell, Uses


class FedAvg:
    """Pull M UEs, drawn uniformly and anew in every round."""

    needs_values = False
    uses: ClassVar[Uses] = ()

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(rng.choice(self.cell.ues, size=self.cell.most_pulled, replace=False))

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
