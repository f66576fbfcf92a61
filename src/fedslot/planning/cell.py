"""The description of a push cell, which is passed whole to all that plans with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from fedslot.access.channels import Channel, Collision, make_channel
from fedslot.planning.contenders import Binomial, Contenders, Floats, contender_pmf, contenders_among, most_who_contend
from fedslot.planning.readiness import Ready
from fedslot.support.checks import check_number, check_probability, check_whole
from fedslot.support.errors import InputError

Barring: TypeAlias = float | Literal["best"]
Progress: TypeAlias = Callable[[float, int], None]
"""Is called with the number of splits that are done, and that of all splits."""

MOST_BEYOND = 1e-9
"""Largest probability of more contenders than UEs that is ignored, as at the end of a Poisson distribution."""


class CellOptions(TypedDict, total=False):
    """Keyword arguments that describe a cell; `plan` explains them."""

    ready: Ready
    ues: int | None
    barring: Barring
    channel: str | Channel
    frames: int
    precision: float | None
    seed: int


@dataclass(frozen=True, eq=False)
class PushCell:
    """The UEs of a cell that contend for push slots, and the channel on which they do; fields as in `plan`."""

    contenders: Contenders
    channel: Channel
    ready: Ready = 1.0
    ues: int | None = None
    barring: Barring = 1.0
    frames: int = 4000
    precision: float | None = None
    seed: int = 0

    @classmethod
    def of(cls, contenders: Contenders, *, channel: str | Channel = "collision", **options: Any) -> PushCell:
        """Return a cell whose channel may be given by name."""
        return cls(contenders, make_channel(channel) if isinstance(channel, str) else channel, **options)

    def __post_init__(self) -> None:
        pmf = self.pmf
        if self.barring != "best":
            check_probability("barring", self.barring)
        if self.precision is not None:
            check_number("precision", self.precision, 0, 1)
        check_whole("frames", self.frames, least=2, most=10**7)
        check_whole("seed", self.seed)
        if self.ues is not None:
            check_whole("ues", self.ues, least=1)
            beyond = isinstance(self.contenders, Binomial) or pmf[self.ues + 1 :].sum() > MOST_BEYOND
            if self.most_contenders > self.ues and beyond:
                raise InputError("contenders", self.most_contenders, f"at most the number of UEs ({self.ues})")

    @property
    def computed(self) -> bool:
        """Whether results are computed, as on the collision channel; on others they are simulated."""
        return type(self.channel) is Collision

    @cached_property
    def pmf(self) -> Floats:
        """Distribution of the number of contenders if no UE is pulled: entry n is the probability of n."""
        return contender_pmf(self.contenders)

    @property
    def contenders_mean(self) -> float:
        """Expected number of contenders if no UE is pulled."""
        return float(np.arange(len(self.pmf)) @ self.pmf)

    @cached_property
    def most_contenders(self) -> int:
        """Largest number of UEs that may contend if none is pulled."""
        return most_who_contend(self.contenders)

    def most_beside(self, pull: int) -> int:
        """Return the largest number of UEs that may contend if `pull` UEs are pulled."""
        return self.most_contenders if self.ues is None else min(self.most_contenders, self.ues - pull)

    def pmf_among(self, ues: int) -> Floats:
        """Return the distribution of the number of contenders if only `ues` UEs may contend."""
        return contenders_among(ues, self.contenders)
