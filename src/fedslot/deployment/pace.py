"""Devices that train while others are on the air: what the PS announces to them, and what one of them does.

A device has the clock of `rounds.devices` for its own UE. In seeded frames time is what the PS counts: training takes
as many slots as the scenario says, as in the simulator, and a device that is done earlier waits. In free frames time is
the device's own, and training takes as long as it takes. It cannot be interrupted, so that there an order makes nobody
begin who trains already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from fedslot.deployment.frame import Turn
from fedslot.messages import Grant
from fedslot.rounds.devices import NONE, Devices

ME = np.array([0])
NOBODY = np.empty(0, dtype=np.int64)
ComputingSlots = Callable[[int], float]
"""Returns the slots that a training takes from a version, in seeded frames."""


@dataclass(frozen=True)
class Pace:
    """What an announcement says where frames wait for no training; all fields are plain.

    training: a name of the training; with another one, versions count anew. most: largest age of an update [frames].
    start: slots spent when the broadcast has been heard; None in free frames, in which devices have their own clocks.
    wait: slots from then to the first uplink slot. uplink: length of an uplink slot, in slots.
    order: UEs that shall train from this broadcast.
    """

    training: str
    most: int
    start: int | FiniteFloat | None = None
    wait: int = 0
    uplink: int | FiniteFloat = 1
    order: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Times:
    """The computing times of one UE, as `Devices` asks for them."""

    of: ComputingSlots

    def times(self, version: int) -> NDArray[np.float64]:
        return np.array([self.of(version)])


class OwnWork:
    """What a device trains and holds, by the announcements that it hears.

    ue: the UE. computing: its computing times in seeded frames; None: training takes no time there.
    training: the name of the training in which versions are numbered.
    """

    def __init__(self, ue: int, computing: ComputingSlots | None = None) -> None:
        self.ue, self._computing, self.training = ue, computing, ""
        self._round, self._start = NONE, 0.0
        self._begin_anew(Pace("", 0))

    def _begin_anew(self, pace: Pace) -> None:
        """Begin with nothing, in the training of a pace."""
        self.training, self._sent = pace.training, (NONE, NONE)  # the round in which it sent, and the version
        self._devices = Devices(1, None, pace.most)
        self._work = self._devices.blank()

    def received(self, round: int) -> int | None:
        """Learn that the UE was received in a round, -1: in none; return the version of what it sent then."""
        sent, version = self._sent
        if round != sent or sent == NONE:
            return None
        self._work, self._sent = self._devices.end(self._work, ME, np.array([version])), (NONE, NONE)
        return version

    def hear(self, pace: Pace, round: int, now: float) -> bool:
        """Hear the broadcast of a round; return whether the device begins to train from it.

        now: by the device's own clock.
        """
        if pace.training != self.training:
            self._begin_anew(pace)
        is_free = pace.start is None
        times = _Times(lambda version: math.inf) if is_free else self._computing and _Times(self._computing)
        self._devices = Devices(1, times, pace.most)
        self._round, self._start = round, now if pace.start is None else pace.start
        grant = Grant(NOBODY, order=ME if self.ue in pace.order else None)
        self._work, begun = self._devices.begin(self._work, grant, round, self._start)
        return begun is not None and bool(len(begun))

    def drop(self, version: int) -> None:
        """Give up the training from a version."""
        self._work = replace(self._work, trains=np.where(self._work.trains == version, NONE, self._work.trains))

    def done(self, version: int, now: float) -> None:
        """Note that a training has ended in free frames, at a time by the device's own clock."""
        if self._work.trains[0] == version and math.isinf(self._work.until[0]):
            self._work = replace(self._work, until=np.array([now]))

    def needs(self, version: int) -> bool:
        """Tell whether the device still trains from a version, or holds an update of it."""
        return version in self._work.versions

    @property
    def version(self) -> int:
        """The version of the update that the device sends in the present frame."""
        return int(self._devices.versions(self._work, ME, self._round)[0])

    def late(self, turn: Turn, pace: Pace) -> int | None:
        """Return how many push slots of a seeded frame begin before the UE is ready; None if all do, or its own."""
        ready = self._devices.ready(self._work, self._round, self._start)
        begun = ((0.0 if ready is None else float(ready[0])) - pace.wait) / pace.uplink
        if turn.slot:
            return 0 if begun <= turn.slot - 1 else None
        late = max(0, math.ceil(min(begun, turn.first + turn.slots)) - (turn.first - 1))
        return late if late < turn.slots else None

    def sends(self, version: int) -> None:
        """Note that the device sends an update in the present frame; it is held until the PS says that it came."""
        self._sent = self._round, version
