"""Round robin: every slot pulls the UE whose turn it is."""

from __future__ import annotations

import numpy as np

from fedslot.messages import Grant, NoState
from fedslot.strategies.base import Stateless


class RoundRobin(Stateless):
    """Pull M UEs in the order of their indices, every UE once before any twice; the next frame goes on from there."""

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        count = self.cell.most_pulled
        return Grant((round * count + np.arange(count)) % self.cell.ues)
