"""FedAdam: the server takes an Adam step along the average update (Reddi et al., 2021, Algorithm 2).

With d the average local model minus the broadcast one, in round t = 1, 2, ...:

    m <- beta1 m + (1 - beta1) d
    v <- beta2 v + (1 - beta2) d^2
    model <- model + lr_t m / (sqrt(v) + tau)

The betas and tau are the paper's. Where Flower's FedAdam differs from the paper, we follow Flower, so that a
simulation shows what a deployment does: v begins at 0 (paper: at least tau^2), lr is 0.1 (paper: tuned for each task),
and the bias of m and v is corrected by lr_t = lr sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)) (paper: no correction).
Adam itself has exponents t; with Flower's t + 1 the first steps are shorter. We count the rounds in which something was
received, Flower counts all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedslot.aggregation.average import average
from fedslot.aggregation.base import Aggregate, Updates


@dataclass(frozen=True, eq=False)
class AdamMoments:
    """State of the server's Adam.

    m, v: (P,) smoothed average step and its smoothed square. rounds: number of rounds with a received update so far.
    """

    m: Tensor
    v: Tensor
    rounds: int


@dataclass(frozen=True, kw_only=True)
class FedAdam:
    """An Adam step of the server along the average update.

    lr: server learning rate. beta1, beta2: weights of the old m and v. tau: bounds the step where v is small.
    """

    lr: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(gt=0)] = 1e-3

    def init(self, model: Tensor, ues: int) -> AdamMoments:
        return AdamMoments(torch.zeros_like(model), torch.zeros_like(model), 0)

    def apply(self, state: AdamMoments, updates: Updates) -> Aggregate[AdamMoments]:
        step = average(updates.local, updates.sizes) - updates.start
        m = self.beta1 * state.m + (1 - self.beta1) * step
        v = self.beta2 * state.v + (1 - self.beta2) * step**2
        t = state.rounds + 1
        lr = self.lr * math.sqrt(1 - self.beta2 ** (t + 1)) / (1 - self.beta1 ** (t + 1))
        model = updates.start + lr * m / (v.sqrt() + self.tau)
        return Aggregate(model, model, AdamMoments(m, v, t))
