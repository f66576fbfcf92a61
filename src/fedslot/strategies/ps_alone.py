"""PS alone: no UE transmits, and the PS trains on its own labelled samples; the control that needs no slot."""

from __future__ import annotations

import numpy as np

from fedslot.messages import Grant, NoState
from fedslot.strategies.base import Stateless


class PSAlone(Stateless):
    """Announce no slot. The run is a single round, in which the PS trains for up to 500 epochs."""

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.empty(0, dtype=np.int64), slots=0)
