"""The description of a push cell, which is passed whole to all that plans with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from fedslot.access.channels import Channel, Collision, make_channel
from fedslot.planning.contenders import Binomial, Contenders, Floats, contender_pmf, mean
from fedslot.planning.readiness import Ready
from fedslot.support.checks import check_number, check_probability, check_whole
from fedslot.support.errors import InputError

Barring: TypeAlias = float | Literal["best", "auto"]
Progress: TypeAlias = Callable[[float, int], None]
"""Is called with the number of splits that are done, and that of all splits."""


def progress_after(progress: Progress | None, before: float, splits: int) -> Progress:
    """Return the callback of a part of the work that begins after `before` of at least `splits` splits."""
    return lambda done, of: None if progress is None else progress(before + done, max(splits, of))


MOST_ARRIVALS = 10_000.0
"""The largest mean number of arrivals per slot."""
MOST_BEYOND = 1e-9
"""Largest probability of more contenders than UEs that is ignored, as at the end of a Poisson distribution."""


class CellOptions(TypedDict, total=False):
    """Keyword arguments that describe a cell; `plan` explains them."""

    channel: str | Channel
    ready: Ready
    ues: int | None
    barring: Barring
    frames: int
    precision: float | None
    seed: int


@dataclass(frozen=True, eq=False)
class PushCell:
    """The UEs of a cell that contend for push slots, and the channel on which they do; fields as in `plan`."""

    contenders: Contenders = 0
    channel: str | Channel = "collision"
    ready: Ready = 1.0
    ues: int | None = None
    barring: Barring = 1.0
    frames: int = 4000
    precision: float | None = None
    seed: int = 0
    arrivals: float | None = None
    rule: Literal["max", "frame"] = "max"

    def __post_init__(self) -> None:
        pmf, most, _ = self.pmf, self.most_contenders, self.medium
        if self.arrivals is not None:
            check_number("arrivals", self.arrivals, 1e-9, MOST_ARRIVALS)
            if self.ues is None:
                raise InputError("arrivals", self.arrivals, "given with a number of UEs")
        if self.barring not in ("best", "auto"):
            check_probability("barring", self.barring)
        if self.precision is not None:
            check_number("precision", self.precision, 0, 1)
        check_whole("frames", self.frames, least=2, most=10**7)
        check_whole("seed", self.seed)
        if self.ues is not None:
            check_whole("ues", self.ues, least=1)
            beyond = isinstance(self.contenders, Binomial) or pmf[self.ues + 1 :].sum() > MOST_BEYOND
            if most > self.ues and beyond:
                raise InputError("contenders", most, f"at most the number of UEs ({self.ues})")

    @cached_property
    def medium(self) -> Channel:
        """The channel, made if it is given by name."""
        return make_channel(self.channel) if isinstance(self.channel, str) else self.channel

    @property
    def computed(self) -> bool:
        """Whether results are computed, as on the collision channel; else they are simulated.

        That is so on other channels, where barring is controlled, and with arrivals of UEs that are ready late.
        """
        late_arrivals = self.arrivals is not None and np.ndim(self.ready) > 0
        return type(self.medium) is Collision and self.barring != "auto" and not late_arrivals

    @property
    def feeds_back(self) -> bool:
        """Whether frames depend on those before: by the backlog, or by a control of the access barring."""
        return self.arrivals is not None or self.barring == "auto"

    @cached_property
    def pmf(self) -> Floats:
        """Distribution of the number of contenders if no UE is pulled: entry n is the probability of n."""
        return contender_pmf(self.contenders)

    @property
    def contenders_mean(self) -> float:
        """Expected number of contenders if no UE is pulled."""
        return mean(self.pmf)

    @property
    def most_contenders(self) -> int:
        """Largest number of UEs that may contend if none is pulled."""
        return self.contenders.ues if isinstance(self.contenders, Binomial) else len(self.pmf) - 1

    def most_beside(self, pull: int) -> int:
        """Return the largest number of UEs that may contend if `pull` UEs are pulled; not used with arrivals."""
        return self.most_contenders if self.ues is None else min(self.most_contenders, self.ues - pull)

    def pmf_among(self, ues: int) -> Floats:
        """Return the distribution of the number of contenders if only `ues` UEs may contend.

        A fixed number is capped at `ues`. With a `Binomial`, each of these UEs contends with its probability.
        """
        if isinstance(self.contenders, Binomial) and self.contenders.ues > ues:
            return contender_pmf(Binomial(ues, self.contenders.probability))
        return self.pmf if ues >= len(self.pmf) - 1 else np.append(self.pmf[:ues], self.pmf[ues:].sum())
