"""The clock of a device: who trains from which version until when, and who holds an update of which version.

In asynchronous mode a UE is always in one of these states: it trains, or is idle until the next broadcast; beside that
it may hold an update, the newest that it has finished. At a broadcast, idle UEs and those that are ordered begin to
train from the new version. A UE sends the update that it holds, or else the one that it finishes in the frame. What is
older than `staleness.most` frames is dropped. A version is the number of the round whose broadcast it was.

Updates are not computed here: training is simulated when one is received, from the model of its version. A device of
a deployment has the same clock for itself alone, `deployment.pace`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt, Time, UEs

NONE = -1  # instead of a version


def _nothing() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Work:
    """What UEs train and hold between frames; without elements where all work ends with its frame.

    trains: (K,) the version from which each UE trains, -1 if it is idle. until: (K,) slots spent when it finishes.
    holds: (K,) the version of the update that it holds, -1 if it holds none.
    """

    trains: NDArray[np.int64] = field(default_factory=_nothing)
    until: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    holds: NDArray[np.int64] = field(default_factory=_nothing)

    @property
    def versions(self) -> set[int]:
        """The versions in use."""
        return set(np.unique(np.concatenate([self.trains, self.holds])).tolist()) - {NONE}

    def finish(self, time: Time) -> Work:
        """Return the work once all trainings that end by a time are finished."""
        done = (self.trains != NONE) & (self.until <= time)
        return replace(self, trains=np.where(done, NONE, self.trains), holds=np.where(done, self.trains, self.holds))


class ComputingTimes(Protocol):
    """Computing times of UEs, as `fedslot.fleet.Computing` has them."""

    def times(self, version: int) -> NDArray[np.float64]:
        """Return the times (K,) of trainings that begin with a version; infinite where nobody knows them."""
        ...


@dataclass(frozen=True)
class Devices:
    """The UEs as they work: all those of a simulation, or the one of a device.

    computing: their computing times; None: training takes no time. most: largest age of an update, in frames; None: in
    synchronous mode, in which each training begins with a frame and is lost with it.
    """

    ues: int
    computing: ComputingTimes | None
    most: int | None

    def blank(self) -> Work:
        """Return the work before the first broadcast."""
        if self.most is None:
            return Work()
        none = np.full(self.ues, NONE)
        return Work(none, np.zeros(self.ues), none)

    def times(self, version: int) -> NDArray[np.float64] | None:
        """Return the computing times (K,) of trainings that begin with a version, in slots; None: they take none."""
        return None if self.computing is None else self.computing.times(version)

    def begin(
        self, work: Work, grant: Grant, round: int, start: Time, absent: NDArray[np.bool_] | None = None
    ) -> tuple[Work, UEs | None]:
        """Return the work after the broadcast of a round, and the UEs that began to train; None: in synchronous mode.

        start: slots spent when the broadcast has been heard. absent: (K,) UEs that do not hear it, which go on with
        what they do.
        """
        if self.most is None:
            return work, None
        work = work.finish(start)
        trains, holds = (np.where(version < round - self.most, NONE, version) for version in (work.trains, work.holds))
        begins = trains == NONE
        if grant.order is not None:
            begins[grant.order] = True
        if absent is not None:
            begins &= ~absent
        times = self.times(round)
        until = np.where(begins, start if times is None else start + times, work.until)
        return Work(np.where(begins, round, trains), until, holds).finish(start), np.flatnonzero(begins)

    def ready(self, work: Work, round: int, start: Time) -> NDArray[np.float64] | None:
        """Return when each UE has an update to send in this frame, (K,) in slots after the broadcast; None: at once."""
        if self.most is None:
            return self.times(round)
        return np.where(work.holds != NONE, 0.0, work.until - start)

    def versions(self, work: Work, ues: UEs, round: int) -> UEs:
        """Return the versions of the updates that UEs (n,) send in a round."""
        if self.most is None:
            return np.full(len(ues), round)
        return np.where(work.holds[ues] != NONE, work.holds[ues], work.trains[ues])

    def computed(self, ues: UEs, versions: UEs) -> NDArray[np.float64] | None:
        """Return how long UEs (n,) trained for updates of versions (n,), in slots; None: in no time."""
        if self.computing is None:
            return None
        times = np.zeros(len(ues))
        for version in np.unique(versions).tolist():
            own = versions == version
            times[own] = self.computing.times(version)[ues[own]]
        return times

    def busy(
        self, work: Work, receipt: Receipt, round: int, length: Time, absent: NDArray[np.bool_] | None
    ) -> tuple[int, int]:
        """Return how many UEs train at the end of a frame, and how many hold an update that was not received.

        work: after the frame. length: from the broadcast to its end, in slots. absent: (K,) did not hear the broadcast.
        """
        times = self.times(round)
        if times is None:
            return 0, 0
        if self.most is not None:
            return int(np.count_nonzero(work.trains != NONE)), int(np.count_nonzero(work.holds != NONE))
        there = np.ones(self.ues, dtype=bool) if absent is None else ~absent
        train = int(np.count_nonzero(there & (times > length)))
        return train, int(there.sum()) - train - len(receipt.received)

    def end(self, work: Work, ues: UEs, versions: UEs) -> Work:
        """Return the work after a frame: received updates, of UEs (n,) and versions (n,), are not held any more."""
        if self.most is None:
            return work
        trains, holds = work.trains.copy(), work.holds.copy()
        finished = ues[trains[ues] == versions]  # within the frame
        trains[finished] = NONE
        holds[ues] = NONE
        return replace(work, trains=trains, holds=holds)
