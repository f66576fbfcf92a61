"""A whole training: packets that are lost, the duty cycle, how long it takes, and what it asks of a battery.

An update is lost if one of its packets is, unless packets are sent again, or more than needed by an erasure code:

>>> link = PacketLoss(loss=0.1)
>>> [float(f"{each.arrives(87):.3g}") for each in (link, PacketLoss(0.1, tries=4), PacketLoss(0.1, coded=18))]
[0.000104, 0.991, 0.992]
>>> link.least_tries(87), link.least_coded(87)
(4, 18)
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from scipy.stats import binom

from fedslot.access.clock import Radio, Usage
from fedslot.planning.planner import FrameSplit
from fedslot.support.checks import check_number, check_whole

GOAL = 0.99
"""Probability with which an update shall arrive, for advice."""
MOST_REPEATED = 1000
"""Most tries, and most coded packets."""


@dataclass(frozen=True)
class PacketLoss:
    """How the packets of an update get through; each is lost independently of the others.

    loss: probability that a packet is lost. tries: how often each is sent at most, until it is acknowledged.
    coded: packets that an erasure code adds: as many as without it suffice, whichever they are.
    outage: probability that all packets of an update are lost together.
    """

    loss: float = 0.0
    tries: int = 1
    coded: int = 0
    outage: float = 0.0

    def __post_init__(self) -> None:
        check_number("packet_loss", self.loss, 0, 0.999)
        check_number("outage", self.outage, 0, 0.999)
        check_whole("tries", self.tries, least=1, most=MOST_REPEATED)
        check_whole("coded", self.coded, least=0, most=MOST_REPEATED)

    def arrives(self, packets: int) -> float:
        """Return the probability that an update of so many packets arrives."""
        lost_for_good = self.loss**self.tries
        return (1 - self.outage) * float(binom.cdf(self.coded, packets + self.coded, lost_for_good))

    def sent(self, packets: int) -> float:
        """Return the expected number of packets that are sent for an update, repeated and coded ones included."""
        return (packets + self.coded) * (1 - self.loss**self.tries) / (1 - self.loss)

    def least_tries(self, packets: int) -> int:
        """Return the fewest tries of each packet, without coded ones, by which updates arrive with 99%."""
        if not self.loss:
            return 1
        return math.ceil(math.log(-math.expm1(math.log(GOAL) / packets)) / math.log(self.loss))

    def least_coded(self, packets: int) -> int | None:
        """Return the fewest coded packets, each sent once, by which updates arrive with 99%; None: over 1000."""
        counts = range(MOST_REPEATED + 1)
        return next((m for m in counts if binom.cdf(m, packets + m, self.loss) >= GOAL), None)

    def on(self, radio: Radio) -> Radio:
        """Return a radio whose uplink slots have room for all packets that are sent for an update, on average."""
        packets, sent = radio.update_slots, math.ceil(self.sent(radio.update_slots) - 1e-9)
        if radio.bits_per_slot is None or sent == packets:
            return radio
        return replace(radio, bits=math.ceil(sent * radio.bits_per_slot), full_bits=radio.full_bits or radio.bits)


@dataclass(frozen=True)
class TrainingPlan:
    """What is asked of a whole training. None: not known, so that the answers that need it are left out.

    rounds: number of frames. duty_cycle: share of the time in which a UE may send.
    train_mj: energy of a UE to train an update, in mJ. sleep_mw: its power while it does nothing else, in mW.
    battery_wh: energy of its battery, in Wh.
    """

    rounds: float | None = None
    duty_cycle: float | None = None
    train_mj: float = 0.0
    sleep_mw: float = 0.0
    battery_wh: float | None = None

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check_number("rounds", self.rounds, 1, 1e15)
        if self.duty_cycle is not None:
            check_number("duty_cycle", self.duty_cycle, 1e-9, 1)
        for name in ("train_mj", "sleep_mw"):
            check_number(name, getattr(self, name), 0, 1e15)
        if self.battery_wh is not None:
            check_number("battery_wh", self.battery_wh, 1e-9, 1e9)

    def period(self, radio: Radio, usage: Usage, split: FrameSplit, ues: float) -> float | None:
        """Return the seconds between frames: what they take, or the least by the duty cycle, if UEs take turns."""
        silence, sent = self._silence(radio), split.expected_received - split.expected_received_push
        if usage.clock_seconds is None or silence is None or not ues:
            return usage.clock_seconds
        return max(usage.clock_seconds, (sent + split.expected_sent) * silence / ues)

    def _silence(self, radio: Radio) -> float | None:
        air = radio.seconds(1, downlinks=0)
        return None if air is None or self.duty_cycle is None else air / self.duty_cycle

    def demand(self, radio: Radio, usage: Usage, split: FrameSplit, ues: float, arrives: float) -> Demand:
        """Return what a training takes with frames of a split. ues: among which sending and training are even.

        arrives: probability that an update that did not collide arrives.
        """
        rounds, period = self.rounds, self.period(radio, usage, split, ues)
        if rounds is not None and split.expected_frames is not None:  # the budget of slots may end it before
            rounds = min(rounds, split.expected_frames)
        pushed = split.expected_received_push
        trained = split.pull + (pushed / split.success_probability if pushed else split.expected_sent)
        energy = None if usage.energy_mj is None or not ues else (usage.energy_mj + trained * self.train_mj) / ues
        power = None if energy is None or period is None else energy / period + self.sleep_mw
        battery = None if self.battery_wh is None or not power else 3.6e6 * self.battery_wh / power
        seconds = None if period is None or rounds is None else rounds * period
        return Demand(
            arrives=arrives,
            received_after_losses=arrives * split.expected_received,
            silence_seconds=self._silence(radio),
            period_seconds=period,
            training_hours=None if seconds is None else seconds / 3600,
            ue_joules=None if seconds is None or power is None else seconds * power / 1000,
            battery_percent=None if seconds is None or battery is None else 100 * seconds / battery,
            battery_days=None if battery is None else battery / 86_400,
        )


NO_LOSS, NOTHING_ASKED = PacketLoss(), TrainingPlan()


@dataclass(frozen=True)
class Demand:
    """What a whole training takes; None where it is not known.

    arrives: probability that an update that did not collide arrives. received_after_losses: updates per frame.
    silence_seconds: after which a UE may send again, by the duty cycle.
    period_seconds: between two frames, at least: so that UEs that take turns keep to the duty cycle. In a run, they
        also wait for a frame after their silence.
    training_hours: of all frames. ue_joules: of a UE in this time, with training and sleep; battery_percent: of its
    battery. battery_days: until the battery is empty, if trainings follow one another.
    """

    arrives: float
    received_after_losses: float
    silence_seconds: float | None
    period_seconds: float | None
    training_hours: float | None
    ue_joules: float | None
    battery_percent: float | None
    battery_days: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)
