"""FedAvg with server momentum: m <- momentum m + d, model <- model + lr m (Hsu et al., 2019).

d is the average local model minus the broadcast one. With momentum 0 and lr 1 this is `average`.
The default momentum is the paper's 0.9; Flower's FedAvgM has 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedslot.aggregation.average import average
from fedslot.aggregation.base import Aggregate, Updates


@dataclass(frozen=True, eq=False)
class Momentum:
    """State of the server's momentum.

    momentum: (P,) discounted sum of the average steps so far.
    """

    momentum: Tensor


@dataclass(frozen=True, kw_only=True)
class FedAvgM:
    """A step of the server along the average update, with momentum.

    lr: server learning rate. momentum: weight of the momentum so far.
    """

    lr: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    def init(self, model: Tensor, ues: int) -> Momentum:
        return Momentum(torch.zeros_like(model))

    def apply(self, state: Momentum, updates: Updates) -> Aggregate[Momentum]:
        momentum = self.momentum * state.momentum + average(updates.local, updates.sizes) - updates.start
        model = updates.start + self.lr * momentum
        return Aggregate(model, model, Momentum(momentum))
