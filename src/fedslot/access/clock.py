"""The clock: what a frame costs in slots, in seconds and in joules, computed from what happened in it.

The simulator, deployments and the planner share it. The unit of time is the slot: the time of an update in full
precision. An uplink slot of a frame carries one update, so it is shorter if updates are compressed. Slots of the radio
may be shorter still: an update then takes several of them, which together are one uplink slot of the frame.

Energy of the UEs: in each frame, all that are there listen to the downlink alone. Each transmission costs
the energy of sending, collided ones and each copy on coded channels included; a UE that is not ready sends nothing.
UEs that sent, and UEs that were pulled but not ready, have trained: their computing counts if its time is known; in
asynchronous mode, all trainings count when they begin, whether their updates are ever received or not. The energy of
slots in which the PS asks UEs before a frame is not counted.

>>> radio = Radio(bits=161_120, bits_per_slot=20_000, slot_ms=5, send_mj=1.0)
>>> radio.update_slots, radio.frame_slots(10), round(radio.slot_seconds, 3)
(9, 99, 0.045)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedslot.compression import Shapes
from fedslot.messages import Receipt, Time, UEs, tidy
from fedslot.support.checks import is_number, is_whole
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from fedslot.scenario import Scenario

CostRule = Callable[[Receipt], Time]
"""Maps what happened in a frame to the slots that it spent."""


def cost_max(receipt: Receipt) -> Time:
    """Return overhead, downlink, and uplink slots up to the last received: the time of a frame by the clock."""
    return receipt.time(int(max(receipt.received_slots, default=0)))


def cost_frame(receipt: Receipt) -> Time:
    """Return overhead, downlink, and all announced uplink slots, whether anything was received in them or not."""
    return receipt.time(receipt.slots)


def cost_sum(receipt: Receipt) -> Time:
    """Return the times of the received UEs, overhead + slot + 1, as in the paper's Fig. 6. It rewards collisions."""
    slots, before = receipt.received_slots, receipt.overhead + receipt.downlink_length + receipt.wait
    return tidy(receipt.uplink_length * int(slots.sum()) + len(slots) * before)


LEAST, MOST = 1e-9, 10**15
"""The smallest number of bits and milliseconds, and the largest of these and of millijoules."""


@dataclass(frozen=True)
class Usage:
    """What a frame takes in seconds and in joules of the UEs; None where the radio does not say it.

    frame_slots: all announced slots, and clock_slots: expected time up to the last received one, both with the downlink
    and in slots of updates in full precision. frame_seconds, clock_seconds: the same in seconds.
    updates_per_second: expected received updates by clock_seconds. energy_mj: expected energy of all UEs in a frame.
    energy_mj_per_update, updates_per_joule: of received updates; None if there are none, or for free.
    """

    frame_slots: float
    clock_slots: float
    frame_seconds: float | None
    clock_seconds: float | None
    updates_per_second: float | None
    energy_mj: float | None
    energy_mj_per_update: float | None
    updates_per_joule: float | None

    def as_dict(self) -> dict[str, float | None]:
        """Return plain numbers, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Radio:
    """The slots of a radio.

    bits: of an update. bits_per_slot: of an uplink slot of the radio. downlink_bits: of a downlink slot, by default the
    same. Without bits_per_slot, a slot is as long as an update in full precision takes.
    slot_ms: length of a slot of the radio, in ms.
    send_mj, listen_mj: energy of a UE for a slot of the radio in which it sends, or listens, in mJ.
    full_bits: of an update in full precision, by default `bits`. model_bits: of the model that the downlink carries, by
    default full_bits.

    >>> radio = Radio(bits=1000, full_bits=16_000)  # updates are compressed to a sixteenth
    >>> radio.uplink_length, radio.downlink_length, radio.frame_slots(10)
    (0.0625, 1, 1.625)
    """

    bits: int = 1
    bits_per_slot: float | None = None
    downlink_bits: float | None = None
    slot_ms: float | None = None
    send_mj: float | None = None
    listen_mj: float = 0.0
    full_bits: int | None = None
    model_bits: int | None = None

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            least = 0 if field in ("send_mj", "listen_mj") else LEAST
            if value is not None and not (is_number(value) and least <= value <= MOST):
                raise InputError(field, value, f"a number from {least:g} to {MOST:,}")
        if self.bits_per_slot is None and self.downlink_bits is not None:
            raise InputError("downlink_bits", self.downlink_bits, "left out without bits_per_slot")

    @property
    def update_slots(self) -> int:
        """Slots of the radio that an update takes, ceil(bits / bits_per_slot); 1 if it defines the slot."""
        return self._radio_slots(self.bits, self.bits_per_slot)

    @property
    def full_slots(self) -> int:
        """Slots of the radio that an update in full precision takes."""
        return self._radio_slots(self.full_bits or self.bits, self.bits_per_slot)

    @property
    def downlink_slots(self) -> int:
        """Slots of the radio that the downlink takes: it carries the model."""
        return self._radio_slots(self._model_bits, self.downlink_bits or self.bits_per_slot)

    @property
    def uplink_length(self) -> Time:
        """Length of an uplink slot of the frame, which carries an update, in slots."""
        return self._length(self.bits, self.update_slots)

    @property
    def downlink_length(self) -> Time:
        """Length of the downlink, in slots."""
        return self._length(self._model_bits, self.downlink_slots)

    @property
    def slot_seconds(self) -> float | None:
        """Length of a slot, the time of an update in full precision."""
        return None if self.slot_ms is None else self.full_slots * self.slot_ms / 1000

    def bursts(self, rates: NDArray[np.float64]) -> UEs:
        """Return the uplink slots of the frame that an update takes at rates (K,) relative to that of the radio.

        >>> Radio().bursts(np.array([1.0, 0.5, 0.3])).tolist()
        [1, 2, 4]
        """
        if self.bits_per_slot is None:
            needed = np.ceil(1 / rates)
        else:
            needed = np.ceil(np.ceil(self.bits / (self.bits_per_slot * rates)) / self.update_slots)
        return needed.astype(np.int64)

    def time(self, uplink: int, downlinks: int = 0) -> Time:
        """Return the time of downlinks and uplink slots of the frame, in slots."""
        return tidy(downlinks * self.downlink_length + uplink * self.uplink_length)

    def frame_slots(self, uplink: float, downlinks: int = 1) -> float:
        """Return the slots of the radio in a frame of `uplink` slots, each of which carries an update."""
        return downlinks * self._air(self._model_bits, self.downlink_slots) + uplink * self._update_air

    def uplink_slots_in(self, radio_slots: float) -> int:
        """Return the most uplink slots, each for an update, of a frame of at most `radio_slots` slots of the radio."""
        return math.floor((radio_slots - self.frame_slots(0)) / self._update_air)

    def scaled(self, factor: float) -> Radio:
        """Return the same radio with updates of another size; the model and the length of a slot stay as they are."""
        return replace(self, bits=math.ceil(self.bits * factor), full_bits=self.full_bits or self.bits)

    def seconds(self, uplink: float, downlinks: int = 1) -> float | None:
        """Return the time of uplink slots of the frame, and of downlinks; None if the length of a slot is not given."""
        if self.slot_ms is None:
            return None
        return self.frame_slots(uplink, downlinks) * self.slot_ms / 1000

    def energy_mj(self, listened: Any, sent: Any) -> Any:
        """Return the energy of UEs, numbers or arrays, that listened to downlinks and sent updates; None if not given.

        listened: number of downlinks, counted for each UE. sent: number of uplink slots in which it sent.
        """
        if self.send_mj is None:
            return None
        downlink = self._air(self._model_bits, self.downlink_slots)
        return listened * downlink * self.listen_mj + sent * self._update_air * self.send_mj

    @property
    def _model_bits(self) -> int:
        return self.model_bits or self.full_bits or self.bits

    @property
    def _update_air(self) -> Time:
        return self._air(self.bits, self.update_slots)

    def _air(self, bits: int, radio_slots: int) -> Time:
        """Return the slots of the radio that bits take; a part of one if a slot is made for a full update."""
        return ratio(bits, self.full_bits or self.bits) if self.bits_per_slot is None else radio_slots

    def _length(self, bits: int, radio_slots: int) -> Time:
        """Return how long bits take, in slots."""
        return ratio(self._air(bits, radio_slots), self.full_slots)

    def _radio_slots(self, bits: int, rate: float | None) -> int:
        return 1 if rate is None else math.ceil(bits / rate)

    def usage(self, split: Any, listeners: float) -> Usage:
        """Return what a frame is expected to take, by the energy model of this module; training is not counted.

        split: the `FrameSplit` of a plan. listeners: number of UEs that listen to the downlink.
        """
        received, last = split.expected_received, split.expected_cost_max - 1
        clock = self.seconds(last)
        energy = self.energy_mj(listeners, received - split.expected_received_push + split.expected_sent)
        return Usage(
            frame_slots=float(self.downlink_length + self.uplink_length * (split.pull + split.push)),
            clock_slots=float(self.downlink_length + self.uplink_length * last),
            frame_seconds=self.seconds(split.pull + split.push),
            clock_seconds=clock,
            updates_per_second=None if clock is None else received / clock,
            energy_mj=energy,
            energy_mj_per_update=None if energy is None or not received else energy / received,
            updates_per_joule=None if not energy or not received else 1000 * received / energy,
        )


def ratio(part: Time, whole: int) -> Time:
    """Return a part of a whole, as a whole number if it is one."""
    return int(part // whole) if part % whole == 0 else part / whole


NO_RADIO = Radio()
"""A radio of which nothing is known."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What a frame cost.

    max, frame, sum: slots by the rules `cost_max`, `cost_frame` and `cost_sum`. spent: by the scenario's cost rule.
    seconds: time of the slots that were spent. joules: energy of all UEs, and joules_by_ue: (K,) of each.
    These are None where the scenario does not give the length of a slot, or the energies.
    """

    max: Time
    frame: Time
    sum: Time
    spent: Time
    seconds: float | None
    joules: float | None
    joules_by_ue: NDArray[np.float64] | None


@dataclass(frozen=True)
class Clock:
    """Computes what frames cost.

    ues: UEs that listen to the downlink, K. rule: maps a receipt to the slots that its frame spends.
    radio: the length of slots, and energies. compute_joules: energy of a UE that computes for the time of a slot of the
    frame; 0 if computing is not counted.
    """

    ues: int
    rule: CostRule = cost_max
    radio: Radio = NO_RADIO
    compute_joules: float = 0.0

    @classmethod
    def of(cls, scenario: Scenario, shapes: Shapes) -> Clock:
        """Return the clock of a scenario whose model has tensors of these shapes."""
        rule, computing = scenario.cost_rule.bind(), scenario.fleet.computing
        compute_joules = 0.0 if computing is None else (scenario.radio.compute_joules or 0.0) * computing.slot
        return cls(scenario.data.ues, rule, radio_of(scenario, shapes), compute_joules)

    def timed(self, receipt: Receipt) -> Receipt:
        """Return a receipt with the lengths of the slots of its frame."""
        radio = self.radio
        return replace(receipt, uplink_length=radio.uplink_length, downlink_length=radio.downlink_length)

    def cost(
        self,
        receipt: Receipt,
        ready: NDArray[np.float64] | None = None,
        absent: NDArray[np.bool_] | None = None,
    ) -> Cost:
        """Return what a frame cost.

        ready: (K,) computing time of each UE in slots, if computing is counted. absent: (K,) UEs that do not listen.
        """
        receipt = self.timed(receipt)
        spent, computed = self._spent(receipt), np.zeros(self.ues if self.compute_joules else 0)
        sent = receipt.senders
        if self.compute_joules and ready is not None:
            computed[receipt.training] = ready[receipt.training]
        joules = self.joules_by_ue(receipt.downlinks, sent, computed, absent)
        return Cost(
            cost_max(receipt),
            cost_frame(receipt),
            cost_sum(receipt),
            spent,
            self.seconds(spent, receipt.downlinks),
            None if joules is None else float(joules.sum()),
            joules,
        )

    def seconds(self, spent: Time, downlinks: int = 1) -> float | None:
        """Return the seconds of slots that a frame spent; None if the length of a slot is not given."""
        radio = self.radio
        if radio.uplink_length == radio.downlink_length == 1:
            return radio.seconds(spent - downlinks, downlinks)
        return None if radio.slot_seconds is None else spent * radio.slot_seconds

    def joules_by_ue(
        self,
        downlinks: int,
        sent: UEs,
        computed: NDArray[np.float64],
        absent: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64] | None:
        """Return the energy of each UE, (K,); None if energies are not given.

        sent: the UE of each uplink slot in which one sent.
        computed: (K,) computing time of each UE in slots; (0,) if it does not count. absent: (K,) UEs that do not
        listen; None: all do.
        """
        if self.radio.send_mj is None:
            return None
        listened = downlinks if absent is None else downlinks * ~absent
        joules = self.radio.energy_mj(listened, np.bincount(sent, minlength=self.ues)) / 1000
        return np.asarray(joules + self.compute_joules * computed if self.compute_joules else joules)

    def _spent(self, receipt: Receipt) -> Time:
        """Return the slots by the cost rule; refuse what a rule of one's own returns if it is no number of slots."""
        if self.rule in (cost_max, cost_frame) or not receipt.slots:  # without a frame, there is nothing but the asking
            return cost_frame(receipt) if self.rule is cost_frame else cost_max(receipt)
        name = getattr(self.rule, "__name__", "of your own")
        try:
            spent = self.rule(replace(receipt, attempts=None))
        except Exception as error:
            raise RefusedError(f"cost rule {name} failed ({type(error).__name__}: {error})") from error
        if not isinstance(self.radio.uplink_length, int) or not isinstance(self.radio.downlink_length, int):
            if not is_number(spent) or not 0 < spent <= MOST:
                raise RefusedError(f"cost rule {name} returned {spent!r}, not a number of slots above 0")
            return tidy(float(spent))
        if not is_whole(spent) or not 1 <= spent <= MOST:
            raise RefusedError(f"cost rule {name} returned {spent!r}, not a whole number of slots, at least 1")
        return int(spent)


def radio_fields(scenario: Scenario) -> dict[str, tuple[float, str]]:
    """Return the fields of a `Radio` that a scenario gives, in ms and mJ, each with its key in the scenario."""
    milli = {"slot_ms": "slot_seconds", "send_mj": "send_joules", "listen_mj": "listen_joules"}
    fields = {}
    for name in ("slot_ms", "bits_per_slot", "downlink_bits", "send_mj", "listen_mj"):
        key = milli.get(name, name)
        value = getattr(scenario.radio, key)
        if value is not None:
            fields[name] = (1000 * value if name in milli else value), f"radio.{key}"
    return fields


def radio_of(scenario: Scenario, shapes: Shapes) -> Radio:
    """Return the radio of a scenario whose model has tensors of these shapes."""
    fields: dict[str, Any] = {name: value for name, (value, _) in radio_fields(scenario).items()}
    return with_computing_slot(Radio(**sizes_of(scenario, shapes), **fields), scenario)


def sizes_of(scenario: Scenario, shapes: Shapes) -> dict[str, int]:
    """Return the fields of a `Radio` that say how many bits updates and models have."""
    full_bits = sum(map(math.prod, shapes)) * scenario.radio.bits_per_parameter
    parts = {"bits": scenario.compression, "model_bits": scenario.broadcast_compression}
    bits = {name: full_bits if part is None else 8 * part.make().most_bytes(shapes) for name, part in parts.items()}
    return {"full_bits": full_bits, **bits}


def with_computing_slot(radio: Radio, scenario: Scenario) -> Radio:
    """Return a radio with slots of the length that a scenario's computing times assume, if theirs is not given."""
    if scenario.fleet.computing is None or radio.slot_ms is not None:
        return radio
    return replace(radio, slot_ms=1000 * scenario.fleet.computing.slot / radio.full_slots)
