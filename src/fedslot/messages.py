"""The messages between the parts of a round: a strategy makes a `Grant`, the access layer turns it into a `Receipt`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

UEs = NDArray[np.int64]
Time = int | float
"""A number of slots: whole, unless updates are compressed to a part of a slot."""
Attribute = Literal["noise", "samples", "loss", "norm", "age", "value"]
TRAINED: tuple[Attribute, ...] = ("loss", "norm")  # attributes that a UE knows once it has trained
OWN: tuple[Attribute, ...] = ("noise", "samples", *TRAINED)  # attributes that a UE knows by itself


@dataclass(frozen=True, eq=False)
class Merit:
    """A condition that backlogged UEs check themselves: only those whose attribute is in the range contend.

    attribute: `noise` (standard deviation of the noise on the UE's update), `samples` (size of its data share), `loss`
        (mean loss of the global model on its data share) and `norm` (Euclidean norm of the change of the model by its
        local training) are what a UE knows of itself; `age` (frames since its last reception) and `value` are what the
        PS tells it.
    least, most: the range, both ends included. NaN is in no range.
    told: (K,) what the PS told each UE, for `age` and `value`; None for the others.

    >>> Merit("noise", most=0.02).holds(np.array([0.01, 0.03, np.nan])).tolist()
    [True, False, False]
    """

    attribute: Attribute
    least: float = -math.inf
    most: float = math.inf
    told: NDArray[np.float64] | None = None

    def holds(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return for each value of the attribute whether it is in the range."""
        inside: NDArray[np.bool_] = (values >= self.least) & (values <= self.most)
        return inside


@dataclass(frozen=True)
class Grant:
    """The announcement of the PS in the downlink slot.

    pull: UEs in the order of their reserved slots, one for each unless its link is slow.
    push: whether the remaining uplink slots are open to contention (else they stay idle).
    probability: access barring, the probability with which a UE that would contend does so. None: the scenario's
        `push.probability`. `auto`: the PS controls it; only strategies with `needs_load` may announce this.
    slots: uplink slots of this frame, at most the scenario's `frame.slots`; None: all of these.
    merit: a condition that UEs must meet to contend; None: all may.
    overhead: slots, uplink and downlink, that the PS spent on asking UEs before this frame; `PS.schedule` sets it.
    wait: slots between the downlink and the first uplink slot, in which UEs train; `PS.schedule` sets it.
    order: in asynchronous mode, UEs that shall train from this broadcast, and are pulled once they are ready; late:
        UEs that were chosen, but cannot be ready in time. `PS.schedule` sets both.
    bursts: (K,) uplink slots that an update of each UE takes, and left_out: UEs that were chosen, but whose updates do
        not fit into the frame; `PS.schedule` sets both. None: each update takes one.
    """

    pull: UEs
    push: bool = False
    probability: float | Literal["auto"] | None = None
    slots: int | None = None
    merit: Merit | None = None
    overhead: int = 0
    wait: int = 0
    order: UEs | None = field(default=None, compare=False)
    late: UEs | None = field(default=None, compare=False)
    bursts: UEs | None = field(default=None, compare=False)
    left_out: UEs | None = field(default=None, compare=False)

    def uplink_slots(self, most: int) -> int:
        """Return the number of uplink slots that are announced, where a frame may have `most`."""
        return most if self.slots is None else self.slots

    @property
    def reserved(self) -> UEs:
        """The last reserved slot of each pulled UE, from 1."""
        return np.arange(1, len(self.pull) + 1) if self.bursts is None else np.cumsum(self.bursts[self.pull])

    @property
    def pull_slots(self) -> int:
        """Number of reserved slots."""
        return len(self.pull) if self.bursts is None else int(self.bursts[self.pull].sum())

    @property
    def barring(self) -> float:
        """The probability as a number: 1 if no PS has set it yet."""
        return 1.0 if self.probability is None or self.probability == "auto" else self.probability


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of the received updates, in the order of `Receipt.received`.

    noise: (Y,) estimated standard deviation of the noise on each update's parameters.
    products: (Y, Y) inner products of the updates as changes of the layers' outputs, on samples of the PS.
    noise_gain: expected inner product of an update with itself that is nothing but noise of standard deviation 1.
    accepted: (Y,) which updates the aggregation used, if not all.
    """

    noise: NDArray[np.float64]
    products: NDArray[np.float64]
    noise_gain: float
    accepted: NDArray[np.bool_] | None = None

    def of(self, rows: NDArray[np.bool_]) -> Measured:
        """Return the measurements of some of the updates (Y,)."""
        accepted = None if self.accepted is None else self.accepted[rows]
        return Measured(self.noise[rows], self.products[np.ix_(rows, rows)], self.noise_gain, accepted)


@dataclass(frozen=True, eq=False)
class Attempts:
    """The pushes of a frame, whether received or not. A receiver cannot tell who collided where, nor who was barred.

    ues: (N,) UEs that sent. slots: (N, C) slots in which they did, counted over the whole frame, 0 where there is none.
    barred: UEs with an update to push that were kept from contending by access barring or by the grant's merit.
    """

    ues: UEs
    slots: UEs
    barred: UEs


@dataclass(frozen=True)
class Receipt:
    """The outcome of a frame. Slots count uplink slots from 1; an update received in slot z costs overhead + z + 1.

    pulled, pull_slots: UEs received in their reserved slots, and those slots; of several slots of a UE, the last.
    pushed, push_slots: UEs received by contention, and their slots (counted over the whole frame).
    collided: UEs that pushed and were not received.
    wasted: UEs that were pulled but not ready by their slot. lost: UEs that were pulled, and whose transmission failed.
    wasted_slots, lost_slots: their reserved slots.
    slots: uplink slots that were announced.
    idle_slots: push slots without a transmission; collided_slots: those with transmissions that were not decoded.
    overhead: slots that the PS spent on asking UEs before the frame. wait: as in the grant.
    open_slots: push slots that were open to contention. probability: that of access barring.
    excess: the PS's estimate of the number of UEs that could have contended, above the number that is best for the
        channel and the open slots; for strategies with `needs_load`, 0 for others.
    reports: numbers that the received UEs report, (Y,) by name in the order of `received`, NaN where a UE reports none;
        those that the strategy names in `needs_reports`.
    uplink_length, downlink_length: of an uplink slot of the frame and of the downlink, in slots.
    bursts: (K,) uplink slots that an update of each UE takes; None: one. Strategies get those of received UEs, 0 of
        others.
    left_out, order, late: as in the grant.
    versions: (Y,) the round whose broadcast each received update was trained from; None: all from this one.
    computing: (Y,) computing times that the received UEs report, in slots, NaN of others; None where none is.
    trained: UEs that began a training in this frame; None: those that sent or were pulled in vain.
    away: UEs on order after the frame, which the PS pulls as soon as they are ready.
    measured: of the received updates, for strategies with `needs_measurements`; None for others, and if there are none.
    attempts: all pushes, for the trace alone; None in the receipts that strategies get.
    """

    pulled: UEs
    pull_slots: UEs
    pushed: UEs
    push_slots: UEs
    collided: UEs
    wasted: UEs
    slots: int
    idle_slots: int = 0
    collided_slots: int = 0
    overhead: int = 0
    open_slots: int = 0
    probability: float = 1.0
    excess: float = 0.0
    reports: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    lost: UEs = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    wasted_slots: UEs | None = None
    lost_slots: UEs | None = None
    uplink_length: Time = 1
    downlink_length: Time = 1
    bursts: UEs | None = None
    left_out: UEs | None = None
    wait: int = 0
    order: UEs | None = None
    late: UEs | None = None
    versions: UEs | None = None
    computing: NDArray[np.float64] | None = None
    trained: UEs | None = None
    away: UEs | None = None
    measured: Measured | None = None
    attempts: Attempts | None = None

    @property
    def received(self) -> UEs:
        """UEs whose update reached the PS, in the order of their slots."""
        return np.concatenate([self.pulled, self.pushed])

    @property
    def contenders(self) -> int:
        """Number of UEs that transmitted in the push slots."""
        return len(self.pushed) + len(self.collided)

    @property
    def senders(self) -> UEs:
        """The UE of each uplink slot in which one sent; without a record of attempts, one slot of each that pushed."""
        pulled = np.concatenate([self.pulled, self.lost])
        if self.bursts is not None:
            pulled = np.repeat(pulled, self.bursts[pulled])
        if self.attempts is None:
            return np.concatenate([pulled, self.pushed, self.collided])
        slots = np.count_nonzero(self.attempts.slots, axis=1)
        return np.concatenate([pulled, np.repeat(self.attempts.ues, slots)])

    @property
    def received_slots(self) -> UEs:
        """The slots of the received UEs, in the same order."""
        return np.concatenate([self.pull_slots, self.push_slots])

    @property
    def downlinks(self) -> int:
        """Downlink slots: one, but none if no uplink slot was announced."""
        return 1 if self.slots else 0

    def time(self, slots: int) -> Time:
        """Return the time of the frame up to one of its uplink slots."""
        return tidy(self.overhead + self.downlinks * self.downlink_length + self.wait + slots * self.uplink_length)

    @property
    def training(self) -> UEs:
        """UEs that began a training for this frame."""
        return np.unique(np.concatenate([self.senders, self.wasted])) if self.trained is None else self.trained


def tidy(time: Time) -> Time:
    """Return a number of slots without the last digits of sums of parts of slots."""
    return time if isinstance(time, int) else round(time, 9)


@dataclass(frozen=True)
class NoState:
    """The state of a strategy or an aggregation without state."""
