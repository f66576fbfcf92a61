"""FedYogi: like FedAdam, but v changes by at most (1 - beta2) d^2 in a round (Reddi et al., 2021, Algorithm 2).

With d the average local model minus the broadcast one:

    m <- beta1 m + (1 - beta1) d
    v <- v - (1 - beta2) d^2 sign(v - d^2)
    model <- model + lr m / (sqrt(v) + tau)

The betas and tau are the paper's. As in Flower's FedYogi, v begins at 0 (paper: at least tau^2) and lr is 0.01
(paper: tuned for each task). Neither corrects the bias of m and v.
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
class YogiMoments:
    """State of the server's Yogi.

    m, v: (P,) smoothed average step, and the estimate of its square.
    """

    m: Tensor
    v: Tensor


@dataclass(frozen=True, kw_only=True)
class FedYogi:
    """A Yogi step of the server along the average update.

    lr: server learning rate. beta1, beta2: weights of the old m and v. tau: bounds the step where v is small.
    """

    lr: Annotated[float, Field(gt=0, le=1e6)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(gt=0)] = 1e-3

    def init(self, model: Tensor, ues: int) -> YogiMoments:
        return YogiMoments(torch.zeros_like(model), torch.zeros_like(model))

    def apply(self, state: YogiMoments, updates: Updates) -> Aggregate[YogiMoments]:
        step = average(updates.local, updates.sizes) - updates.start
        square = step**2
        m = self.beta1 * state.m + (1 - self.beta1) * step
        v = state.v - (1 - self.beta2) * square * torch.sign(state.v - square)
        model = updates.start + self.lr * m / (v.sqrt() + self.tau)
        return Aggregate(model, model, YogiMoments(m, v))
