"""FedAvg: every slot pulls a UE at random."""

from __future__ import annotations

import numpy as np

from fedslot.messages import Grant, NoState
from fedslot.strategies.base import Stateless


class FedAvg(Stateless):
    """Pull M UEs, drawn uniformly and anew in every round."""

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(rng.choice(self.cell.ues, size=self.cell.most_pulled, replace=False))
