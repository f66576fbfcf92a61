"""PS alone: no UE transmits, and the PS trains on its own labelled samples; the control that needs no slot."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, NoState, Receipt
from fedslot.strategies.base import Cell, Uses


class PSAlone:
    """Announce no slot. The run is a single round, in which the PS trains for up to 500 epochs."""

    needs_values = False
    uses: ClassVar[Uses] = ()

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.empty(0, dtype=np.int64), slots=0)

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
