"""Power-of-choice (Cho et al. 2020): every slot pulls one of the highest losses among candidates that are asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt, UEs
from fedslot.strategies.base import Cell, Options, Uses
from fedslot.strategies.selection import draw, top


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
    options: ClassVar[Options] = {"candidates": None, "answer_slots": 0.05}

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.candidates = min(2 * cell.slots, cell.ues)
        if cell.options["candidates"] is not None:
            self.candidates = int(cell.number("candidates", least=cell.most_pulled, most=cell.ues, whole=True))
        # rounded first, so that 100 * 0.07 = 7.000000000000001 is 7 slots
        self.overhead = 1 + math.ceil(round(self.candidates * cell.number("answer_slots", least=0, most=1), 9))
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
