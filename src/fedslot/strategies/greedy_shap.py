"""GreedyShap: every slot pulls one of the UEs of highest Shapley value."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.only_pull import OnlyPull


class GreedyShap(OnlyPull):
    """Pull with all M slots: every UE once during warm-up, then the M most valued in every round."""

    uses: ClassVar[Uses] = ("strategy.warmup", "strategy.memory")

    def __init__(self, cell: Cell) -> None:
        super().__init__(replace(cell, pull=cell.slots))
