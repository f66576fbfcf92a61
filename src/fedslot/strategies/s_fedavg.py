"""S-FedAvg (Nagalapatti and Narayanam 2021): every slot pulls a UE at random, the more valued the likelier."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedslot.messages import Grant
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import ByValue, Ledger
from fedslot.strategies.selection import draw


class SFedAvg(ByValue):
    """Pull M UEs, drawn without replacement with probabilities softmax(value / (temperature * spread)).

    The paper takes softmax(value); with differences of losses as values that is nearly uniform, so values are divided
    by their standard deviation over the UEs, `spread`. A UE that was never received has value 0, as in the paper's
    beginning all UEs are equal; its first value counts in full. There is no warm-up.
    """

    uses: ClassVar[Uses] = ("strategy.memory",)

    def __init__(self, cell: Cell, *, temperature: Annotated[float, Field(ge=0.01, le=1e6)] = 1.0) -> None:
        super().__init__(cell)
        self.temperature = temperature

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        value = np.where(state.seen > 0, state.value, 0.0)
        return Grant(draw(value / (self.temperature * state.spread), self.cell.slots, rng))
