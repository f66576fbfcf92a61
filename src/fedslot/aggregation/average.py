"""ModelAverage of Algorithm 1: the data-weighted average of the local models (McMahan et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.aggregation.base import StatelessAggregation, Updates


def average(local: Tensor, sizes: NDArray[np.int64]) -> Tensor:
    """Return the average (P,) of local models (Y, P), weighted by the number of training samples `sizes` (Y,).

    >>> average(torch.tensor([[0.0, 4.0], [8.0, 0.0]]), np.array([30, 10]))
    tensor([2., 3.])
    """
    weights = torch.as_tensor(sizes / sizes.sum(), dtype=local.dtype, device=local.device)
    return weights @ local


@dataclass(frozen=True, kw_only=True)
class Average(StatelessAggregation):
    """The data-weighted average; there are no options."""

    def model(self, updates: Updates) -> Tensor:
        return average(updates.local, updates.sizes)
