"""The links of simulated UEs: slots that an update takes, transmissions that are lost, and when UEs can be heard.

A UE cannot be heard while it is away, once it is out of energy, and as long as the duty cycle keeps it silent. In the
first two cases it does not hear broadcasts either. The PS knows this when it schedules a frame, and pulls no such UE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedslot.access.clock import Radio
from fedslot.access.reach import fit_bursts, pull_only
from fedslot.fleet import Availability, Fleet
from fedslot.messages import Grant, Receipt, Time, UEs
from fedslot.scenario import Scenario
from fedslot.support.errors import RefusedError, shorten
from fedslot.support.rng import OUTAGE, stream

if TYPE_CHECKING:
    from fedslot.rounds.round import Snapshot


@dataclass(frozen=True, eq=False)
class Links:
    """The links of the UEs of a scenario.

    bursts: (K,) uplink slots that an update of each UE takes; None: one. outage: (K,) probability that a transmission
    is lost; None: none is. duty_cycle: share of the time in which a UE may send; None: any. availability: when UEs are
    there; None: always. joules: energy of each UE; None: no limit.
    """

    seed: int = 0
    ues: int = 0
    bursts: UEs | None = None
    outage: NDArray[np.float64] | None = None
    duty_cycle: float | None = None
    availability: Availability | None = None
    joules: float | None = None

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, radio: Radio) -> Links:
        """Return the links of a fleet."""
        bursts, outage, availability = radio.bursts(fleet.rates), fleet.outage, scenario.fleet.availability
        return cls(
            scenario.seed,
            fleet.ues,
            bursts if (bursts > 1).any() else None,
            outage if outage.any() else None,
            scenario.radio.duty_cycle,
            None if availability is None else availability.make(fleet.ues, scenario.seed, radio.slot_seconds),
            scenario.radio.joules_per_ue,
        )

    @property
    def limits(self) -> bool:
        """Whether UEs may be away, or without energy."""
        return self.availability is not None or self.joules is not None

    def fails(self, round: int) -> Callable[[UEs], NDArray[np.bool_]] | None:
        """Return the function that tells whether the transmissions of UEs (n,) in a round are lost, (n,)."""
        outage = self.outage
        if outage is None:
            return None
        return lambda ues: np.array(
            [stream(self.seed, OUTAGE, round, ue).random() < outage[ue] for ue in ues.tolist()], dtype=bool
        )

    def pull_heard(self, grant: Grant, now: Snapshot, most: int) -> Grant:
        """Return a grant that pulls only UEs that can be heard; most: slots of a frame."""
        silent = self.silenced(now)
        if silent is None:
            return grant
        owed = set(np.flatnonzero(now.owed).tolist()) if self.limits else set()
        allowed = pull_only(grant, set(np.flatnonzero(~silent).tolist()), owed, most, now.round)
        if self.limits:
            allowed = replace(allowed, left_out=np.setdiff1d(grant.pull, allowed.pull))
        # where no UE may send, its slots stay idle: UEs are silent for a time, which must pass
        return allowed if allowed.uplink_slots(most) else replace(allowed, slots=grant.slots)

    def fit(self, grant: Grant, now: Snapshot, most: int) -> Grant:
        """Return a grant that has as many slots as pulled UEs need; most: slots of a frame."""
        if self.bursts is None:
            return grant
        silent = self.silenced(now)
        fitted = fit_bursts(grant, self.bursts, now.owed if silent is None else now.owed & ~silent, most)
        if grant.left_out is not None and fitted.left_out is not None:
            fitted = replace(fitted, left_out=np.union1d(grant.left_out, fitted.left_out))
        return fitted if fitted.uplink_slots(most) else replace(fitted, slots=grant.slots)

    def silenced(self, now: Snapshot) -> NDArray[np.bool_] | None:
        """Return which UEs (K,) cannot be heard in the next frame; None: all can."""
        absent = self.absent(now.slots_spent, now.energy)
        if not len(now.silent):
            return absent
        silent: NDArray[np.bool_] = now.silent > now.slots_spent
        return silent if absent is None else silent | absent

    def absent(self, time: Time, energy: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Return which UEs (K,) are away or out of energy at a time, in slots; None: none ever is.

        energy: (K,) joules that each UE spent.
        """
        absent = None if self.joules is None else energy >= self.joules
        if self.availability is None:
            return absent
        there = self.availability.at(float(time))
        if not isinstance(there, np.ndarray) or there.dtype != bool or there.shape != (self.ues,):
            part = f"fleet.availability {type(self.availability).__name__}"
            raise RefusedError(f"{part} must return an array ({self.ues},) of booleans from at(), not {shorten(there)}")
        return ~there if absent is None else ~there | absent

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
