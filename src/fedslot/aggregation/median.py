"""Coordinate-wise median of the local models, unweighted (Yin et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedslot.aggregation.base import Aggregate, Updates
from fedslot.aggregation.trimmed_mean import trimmed_mean
from fedslot.messages import NoState


@dataclass(frozen=True, kw_only=True)
class Median:
    """The mean of the middle two where their number is even; there are no options."""

    def init(self, model: Tensor, ues: int) -> NoState:
        return NoState()

    def apply(self, state: NoState, updates: Updates) -> Aggregate[NoState]:
        model = trimmed_mean(updates.local, (len(updates.local) - 1) // 2)
        return Aggregate(model, model, state)
