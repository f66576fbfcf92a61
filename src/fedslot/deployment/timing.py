"""The clock of a frame whose slots are timed: when each begins and ends after the announcement."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from fedslot.support.errors import InputError

MOST_SECONDS = 86_400.0
REMEMBERED = 16  # announcements by which a device knows the clock of the PS


@dataclass(frozen=True)
class Timing:
    """Lengths in seconds; all times are counted from the announcement of the frame.

    PS and devices each count by their own clocks, which need not agree: `ClockOffset` finds out how far they are apart.

    slot: length of an uplink slot. tolerance: how long before and after its slot an update may arrive.
    downlink: length of the downlink slot, from the announcement to the first uplink slot, in which devices fetch the
        model and train.

    >>> Timing(slot=0.5, downlink=2.0, tolerance=0.1).opens(3)
    3.0
    """

    slot: float
    downlink: float
    tolerance: float

    def __post_init__(self) -> None:
        if not 0 < self.slot <= MOST_SECONDS:
            raise InputError("slot seconds", self.slot, "above 0 and at most a day")
        for name, value in (("downlink seconds", self.downlink), ("tolerance", self.tolerance)):
            if not 0 <= value <= MOST_SECONDS:
                raise InputError(name, value, "0 seconds or more, at most a day")

    def after(self, slots: float) -> Timing:
        """Return the timing of a frame that waits for some slots before the first one."""
        return replace(self, downlink=self.downlink + slots * self.slot) if slots else self

    def opens(self, slot: int) -> float:
        """Return when an uplink slot begins; slots count from 1."""
        return self.downlink + (slot - 1) * self.slot

    def closes(self, slot: int) -> float:
        """Return when an uplink slot ends; of slot 0, this is when the first one begins."""
        return self.opens(slot + 1)

    def ends(self, slots: int) -> float:
        """Return when a frame of `slots` uplink slots is closed: what arrives later is lost."""
        return self.closes(slots) + self.tolerance

    def begun(self, now: float, first: int) -> int:
        """Return how many slots have begun by a time, counted from slot `first` on.

        >>> Timing(slot=0.5, downlink=2.0, tolerance=0.1).begun(3.2, first=2)
        2
        """
        return max(0, math.floor((now - self.opens(first)) / self.slot) + 1)


class ClockOffset:
    """Tells a device by its own clock when the PS sent an announcement.

    The PS says by its own clock when it sent a message. The device hears it later by the difference of the two clocks
    and a delay. The least of the last differences comes closest to that of the clocks, so that an announcement that
    waited in a queue does not delay the slots. Clocks may drift apart by some milliseconds in this many frames.

    >>> clock = ClockOffset()
    >>> clock.sent("ps", sent=10.0, heard=110.5), clock.sent("ps", sent=20.0, heard=120.1)
    (110.5, 120.1)
    >>> clock.sent("ps", sent=30.0, heard=130.9)
    130.1
    """

    def __init__(self) -> None:
        self._whose, self._later = "", deque[float](maxlen=REMEMBERED)

    def sent(self, whose: str, sent: float, heard: float) -> float:
        """Return when an announcement was sent, by the clock of `heard`. whose: the name of the clock of `sent`."""
        if whose != self._whose:  # another PS, or the same after a restart
            self._whose = whose
            self._later.clear()
        self._later.append(heard - sent)
        return sent + min(self._later)
