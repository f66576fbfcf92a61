"""FedBuff: the model moves once a number of updates has come, by their average (Nguyen et al., 2022).

It is meant for `mode: asynchronous`, where its authors discount stale updates by (1 + s)^-0.5: `staleness: discount`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedslot.aggregation.base import Aggregate, Updates


@dataclass(frozen=True, eq=False)
class Buffer:
    """Updates that wait for others.

    steps: (P,) sum of their changes of the model, each times its number of training samples. samples: sum of these.
    updates: number of updates.
    """

    steps: Tensor
    samples: int = 0
    updates: int = 0


@dataclass(frozen=True, kw_only=True)
class FedBuff:
    """A step of the server along the data-weighted average of the buffered updates, once there are `size` of them.

    lr: server learning rate.
    """

    size: Annotated[int, Field(ge=1, le=10**6)] = 10
    lr: Annotated[float, Field(gt=0, le=1e6)] = 1.0

    def init(self, model: Tensor, ues: int) -> Buffer:
        return Buffer(torch.zeros_like(model))

    def apply(self, state: Buffer, updates: Updates) -> Aggregate[Buffer]:
        weights = torch.as_tensor(updates.sizes).to(updates.steps)
        steps, samples = state.steps + weights @ updates.steps, state.samples + int(updates.sizes.sum())
        count = state.updates + len(updates.sizes)
        if count < self.size:
            return Aggregate(updates.start, updates.start, Buffer(steps, samples, count))
        model = updates.start + self.lr * steps / samples
        return Aggregate(model, model, Buffer(torch.zeros_like(steps)))
