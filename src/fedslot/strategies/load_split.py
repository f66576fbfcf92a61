"""Load split: push-pull with a number of push slots that follows the load, with hysteresis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import Ledger, warm_up

MEMORY = 0.8  # weight of the old load in the smoothing


@dataclass(frozen=True)
class SplitLedger(Ledger):
    """Values, the number of push slots of the next frame, and the smoothed excess of contenders."""

    push: int = 0
    excess: float = 0.0


class LoadSplit:
    """Pull the most valued UEs, and open one push slot more or less than before, as the load requires.

    After each frame, the PS estimates how many UEs could have contended. If these are, smoothed over some frames, more
    than the number that the push slots receive best, by more than `hysteresis` for each push slot, a pull slot becomes
    a push slot. If they are fewer by more than that, a push slot becomes a pull slot. At least `least` slots push, so
    that the load can be seen, and at least as many pull. The first frame after warm-up has `frame.pull` pull slots.
    """

    needs_values = True
    needs_load = True
    uses: ClassVar[Uses] = ("frame.pull", "push", "push.probability", "strategy.warmup", "strategy.memory")

    def __init__(
        self,
        cell: Cell,
        *,
        hysteresis: Annotated[float, Field(ge=0, le=10)] = 0.25,
        least: Annotated[int, Field(ge=1, le=10**6)] = 1,
    ) -> None:
        self.cell, self.hysteresis = cell, hysteresis
        self.fewest = min(least, cell.slots)
        self.most = max(self.fewest, cell.slots - least)

    def init(self) -> SplitLedger:
        push = self.cell.slots - self.cell.pull
        return replace(SplitLedger.blank(self.cell.ues), push=int(np.clip(push, self.fewest, self.most)))

    def schedule(self, state: SplitLedger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first)
        return Grant(state.top(self.cell.slots - state.push), push=True)

    def observe(self, state: SplitLedger, receipt: Receipt, values: NDArray[np.float64]) -> SplitLedger:
        state = state.smooth(receipt, values, self.cell.memory)
        if not receipt.open_slots:
            return state
        excess = MEMORY * state.excess + (1 - MEMORY) * receipt.excess
        slack = self.hysteresis * receipt.open_slots
        push = int(np.clip(state.push + int(excess > slack) - int(excess < -slack), self.fewest, self.most))
        # after a change, the old excess says nothing of the new number of slots
        return replace(state, push=push, excess=0.0 if push != state.push else excess)
