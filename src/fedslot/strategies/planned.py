"""Planned: choose the split of each frame by the values, so that the received set is worth most.

The paper's problem P asks for the set of UEs of the highest utility within a limit on the cost. The utility of a set is
that of the average of its updates. If an update is a common direction plus a deviation of its own, whose square lowers
the utility by c_k, then deviations average out: those of a set S of n UEs lower it by the sum of c_k over S / n^2.

In such a game, Shapley values differ by the differences of the c_k, up to a factor that decides nothing: who has a
lower value deviates more. They do not say by how much the best UE deviates, since that and the common direction change
all values alike. So this is assumed: `common` times the mean difference to the best UE.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant
from fedslot.strategies.base import Cell, Split, Uses
from fedslot.strategies.ledger import ByValue, Ledger, warm_up
from fedslot.strategies.selection import top


class Planned(ByValue):
    """Pull the Q most valued UEs and open push slots; Q is the best for the received set within a limit on the cost.

    Received updates are averaged, so that the deviations c_k of n UEs lower the utility by the sum of c_k / n^2. A UE's
    deviation is how far its value is below the highest, plus `common` times the mean of that over all UEs. Expected
    pushes count as so many UEs of the mean deviation of those that are not pulled. So frames are long where values are
    alike, and leave out UEs that deviate more than twice as much as those that are pulled.

    `frame_limit` bounds the expected `cost_max` of a frame, warm-up included, and each Q has the most push slots that
    it allows. By default the only limit is the number of slots; then a further pull is worth more than a push slot, and
    none is opened. A UE without a value counts as an average one.

    common: deviation of the best UE, by the mean difference of a UE to it.
    reading: of problem P. `sum` adds up the values of single UEs: Q stops before the first negative one, and slots are
        open if the mean value of the others is positive. On noisy fleets its frames get short, since it does not know
        that updates average out each other's noise.
    """

    uses: ClassVar[Uses] = ("push", "push.probability", "strategy.warmup", "strategy.memory")

    def __init__(
        self,
        cell: Cell,
        *,
        frame_limit: Annotated[float, Field(ge=2, le=1e9)] | None = None,
        common: Annotated[float, Field(ge=0, le=1e6)] = 1.0,
        reading: Literal["set", "sum"] = "set",
    ) -> None:
        limit = min(1.0 + cell.slots, frame_limit or math.inf)
        super().__init__(replace(cell, slots=math.floor(limit) - 1))  # a warm-up frame pulls with all slots that fit
        self.splits = cell.splits(limit)
        self.common, self.reading = common, reading

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first, slots=len(first))
        seen = state.seen > 0
        value = np.where(seen, state.value, state.value[seen].mean() if seen.any() else 1.0)
        order = top(value, len(self.splits))
        # with some push slots open a split is worth less than with all or none of them
        choices = [one for split in self.splits for one in (split, split._replace(push=0, pushes=0.0))]
        utilities = [self._utility(value, order, choice) for choice in choices]
        # among equals the most pull slots, whose yield is certain; rounding does not decide
        scale = max((abs(utility) for utility in utilities if math.isfinite(utility)), default=0.0) or 1.0
        best = max(range(len(choices)), key=lambda i: (float(f"{utilities[i] / scale:.9f}"), i))
        choice = choices[best]
        if choice.pull + choice.push == 0:
            return Grant(order[:1], slots=1)
        return Grant(order[: choice.pull], choice.push > 0, slots=choice.pull + choice.push)

    def _utility(self, value: NDArray[np.float64], order: NDArray[np.int64], split: Split) -> float:
        """Return the expected utility of a split, up to a constant that is the same for all."""
        worth = value
        if self.reading == "set":
            below = value.max() - value
            worth = -(below + self.common * below.mean())
        pulled = float(worth[order[: split.pull]].sum())
        others = len(value) - split.pull
        mean = (float(worth.sum()) - pulled) / others if others else 0.0
        if self.reading == "sum":
            return pulled + split.pushes * max(mean, 0.0)
        updates = split.pull + split.pushes
        return (pulled + split.pushes * mean) / updates**2 if updates else -math.inf
