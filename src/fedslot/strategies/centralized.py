"""Centralized: a tenth of the UEs send their data, and the PS trains on it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, NoState


class Centralized:
    """Pull the data of a share of the UEs; UEs beyond the M slots of a frame have no room in it.

    UEs carry no order (their data are drawn independently), so the first ones by index are as good as any.
    """

    needs_values = False

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        senders = max(1, math.floor(self.cell.share * self.cell.ues + 0.5))
        return Grant(np.arange(min(senders, self.cell.slots)))

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
