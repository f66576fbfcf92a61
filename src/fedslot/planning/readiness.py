"""Whether UEs have finished computing by their slot: with one probability for all slots, or with one for each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedslot.planning.contenders import Floats
from fedslot.planning.costs import last_success_mean
from fedslot.support.checks import check_probability
from fedslot.support.errors import InputError, shorten

Ready: TypeAlias = float | Sequence[float] | Floats
"""The probability that a pulled UE is ready; or that any UE is, when each slot of the frame begins."""


@dataclass(frozen=True)
class SameReadiness:
    """A pulled UE is ready with the same probability in every slot. Contenders are UEs that are ready."""

    probability: float

    def pulled(self, pull: int) -> float:
        """Return the expected number of received pulls."""
        return self.probability * pull

    def last_pull(self, pull: int) -> float:
        """Return the expected last pull slot whose UE is ready, 0 if there is none."""
        return float(last_success_mean(pull, self.probability))

    def cost_sum(self, pull: int) -> float:
        """Return the expected sum of slot + 1 over the received pulls."""
        return self.probability * pull * (pull + 3) / 2

    def none_after(self, slot: int, pull: int) -> float:
        """Return the probability that no UE of the pull slots after `slot` is ready."""
        return float((1 - self.probability) ** (pull - slot))


@dataclass(frozen=True, eq=False)
class ReadinessBySlot:
    """A UE is ready when slot z begins with a probability that grows with z, whether it is pulled or contends.

    probabilities: (M,), of slots 1..M. The first four methods are as in `SameReadiness`.
    """

    probabilities: Floats

    def pulled(self, pull: int) -> float:
        return float(self.probabilities[:pull].sum())

    def last_pull(self, pull: int) -> float:
        return sum(1 - self.none_after(slot, pull) for slot in range(pull))  # P(last > slot)

    def cost_sum(self, pull: int) -> float:
        return float(self.probabilities[:pull] @ np.arange(2, pull + 2))

    def none_after(self, slot: int, pull: int) -> float:
        return float(np.prod(1 - self.probabilities[slot:pull]))

    def first_slots(self, push: int) -> Floats:
        """Return the distribution (L,) of the first of the last `push` slots that a contender may use; else never."""
        return np.diff(self.probabilities[len(self.probabilities) - push :], prepend=0.0)


ALL_READY = SameReadiness(1.0)
Readiness: TypeAlias = SameReadiness | ReadinessBySlot


def make_readiness(ready: Ready, slots: int) -> Readiness:
    """Return the readiness in a frame of `slots` slots."""
    if np.ndim(ready) == 0:
        check_probability("ready", ready)
        return SameReadiness(float(ready))  # type: ignore[arg-type]
    chances = np.asarray(ready, dtype=float)
    if chances.shape != (slots,) or not (np.diff(chances, prepend=0.0, append=1.0) >= 0).all():
        allowed = f"a probability, or {slots} of them that do not fall, one for each slot"
        raise InputError("ready", shorten(chances.tolist()), allowed)
    return ReadinessBySlot(chances)
