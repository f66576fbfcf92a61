"""Centralized: a share of the UEs sends its data, and the PS trains on them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from fedslot.messages import Grant, NoState
from fedslot.strategies.base import Stateless, Uses


class Centralized(Stateless):
    """Pull the same share of the UEs in every round, at most M of them.

    The data of UEs are drawn independently of their index, so those of the lowest index are as good as any.
    """

    uses: ClassVar[Uses] = ("strategy.share",)

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        senders = max(1, math.floor(self.cell.share * self.cell.ues + 0.5))
        return Grant(np.arange(min(senders, self.cell.slots)))
