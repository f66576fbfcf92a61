"""Attacks of liars who know all updates of the round, and agree on one.

They know the updates as they are `sent`, with noise, which can be heard on the air, or as `trained`. With noise, the
lies of `little-is-enough` are longer: they do more harm, and are easier to tell from honest updates.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedslot.attacks.base import Attack, Knowledge

Heard = Literal["sent", "trained"]


class LittleIsEnough(Attack):
    """Sends the mean of the honest updates minus `z` standard deviations, in each parameter (Baruch et al. 2019).

    updates: which ones, as `sent`, with noise, or as `trained`, without.
    """

    def __init__(self, *, z: Annotated[float, Field(ge=0, le=1e6)] = 1.0, updates: Heard = "sent") -> None:
        self.z, self.updates = z, updates

    def steps(self, knowledge: Knowledge) -> Tensor:
        honest: Tensor = getattr(knowledge, self.updates)
        step = honest.mean(0) - self.z * honest.std(0, correction=0)
        return step.expand_as(knowledge.own)


class InnerProduct(Attack):
    """Sends minus `epsilon` times the mean of the honest updates, against the progress (Xie et al. 2019).

    updates: which ones, as `sent`, with noise, or as `trained`, without.
    """

    def __init__(self, *, epsilon: Annotated[float, Field(gt=0, le=1e6)] = 0.5, updates: Heard = "sent") -> None:
        self.epsilon, self.updates = epsilon, updates

    def steps(self, knowledge: Knowledge) -> Tensor:
        honest: Tensor = getattr(knowledge, self.updates)
        return (-self.epsilon * honest.mean(0)).expand_as(knowledge.own)
