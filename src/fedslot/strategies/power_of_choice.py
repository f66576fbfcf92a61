"""Power-of-choice (Cho et al. 2020): every slot pulls one of the highest losses among candidates that are asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Receipt, UEs
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.selection import draw, top
from fedslot.support.checks import check_whole


@dataclass(frozen=True)
class Losses:
    """Answers of the candidates. loss: (K,) local loss of each UE asked; -inf for the others."""

    loss: NDArray[np.float64]


class PowerOfChoice:
    """Draw candidates in proportion to their data, ask for their loss of the global model, pull the M highest.

    Asking takes a downlink slot, in which the model is broadcast to the candidates, and `answer_slots` uplink slots per
    candidate, rounded up in total: a loss is a few bytes, a slot carries a model. By default 2M candidates are asked.
    """

    needs_values = False
    uses: ClassVar[Uses] = ()

    def __init__(
        self,
        cell: Cell,
        *,
        candidates: int | None = None,
        answer_slots: Annotated[float, Field(ge=0, le=1)] = 0.05,
    ) -> None:
        self.cell = cell
        self.candidates = min(2 * cell.slots, cell.ues)
        if candidates is not None:
            check_whole("candidates", candidates, cell.most_pulled, cell.ues)
            self.candidates = candidates
        # rounded first, so that 100 * 0.07 = 7.000000000000001 is 7 slots
        self.overhead = 1 + math.ceil(round(self.candidates * answer_slots, 9))
        self.log_sizes = np.zeros(cell.ues) if cell.sizes is None else np.log(cell.sizes)

    def init(self) -> Losses:
        return Losses(np.full(self.cell.ues, -np.inf))

    def ask(self, state: Losses, round: int, rng: np.random.Generator) -> UEs:
        return draw(self.log_sizes, self.candidates, rng)

    def hear(self, state: Losses, ues: UEs, losses: NDArray[np.float64]) -> Losses:
        loss = state.loss.copy()
        loss[ues] = losses
        return Losses(loss)

    def schedule(self, state: Losses, round: int, rng: np.random.Generator) -> Grant:
        return Grant(top(state.loss, self.cell.slots))

    def observe(self, state: Losses, receipt: Receipt, values: NDArray[np.float64]) -> Losses:
        return self.init()  # the next model has other losses
