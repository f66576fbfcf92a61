"""The clock: what a frame costs in slots, in seconds and in joules, computed from what happened in it.

The simulator, deployments and the planner share it. A slot of a frame carries one update. Slots of the radio may be
shorter: an update then takes several of them, which together are one slot of the frame.

Energy of the UEs: in each frame, all of them listen to the downlink, and to nothing else. Each transmission costs the
energy of sending, collided ones and each copy on coded channels included; a pulled UE that is not ready sends nothing.
UEs that sent, and UEs that were pulled but not ready, have trained: their computing counts if its time is known. The
energy of slots in which the PS asks UEs before a frame is not counted.

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

from fedslot.messages import Receipt, UEs
from fedslot.support.checks import is_number, is_whole
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from fedslot.scenario import Scenario

CostRule = Callable[[Receipt], int]
"""Maps what happened in a frame to the slots that it spent, at least 1."""


def cost_max(receipt: Receipt) -> int:
    """Return overhead, downlink slot, and uplink slots up to the last received: the time of a frame by the clock."""
    return receipt.overhead + receipt.downlinks + int(max(receipt.received_slots, default=0))


def cost_frame(receipt: Receipt) -> int:
    """Return overhead, downlink slot, and all announced uplink slots, whether anything was received in them or not."""
    return receipt.overhead + receipt.downlinks + receipt.slots


def cost_sum(receipt: Receipt) -> int:
    """Return overhead + slot + 1 summed over the received UEs, as in the paper's Fig. 6. It rewards collisions."""
    slots = receipt.received_slots
    return int(slots.sum()) + len(slots) * (receipt.overhead + 1)


LEAST, MOST = 1e-9, 10**15
"""The smallest number of bits and milliseconds, and the largest of these and of millijoules."""


@dataclass(frozen=True)
class Usage:
    """What a frame takes in seconds and in joules of the UEs; None where the radio does not say it.

    frame_seconds: all announced slots. clock_seconds: expected time up to the last received slot, `cost_max`.
    updates_per_second: expected received updates by clock_seconds. energy_mj: expected energy of all UEs in a frame.
    energy_mj_per_update, updates_per_joule: of received updates; None if there are none, or for free.
    """

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

    bits: of an update, and of the model that the downlink carries. bits_per_slot: of an uplink slot of the radio.
    downlink_bits: of a downlink slot, by default the same. Without bits_per_slot, updates and model take one slot each.
    slot_ms: length of a slot of the radio, in ms.
    send_mj, listen_mj: energy of a UE for a slot of the radio in which it sends, or listens, in mJ.
    """

    bits: int = 1
    bits_per_slot: float | None = None
    downlink_bits: float | None = None
    slot_ms: float | None = None
    send_mj: float | None = None
    listen_mj: float = 0.0

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            least = 0 if field in ("send_mj", "listen_mj") else LEAST
            if value is not None and not (is_number(value) and least <= value <= MOST):
                raise InputError(field, value, f"a number from {least:g} to {MOST:,}")
        if self.bits_per_slot is None and self.downlink_bits is not None:
            raise InputError("downlink_bits", self.downlink_bits, "left out without bits_per_slot")

    @property
    def update_slots(self) -> int:
        """Slots of the radio that an update takes, ceil(bits / bits_per_slot)."""
        return 1 if self.bits_per_slot is None else math.ceil(self.bits / self.bits_per_slot)

    @property
    def downlink_slots(self) -> int:
        """Slots of the radio that the downlink takes: it carries the model."""
        rate = self.downlink_bits or self.bits_per_slot
        return 1 if rate is None else math.ceil(self.bits / rate)

    @property
    def slot_seconds(self) -> float | None:
        """Length of a slot of a frame, which carries an update."""
        return None if self.slot_ms is None else self.update_slots * self.slot_ms / 1000

    def frame_slots(self, uplink: float) -> float:
        """Return the slots of the radio in a frame of `uplink` slots, each of which carries an update."""
        return self.downlink_slots + self.update_slots * uplink

    def uplink_slots_in(self, radio_slots: float) -> int:
        """Return the most uplink slots, each for an update, of a frame of at most `radio_slots` slots of the radio."""
        return math.floor((radio_slots - self.downlink_slots) / self.update_slots)

    def scaled(self, factor: float) -> Radio:
        """Return the same radio with updates and models of another size."""
        return replace(self, bits=math.ceil(self.bits * factor))

    def seconds(self, uplink: float, downlinks: int = 1) -> float | None:
        """Return the time of uplink slots of the frame, and of downlinks; None if the length of a slot is not given."""
        if self.slot_ms is None:
            return None
        return (self.frame_slots(uplink) - (1 - downlinks) * self.downlink_slots) * self.slot_ms / 1000

    def energy_mj(self, listened: Any, sent: Any) -> Any:
        """Return the energy of UEs, numbers or arrays, that listened to downlinks and sent updates; None if not given.

        listened: number of downlinks, counted for each UE. sent: number of transmissions of an update.
        """
        if self.send_mj is None:
            return None
        return listened * self.downlink_slots * self.listen_mj + sent * self.update_slots * self.send_mj

    def usage(self, split: Any, listeners: float) -> Usage:
        """Return what a frame is expected to take, by the energy model of this module; training is not counted.

        split: the `FrameSplit` of a plan. listeners: number of UEs that listen to the downlink.
        """
        received, clock = split.expected_received, self.seconds(split.expected_cost_max - 1)
        energy = self.energy_mj(listeners, received - split.expected_received_push + split.expected_sent)
        return Usage(
            frame_seconds=self.seconds(split.pull + split.push),
            clock_seconds=clock,
            updates_per_second=None if clock is None else received / clock,
            energy_mj=energy,
            energy_mj_per_update=None if energy is None or not received else energy / received,
            updates_per_joule=None if not energy or not received else 1000 * received / energy,
        )


NO_RADIO = Radio()
"""A radio of which nothing is known."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What a frame cost.

    max, frame, sum: slots by the rules `cost_max`, `cost_frame` and `cost_sum`. spent: by the scenario's cost rule.
    seconds: time of the slots that were spent. joules: energy of all UEs, and joules_by_ue: (K,) of each.
    These are None where the scenario does not give the length of a slot, or the energies.
    """

    max: int
    frame: int
    sum: int
    spent: int
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
    def of(cls, scenario: Scenario, parameters: int) -> Clock:
        """Return the clock of a scenario whose model has a number of parameters."""
        rule, section = scenario.cost_rule.bind(), scenario.radio
        bits = 1 if section.bits_per_slot is None else parameters * section.bits_per_parameter
        computing = scenario.fleet.computing
        compute_joules = 0.0 if computing is None else (section.compute_joules or 0.0) * computing.slot
        return cls(scenario.data.ues, rule, radio_of(scenario, bits), compute_joules)

    def cost(self, receipt: Receipt, ready: NDArray[np.float64] | None = None) -> Cost:
        """Return what a frame cost. ready: (K,) computing time of each UE in slots, if computing is counted."""
        spent, computed = self._spent(receipt), np.zeros(self.ues if self.compute_joules else 0)
        sent = np.concatenate([receipt.pulled, _senders(receipt)])
        if self.compute_joules and ready is not None:
            trained = np.concatenate([sent, receipt.wasted])
            computed[trained] = ready[trained]
        joules = self.joules_by_ue(receipt.downlinks, sent, computed)
        return Cost(
            cost_max(receipt),
            cost_frame(receipt),
            cost_sum(receipt),
            spent,
            self.radio.seconds(spent - receipt.downlinks, receipt.downlinks),
            None if joules is None else float(joules.sum()),
            joules,
        )

    def joules_by_ue(self, downlinks: int, sent: UEs, computed: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the energy of each UE, (K,); None if energies are not given.

        sent: the UE of each transmission. computed: (K,) computing time of each UE in slots; (0,) if it does not count.
        """
        if self.radio.send_mj is None:
            return None
        joules = self.radio.energy_mj(downlinks, np.bincount(sent, minlength=self.ues)) / 1000
        return np.asarray(joules + self.compute_joules * computed if self.compute_joules else joules)

    def _spent(self, receipt: Receipt) -> int:
        """Return the slots by the cost rule; refuse what a rule of one's own returns if it is no number of slots."""
        if self.rule in (cost_max, cost_frame) or not receipt.slots:  # without a frame, there is nothing but the asking
            return cost_frame(receipt) if self.rule is cost_frame else cost_max(receipt)
        name = getattr(self.rule, "__name__", "of your own")
        try:
            spent = self.rule(replace(receipt, attempts=None))
        except Exception as error:
            raise RefusedError(f"cost rule {name} failed ({type(error).__name__}: {error})") from error
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


def radio_of(scenario: Scenario, bits: int) -> Radio:
    """Return the radio of a scenario; bits: of an update."""
    fields = {name: value for name, (value, _) in radio_fields(scenario).items()}
    return with_computing_slot(Radio(bits=bits, **fields), scenario)


def with_computing_slot(radio: Radio, scenario: Scenario) -> Radio:
    """Return a radio with slots of the length that a scenario's computing times assume, if theirs is not given."""
    if scenario.fleet.computing is None or radio.slot_ms is not None:
        return radio
    return replace(radio, slot_ms=1000 * scenario.fleet.computing.slot / radio.update_slots)


def _senders(receipt: Receipt) -> UEs:
    """Return the UE of each pushed copy; without a record of attempts, one copy of each UE that pushed."""
    if receipt.attempts is None:
        return np.concatenate([receipt.pushed, receipt.collided])
    return np.repeat(receipt.attempts.ues, np.count_nonzero(receipt.attempts.slots, axis=1))
