"""The radio links of simulated UEs: slots that an update takes, transmissions that are lost, silence by duty cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedslot.access.clock import Radio
from fedslot.access.reach import fit_bursts, pull_only
from fedslot.fleet import Fleet
from fedslot.messages import Grant, Receipt, Time, UEs
from fedslot.scenario import Scenario
from fedslot.support.rng import OUTAGE, stream

if TYPE_CHECKING:
    from fedslot.rounds.round import Snapshot


@dataclass(frozen=True, eq=False)
class Links:
    """The links of the UEs of a scenario.

    bursts: (K,) uplink slots that an update of each UE takes; None: one. outage: (K,) probability that a transmission
    is lost; None: none is. duty_cycle: share of the time in which a UE may send; None: any.
    """

    seed: int = 0
    bursts: UEs | None = None
    outage: NDArray[np.float64] | None = None
    duty_cycle: float | None = None

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, radio: Radio) -> Links:
        """Return the links of a fleet."""
        bursts, outage = radio.bursts(fleet.rates), fleet.outage
        return cls(
            scenario.seed,
            bursts if (bursts > 1).any() else None,
            outage if outage.any() else None,
            scenario.radio.duty_cycle,
        )

    def fails(self, round: int) -> Callable[[UEs], NDArray[np.bool_]] | None:
        """Return the function that tells whether the transmissions of UEs (n,) in a round are lost, (n,)."""
        outage = self.outage
        if outage is None:
            return None
        return lambda ues: np.array(
            [stream(self.seed, OUTAGE, round, ue).random() < outage[ue] for ue in ues.tolist()], dtype=bool
        )

    def allow(self, grant: Grant, now: Snapshot, most: int) -> Grant:
        """Return a grant that pulls no silent UE, and has as many slots as pulled UEs need; most: slots of a frame."""
        allowed = grant
        if len(now.silent):
            here = set(np.flatnonzero(~self.silenced(now)).tolist())
            allowed = pull_only(grant, here, set(), most, now.round)
        if self.bursts is not None:
            allowed = fit_bursts(allowed, self.bursts, now.owed, most)
        # where no UE may send, its slots stay idle: UEs are silent for a time, which must pass
        return allowed if allowed.uplink_slots(most) else replace(allowed, slots=grant.slots)

    def silenced(self, now: Snapshot) -> NDArray[np.bool_]:
        """Return which UEs (K,) the duty cycle keeps from sending in the next frame."""
        silenced: NDArray[np.bool_] = now.silent > now.slots_spent
        return silenced

    def seen(self, receipt: Receipt) -> Receipt:
        """Return what strategies see of a receipt: the slots that received updates took, and nothing of the others."""
        bursts = None
        if receipt.bursts is not None:
            bursts = np.zeros_like(receipt.bursts)
            bursts[receipt.received] = receipt.bursts[receipt.received]
        return replace(receipt, attempts=None, bursts=bursts, trained=None)

    def silence(self, silent: NDArray[np.float64], receipt: Receipt, spent: Time) -> NDArray[np.float64]:
        """Return until when UEs are silent, (K,), after a frame that ended when `spent` slots were spent."""
        if self.duty_cycle is None:
            return silent
        sent = np.bincount(receipt.senders, minlength=len(silent))
        own, after = np.flatnonzero(sent), silent.copy()
        after[own] = spent + sent[own] * receipt.uplink_length * (1 / self.duty_cycle - 1)
        return after

    def owed(self, now: Snapshot, receipt: Receipt) -> NDArray[np.bool_]:
        """Return which UEs are owed a pull after a frame: left out, and never received."""
        if receipt.left_out is None:
            return now.owed
        owed = now.owed.copy()
        owed[receipt.left_out] = now.heard[receipt.left_out] == 0
        owed[receipt.received] = owed[receipt.wasted] = owed[receipt.lost] = False
        return owed


GOOD_LINKS = Links()
"""Links without losses, on which each update takes one slot."""
