"""The messages between the parts of a round: `Grant` and `Receipt`.

A strategy makes a `Grant`, the access layer turns it into a `Receipt`. Strategies, channels, valuations
and models know these two and never each other; the loop in `simulation.py` joins them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UEs = NDArray[np.int64]


@dataclass(frozen=True)
class Grant:
    """The announcement of the PS in the downlink slot.

    pull: UEs in the order of their reserved slots; its length is the number of pull slots of this frame.
    push: whether the remaining uplink slots are open to contention (else they stay idle).
    probability: access barring, the probability with which a UE that would contend does so.
    overhead: slots, uplink and downlink, that the PS spent on asking UEs before this frame; `round.schedule` sets it.
    """

    pull: UEs
    push: bool = False
    probability: float = 1.0
    overhead: int = 0


@dataclass(frozen=True)
class Receipt:
    """The outcome of a frame. Slots count uplink slots from 1; an update received in slot z costs overhead + z + 1.

    pulled, pull_slots: UEs received in their reserved slots, and those slots.
    pushed, push_slots: UEs received by contention, and their slots (counted over the whole frame).
    collided: UEs that pushed and were not received.
    wasted: UEs that were pulled but not ready by their slot.
    overhead: slots that the PS spent on asking UEs before the frame.
    """

    pulled: UEs
    pull_slots: UEs
    pushed: UEs
    push_slots: UEs
    collided: UEs
    wasted: UEs
    overhead: int = 0

    @property
    def received(self) -> UEs:
        """UEs whose update reached the PS, in the order of their slots."""
        return np.concatenate([self.pulled, self.pushed])

    @property
    def contenders(self) -> int:
        """Number of UEs that transmitted in the push slots."""
        return len(self.pushed) + len(self.collided)

    @property
    def cost_max(self) -> int:
        """Overhead, downlink slot, and uplink slots up to the last received: the time of a frame by the clock."""
        return self.overhead + 1 + int(max(self._slots(), default=0))

    @property
    def cost_sum(self) -> int:
        """Overhead + slot + 1 summed over the received UEs, as plotted in the paper's Fig. 6. It rewards collisions."""
        slots = self._slots()
        return int(slots.sum()) + len(slots) * (self.overhead + 1)

    def _slots(self) -> UEs:
        return np.concatenate([self.pull_slots, self.push_slots])


@dataclass(frozen=True)
class NoState:
    """The state of a strategy or an aggregation without state."""
