"""Round robin: every slot pulls the UE whose turn it is."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, NoState, Receipt
from fedslot.strategies.base import Cell, Uses


class RoundRobin:
    """Pull M UEs in the order of their indices, every UE once before any twice; the next frame goes on from there."""

    needs_values = False
    uses: ClassVar[Uses] = ()

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        count = self.cell.most_pulled
        return Grant((round * count + np.arange(count)) % self.cell.ues)

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
