"""Only pull: push-pull with idle push slots, to measure the benefit of push."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedslot.messages import Grant
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import Ledger
from fedslot.strategies.push_pull import PushPull


class OnlyPull(PushPull):
    """Pull as push-pull does, but leave the push slots idle."""

    uses: ClassVar[Uses] = ("frame.pull", "strategy.warmup", "strategy.memory")

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        return replace(super().schedule(state, round, rng), push=False)
