"""Centralized: a share of the UEs sends its data, and the PS trains on them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, NoState, Receipt
from fedslot.strategies.base import Cell, Uses


class Centralized:
    """Pull the same share of the UEs in every round, at most M of them.

    The data of UEs are drawn independently of their index, so those of the lowest index are as good as any.
    """

    needs_values = False
    uses: ClassVar[Uses] = ("strategy.share",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        senders = max(1, math.floor(self.cell.share * self.cell.ues + 0.5))
        return Grant(np.arange(min(senders, self.cell.slots)))

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
