"""Attacks of liars who know all updates of the round, and agree on one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedslot.attacks.base import Attack, Knowledge


class LittleIsEnough(Attack):
    """Sends the mean of the honest updates minus `z` standard deviations, in each parameter (Baruch et al. 2019)."""

    def __init__(self, *, z: Annotated[float, Field(ge=0, le=1e6)] = 1.0) -> None:
        self.z = z

    def steps(self, knowledge: Knowledge) -> Tensor:
        honest = knowledge.honest
        step = honest.mean(0) - self.z * honest.std(0, correction=0)
        return step.expand_as(knowledge.own)


class InnerProduct(Attack):
    """Sends the mean of the honest updates times minus `epsilon`, so that the inner product is negative (Xie 2019)."""

    def __init__(self, *, epsilon: Annotated[float, Field(gt=0, le=1e6)] = 0.5) -> None:
        self.epsilon = epsilon

    def steps(self, knowledge: Knowledge) -> Tensor:
        return (-self.epsilon * knowledge.honest.mean(0)).expand_as(knowledge.own)
