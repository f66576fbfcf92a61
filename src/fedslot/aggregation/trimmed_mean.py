"""Coordinate-wise trimmed mean: each parameter without its smallest and largest values (Yin et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedslot.aggregation.base import StatelessAggregation, Updates


def trimmed_mean(local: Tensor, trimmed: int) -> Tensor:
    """Return the mean (P,) of local models (Y, P) without the `trimmed` lowest and highest values of each parameter.

    >>> import torch
    >>> trimmed_mean(torch.tensor([[1.0, 9.0], [2.0, -50.0], [4.0, 7.0], [900.0, 8.0]]), 1)
    tensor([3.0000, 7.5000])
    """
    return local.sort(dim=0).values[trimmed : len(local) - trimmed].mean(dim=0)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(StatelessAggregation):
    """The mean of each parameter without its largest and smallest values.

    fraction: share of the received updates that is trimmed at each end, rounded down to whole updates.
    """

    fraction: Annotated[float, Field(ge=0, lt=0.5)] = 0.2

    def model(self, updates: Updates) -> Tensor:
        return trimmed_mean(updates.local, int(self.fraction * len(updates.local)))
