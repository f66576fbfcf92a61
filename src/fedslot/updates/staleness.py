"""What the PS makes of stale updates, before any aggregation: the interface, plain updates, and discounts.

An update of a UE that trained from version v arrives when the model is w_t: d = w_k - w_v is its change, and s = t - v
its age in frames. A rule returns the change of w_t that is passed on, for all updates of a round. The rules that
compensate instead of discounting are in compensation.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedslot.messages import UEs

Law = Literal["constant", "hinge", "polynomial"]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Weight = Annotated[float, Field(gt=0, le=1)]


class OwnTraining(Protocol):
    """The PS's own training, by the recipe of the UEs."""

    def train(self, start: Tensor, version: int) -> Tensor:
        """Return the change (P,) of the model of a version by training on the PS's labelled samples."""
        ...

    def imitate(self, start: Tensor, target: Tensor) -> Tensor:
        """Return the change (P,) of a model by training on the PS's inputs towards the predictions of another one."""
        ...


@dataclass(frozen=True, eq=False)
class Arrived:
    """The updates of a round, as they arrived.

    round: the present one. model: (P,) the present model, as UEs hear it.
    versions: (Y,) rounds of the broadcasts from which the UEs trained. starts: (Y, P) the models that these heard.
    changes: (Y, P) how they changed them. own: the PS's own training.
    """

    round: int
    model: Tensor
    versions: UEs
    starts: Tensor
    changes: Tensor
    own: OwnTraining

    @property
    def ages(self) -> NDArray[np.int64]:
        """The ages (Y,) of the updates, in frames."""
        return self.round - self.versions


class Staleness(ABC):
    """A rule for stale updates; one of your own is a subclass. Its options are the arguments of its constructor."""

    damps: ClassVar[bool] = False
    """Whether the aggregation's steps may be as short as 1 / (1 + s), since changes overshoot otherwise."""

    @abstractmethod
    def apply(self, arrived: Arrived) -> Tensor:
        """Return the changes (Y, P) of the present model that are passed on; those of age 0 stay as they are."""


class Plain(Staleness):
    """Passes on changes as they are: d."""

    def apply(self, arrived: Arrived) -> Tensor:
        return arrived.changes


def discount(ages: NDArray[np.int64], law: Law, a: float, b: float) -> NDArray[np.float64]:
    """Return the factors of updates by their age s, as in FedAsync (Xie et al. 2019).

    `constant`: 1. `hinge`: 1 up to the age b, then 1 / (a (s - b) + 1). `polynomial`: (1 + s)^-a.

    >>> discount(np.array([0, 3, 8]), "polynomial", a=0.5, b=4.0).round(3).tolist()
    [1.0, 0.5, 0.333]
    >>> discount(np.array([0, 3, 8]), "hinge", a=0.5, b=4.0).round(3).tolist()
    [1.0, 1.0, 0.333]
    """
    s = ages.astype(np.float64)
    if law == "constant":
        return np.ones(len(s))
    return 1 / (a * np.maximum(s - b, 0) + 1) if law == "hinge" else (1 + s) ** -a


class Discount(Staleness):
    """Shortens changes by their age: f(s) d. `law`, `a` and `b` as in `fedasync`."""

    def __init__(self, *, law: Law = "polynomial", a: Positive = 0.5, b: Annotated[float, Field(ge=0)] = 4.0) -> None:
        self.law, self.a, self.b = law, a, b

    def apply(self, arrived: Arrived) -> Tensor:
        factors = discount(arrived.ages, self.law, self.a, self.b)
        return arrived.changes * torch.from_numpy(factors).to(arrived.changes).unsqueeze(1)


class FedAsync(Staleness):
    """Mixes local models into the present one, by a weight that falls with age: weight f(s) (w_k - w_t).

    `law` is that of f: `constant`, `hinge` with a and b, or `polynomial` with a.
    """

    def __init__(
        self,
        *,
        weight: Weight = 0.6,
        law: Law = "polynomial",
        a: Positive = 0.5,
        b: Annotated[float, Field(ge=0)] = 4.0,
    ) -> None:
        self.weight, self.law, self.a, self.b = weight, law, a, b

    def apply(self, arrived: Arrived) -> Tensor:
        factors = self.weight * discount(arrived.ages, self.law, self.a, self.b)
        local = arrived.starts + arrived.changes
        return (local - arrived.model) * torch.from_numpy(factors).to(local).unsqueeze(1)
