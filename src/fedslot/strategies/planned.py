"""Planned: solve the paper's problem P anew in each frame, so that the split into pull and push follows the values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedslot.messages import Grant
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.ledger import ByValue, Ledger, warm_up
from fedslot.strategies.selection import top


class Planned(ByValue):
    """Pull the Q most valued UEs and open push slots; Q maximises the expected value of the frame within a cost limit.

    The value of a split is the sum of the Q highest values, plus the expected number of received pushes times the mean
    value of the UEs that are not pulled. `frame_limit` bounds the expected `cost_max` of a frame, warm-up included, and
    each Q has the most push slots that it allows. By default the only limit is the number of slots.

    UEs of negative value are better not received: Q stops before them, and no slots are open if the others' mean is
    negative. A frame is never empty, though: if all values are negative, the best UE is pulled, which values it anew. A
    UE without a value counts as an average one.

    Problem P values updates one by one and does not know that they average out each other's noise. So on noisy fleets
    frames get short, and the model ends worse than that of `greedy-shap` (`docs/explanation/equal-slots.md`).
    """

    uses: ClassVar[Uses] = ("push", "push.probability", "strategy.warmup", "strategy.memory")

    def __init__(self, cell: Cell, *, frame_limit: Annotated[float, Field(ge=2, le=1e9)] | None = None) -> None:
        limit = min(1.0 + cell.slots, frame_limit or math.inf)
        super().__init__(replace(cell, slots=math.floor(limit) - 1))  # a warm-up frame pulls with all slots that fit
        self.splits = cell.splits(limit)

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first, slots=len(first))
        seen = state.seen > 0
        value = np.where(seen, state.value, state.value[seen].mean() if seen.any() else 1.0)
        order = top(value, len(self.splits))
        pulled = np.concatenate([[0.0], np.cumsum(value[order])])
        utilities = []
        for split in self.splits:
            others = self.cell.ues - split.pull
            mean = (value.sum() - pulled[split.pull]) / others if others else 0.0
            utilities.append(pulled[split.pull] + split.pushes * max(mean, 0.0))
        # among equals the most pull slots, whose yield is certain; rounding does not decide
        scale = max(float(np.abs(utilities).max()), 1e-300)
        best = max(range(len(self.splits)), key=lambda i: (float(f"{utilities[i] / scale:.9f}"), i))
        split = self.splits[best]
        open_slots = split.push if utilities[best] > pulled[split.pull] else 0
        if split.pull + open_slots == 0:
            return Grant(order[:1], slots=1)
        return Grant(order[: split.pull], open_slots > 0, slots=split.pull + open_slots)
