"""Seconds and joules of a frame: how long the slots of the radio are, how many bits they carry, what they cost a UE.

A slot of a frame carries one update. Slots of the radio may be shorter: an update then takes several of them, which
together are one slot of the frame.

>>> radio = Radio(bits=161_120, bits_per_slot=20_000, slot_ms=5, send_mj=1.0)
>>> radio.update_slots, radio.frame_slots(10), round(radio.slot_seconds, 3)
(9, 99, 0.045)
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from fedslot.support.checks import check_number
from fedslot.support.errors import InputError

if TYPE_CHECKING:
    from fedslot.planning.planner import FrameSplit

LEAST, MOST = 1e-9, 10**15
"""The smallest and the largest number of bits, milliseconds and millijoules."""


@dataclass(frozen=True)
class Usage:
    """What a frame takes in seconds and in joules of the UEs; None where the radio does not say it.

    frame_seconds: all announced slots. clock_seconds: expected time up to the last received slot, `cost_max`.
    updates_per_second: expected received updates by clock_seconds.
    energy_mj: expected energy of all UEs in a frame; energy_mj_per_update: of it, per received update.
    updates_per_joule: the inverse. These two are None if no update is received, or for free.
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
        for field in ("bits", "bits_per_slot", "downlink_bits", "slot_ms"):
            value = getattr(self, field)
            if value is not None and not LEAST <= value <= MOST:
                raise InputError(field, value, f"a number from {LEAST:g} to {MOST:,}")
        for field in ("send_mj", "listen_mj"):
            value = getattr(self, field)
            if value is not None:
                check_number(field, value, 0, MOST)
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

    def usage(self, split: FrameSplit, listeners: float) -> Usage:
        """Return what a frame takes.

        Every listener listens to the downlink, and to nothing else. A pulled UE sends once if it is ready, a contender
        once, or once per copy on coded channels, whether it is received or not. Training is not counted.

        listeners: number of UEs that listen to the downlink.
        """
        received, frame, clock, energy = split.expected_received, None, None, None
        if self.slot_ms is not None:
            frame = self.frame_slots(split.pull + split.push) * self.slot_ms / 1000
            clock = self.frame_slots(split.expected_cost_max - 1) * self.slot_ms / 1000
        if self.send_mj is not None:
            sent = received - split.expected_received_push + split.expected_sent
            energy = listeners * self.downlink_slots * self.listen_mj + sent * self.update_slots * self.send_mj
        return Usage(
            frame_seconds=frame,
            clock_seconds=clock,
            updates_per_second=None if clock is None else received / clock,
            energy_mj=energy,
            energy_mj_per_update=None if energy is None or not received else energy / received,
            updates_per_joule=None if not energy or not received else 1000 * received / energy,
        )


NO_RADIO = Radio()
"""A radio of which nothing is known."""
