"""Push-pull, the paper's proposal (Algorithm 1): pull the most valued UEs, leave the other slots open."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedslot.messages import Grant
from fedslot.strategies.base import Uses
from fedslot.strategies.ledger import ByValue, Ledger, warm_up


class PushPull(ByValue):
    """All slots pull during warm-up; then Q slots pull the most valued UEs and M - Q are open to contention."""

    uses: ClassVar[Uses] = ("frame.pull", "push", "push.probability", "strategy.warmup", "strategy.memory")

    def schedule(self, state: Ledger, round: int, rng: np.random.Generator) -> Grant:
        first = warm_up(self.cell, state, round)
        if first is not None:
            return Grant(first)
        return Grant(state.top(self.cell.pull), push=True)
