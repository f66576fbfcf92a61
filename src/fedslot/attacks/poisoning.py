"""Attacks with poisoned samples."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.attacks.base import Poisoning, Samples
from fedslot.support.errors import InputError

Scale = Annotated[float, Field(gt=0, le=1e6)]


class LabelFlip(Poisoning):
    """Trains on samples with the label C - 1 - y in place of y, for C classes."""

    def __init__(self, *, scale: Scale = 1.0) -> None:
        self.scale = scale

    def poison(self, samples: Samples, classes: int, rng: np.random.Generator) -> Samples:
        return self.goal(samples, classes)

    def goal(self, samples: Samples, classes: int) -> Samples:
        x, y = samples
        return x, classes - 1 - y


class Backdoor(Poisoning):
    """Trains on samples of which a share has a pattern and the label `target`.

    The pattern is a square of `size` x `size` pixels of value 1 in the lower right corner, in all channels; samples
    that are no images have it in their last size^2 features. Success is the share of the test samples of other classes
    that are taken for the target once they have the pattern.

    share: of the liar's samples that have the pattern.
    """

    def __init__(
        self,
        *,
        target: Annotated[int, Field(ge=0, le=10**6)] = 0,
        size: Annotated[int, Field(ge=1, le=1000)] = 3,
        share: Annotated[float, Field(gt=0, le=1)] = 0.5,
        scale: Scale = 1.0,
    ) -> None:
        self.target, self.size, self.share, self.scale = target, size, share, scale

    def poison(self, samples: Samples, classes: int, rng: np.random.Generator) -> Samples:
        if self.target >= classes:
            raise InputError("fleet.attack.options.target", self.target, f"a class, from 0 to {classes - 1}")
        x, y = samples
        marked = rng.permutation(len(y)) < round(self.share * len(y))
        return np.where(_over(marked, x), self._with_pattern(x), x), np.where(marked, self.target, y)

    def goal(self, samples: Samples, classes: int) -> Samples:
        x, y = samples
        others = y != self.target
        return self._with_pattern(x[others]), np.full(int(others.sum()), self.target)

    def _with_pattern(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        marked = x.copy()
        if x.ndim > 2:
            marked[..., -self.size :, -self.size :] = 1.0
        else:
            marked[..., -(self.size**2) :] = 1.0
        return marked


def _over(marked: NDArray[np.bool_], x: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return a mask (n,) with as many axes as the samples have."""
    return marked.reshape(-1, *[1] * (x.ndim - 1))
