"""Coordinate-wise median of the local models, unweighted (Yin et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedslot.aggregation.base import StatelessAggregation, Updates
from fedslot.aggregation.trimmed_mean import trimmed_mean


@dataclass(frozen=True, kw_only=True)
class Median(StatelessAggregation):
    """The mean of the middle two where their number is even; there are no options."""

    def model(self, updates: Updates) -> Tensor:
        return trimmed_mean(updates.local, (len(updates.local) - 1) // 2)
