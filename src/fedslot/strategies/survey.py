"""Measurements of the UEs' updates, shared by the strategies that select UEs by noise.

An update is taken as progress + deviation + noise. All UEs have the progress in common; deviations come from their data
and have the mean squared length `spread`; noise of standard deviation sigma has that of sigma^2 `noise_gain`. Lengths
are those of changes of the layers' outputs (`fedslot.messages.Measured`). `docs/explanation/derivation.md` derives
the rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Measured, Receipt, UEs

MEMORY = 0.9  # weight of the old estimate in the smoothing of lengths, which change slowly
LEAST_POOL = 25  # UEs: a model of fewer knows too little of the others' data
LEAST_UPDATES = 2  # of a frame: one alone cannot tell progress from deviation
LEAST_VARIANCE = 1e-12  # of an update, relative to the largest of a frame
LEAST_PROGRESS = 0.3  # of energy: little progress is measured at first, and long frames would delay it
SLACK = 0.25  # of a slot, so that a rare loss does not make frames longer


@dataclass(frozen=True)
class Survey:
    """Measurements of all frames so far.

    noise: (K,) mean noise estimate of each UE, 0 before its first reception. seen: (K,) number of its receptions.
    last: (K,) the last frame in which it was received or pulled in vain, -1 before the first.
    refused: (K,) whether the aggregation refused its last update.
    away: (K,) whether it is on order, in asynchronous mode.
    bursts: (K,) uplink slots that its last update took, 1 before the first.
    frames: number of frames. measured: those with a received update. paired: those with two or more.
    energy: smoothed squared length of an update without its noise. progress: smoothed inner product of two updates.
    noise_gain: as last measured.
    ready: smoothed share of the pulled UEs that were ready by their slot, of those that were received before.
    wasted: smoothed number of slots of a frame in which a UE was not ready that was received before, or the PS waited.
    """

    noise: NDArray[np.float64]
    seen: NDArray[np.int64]
    last: NDArray[np.int64]
    refused: NDArray[np.bool_]
    bursts: NDArray[np.int64]
    away: NDArray[np.bool_]
    frames: int = 0
    measured: int = 0
    paired: int = 0
    energy: float = 0.0
    progress: float = 0.0
    noise_gain: float = 0.0
    ready: float = 1.0
    wasted: float = 0.0

    @classmethod
    def blank(cls, ues: int) -> Self:
        """Return a survey without any measurements."""
        none, no = np.zeros(ues, dtype=np.int64), np.zeros(ues, dtype=bool)
        return cls(np.zeros(ues), none, np.full(ues, -1), no, none + 1, no)

    def add(self, receipt: Receipt) -> Self:
        """Return the survey after a frame."""
        noise, seen, last, ues = self.noise.copy(), self.seen.copy(), self.last.copy(), receipt.received
        last[ues] = last[receipt.wasted] = last[receipt.lost] = self.frames
        if receipt.late is not None:
            last[receipt.late] = self.frames
        away = np.zeros_like(self.away)
        away[[] if receipt.away is None else receipt.away] = True
        bursts = self.bursts if receipt.bursts is None else np.where(receipt.bursts > 0, receipt.bursts, self.bursts)
        after = replace(self, last=last, bursts=bursts, away=away, frames=self.frames + 1)._see_late(receipt)
        measured, refused = receipt.measured, self.refused.copy()
        if measured is None:
            return after
        seen[ues] += 1
        noise[ues] += (measured.noise - noise[ues]) / seen[ues]
        used = np.ones(len(ues), dtype=bool) if measured.accepted is None else measured.accepted
        refused[ues] = ~used
        after = replace(after, noise=noise, seen=seen, refused=refused)
        return after._mix(measured.of(used), noise[ues[used]]) if used.any() else after

    def _see_late(self, receipt: Receipt) -> Self:
        """Return the survey with a frame's late UEs. UEs that were never received may be absent, and do not count."""
        ready, late = (int(np.count_nonzero(self.seen[ues])) for ues in (receipt.pulled, receipt.wasted))
        if not ready + late:
            return self
        before = max(self.measured - 1, 0)
        share = _smooth(self.ready, ready / (ready + late), before)
        wasted = _smooth(self.wasted, late + receipt.wait, before)
        return replace(self, ready=share, wasted=wasted)

    def _mix(self, measured: Measured, noise: NDArray[np.float64]) -> Self:
        """Return the survey with the lengths of a frame mixed in. noise: (Y,) mean estimates of the received UEs."""
        power = noise**2 * measured.noise_gain
        lengths = np.diag(measured.products)
        typical = self.energy if self.energy > 0 else float(np.median(lengths))
        variances = typical + power  # noisy updates say little; updates may be zero
        weights = 1 / np.maximum(variances, LEAST_VARIANCE * float(variances.max()) or 1.0)
        energy = _smooth(self.energy, float(weights @ (lengths - power) / weights.sum()), self.measured)
        after = replace(self, measured=self.measured + 1, energy=energy, noise_gain=measured.noise_gain)
        if len(noise) < 2:
            return after
        pairs = np.outer(weights, weights) - np.diag(weights**2)
        progress = _smooth(self.progress, float((pairs * measured.products).sum() / pairs.sum()), self.paired)
        return replace(after, paired=self.paired + 1, progress=progress)

    def traced(self) -> dict[str, NDArray[np.float64]]:
        """Return the noise estimates that `frames.csv` shows."""
        return {"noise": np.where(self.seen > 0, self.noise, np.nan)}

    @property
    def spread(self) -> float:
        """Mean squared deviation of an update from the progress that all have in common."""
        return max(self.energy - self.progress, 0.0)

    def pool(self, horizon: float, share: float) -> UEs:
        """Return the UEs to train with: the n best of those received, for the n of least expected error.

        The best are the cleanest, where each update takes one slot. An update of variance spread + noise power that
        takes m slots is worth as much as m of 1 / m of its precision, so UEs go by the product of variance and slots.

        The mean update of n UEs deviates from that of all UEs by spread / n (mean square), which stays in the model;
        noise averages out over `horizon` updates. A model of few UEs knows too little of the others' data, so the pool
        has at least 25 UEs, or a share of those received so far if that is less. UEs whose last update was refused are
        left out, until as many frames have passed as there are UEs: they may be honest.
        """
        barred = self.refused & (self.frames - self.last <= len(self.last))
        seen = np.flatnonzero((self.seen > 0) & ~barred)
        if not len(seen):
            seen = np.flatnonzero(self.seen)
        order = self.noise[seen]
        if (self.bursts[seen] > 1).any():
            order = self.bursts[seen] * (self.spread + order**2 * self.noise_gain)
        cleanest = seen[np.argsort(order, kind="stable")]
        count = np.arange(1, len(cleanest) + 1)
        power = np.cumsum(self.noise[cleanest] ** 2) / count * self.noise_gain
        best = 1 + int(np.argmin(self.spread / count + power / horizon))
        return cleanest[: max(best, min(LEAST_POOL, math.ceil(share * len(seen))))]

    def noise_share(self, pool: UEs) -> float:
        """Return the share of noise in the error of updates from a pool, the rest being deviation.

        >>> survey = replace(Survey.blank(2), energy=3.0, progress=2.0, noise_gain=4.0, noise=np.array([0.0, 0.5]))
        >>> survey.noise_share(np.array([1])), survey.noise_share(np.array([0]))
        (0.5, 0.0)
        """
        power = float(np.mean(self.noise[pool] ** 2)) * self.noise_gain
        return power / (power + self.spread) if power else 0.0

    def welcome_noise(self, pool: UEs, horizon: float) -> float:
        """Return the most noise with which one more UE would lower the expected error of a pool.

        >>> survey = replace(Survey.blank(9), energy=1.0, noise_gain=4.0)
        >>> survey.welcome_noise(np.arange(9), horizon=9)  # nine UEs without noise: spread / 9 = noise^2 * 4 / 9
        0.5
        """
        deviation = self.spread * horizon / len(pool) / max(self.noise_gain, 1e-300)
        return math.sqrt(float(np.mean(self.noise[pool] ** 2)) + deviation)

    def best_updates(self, pool: UEs, most: int, downlink: float = 1.0) -> int:
        """Return the number of updates from a pool, at most `most`, that makes the most progress per slot of a frame.

        A step along the mean of Y updates makes progress in proportion to Y / (Y + r), where r is the squared length of
        deviation and noise relative to that of the progress, and takes Y + c slots: with the downlink and those that
        late UEs waste. The best Y is the least with Y (Y + 1) >= r c, about sqrt(r c). Updates are taken to be weighted
        by the inverse of that squared length, so r is the harmonic mean over the pool. An update on a slow link takes
        several slots, which makes c smaller in proportion.

        downlink: its length, in uplink slots.

        >>> survey = replace(Survey.blank(4), paired=1, energy=1.0, progress=1.0, noise_gain=1.0)
        >>> noisy = [replace(survey, noise=np.full(4, r**0.5)) for r in (1.0, 5.9, 6.1, 8.9)]
        >>> [survey.best_updates(np.arange(4), most=9) for survey in noisy]
        [2, 2, 3, 3]
        """
        progress = max(self.progress, LEAST_PROGRESS * self.energy)
        if not self.paired or progress <= 0:
            return min(LEAST_UPDATES, most)
        power = self.noise[pool] ** 2 * self.noise_gain
        ratio = 1 / float(np.mean(progress / np.maximum(self.spread + power, LEAST_VARIANCE * progress)))
        others = (downlink + self.wasted) / float(np.mean(self.bursts[pool]))
        return min(most, max(LEAST_UPDATES, math.ceil(math.sqrt(ratio * others + 0.25) - 0.5)))

    def longest_ago(self, ues: UEs, count: int) -> UEs:
        """Return the `count` UEs that were received, or pulled in vain, the longest ago; UEs on order are left out."""
        here = ues[~self.away[ues]]
        return here[np.argsort(self.last[here], kind="stable")[:count]]

    def next_of(self, pool: UEs, count: int) -> UEs:
        """Return the `count` UEs of a pool that were received the longest ago.

        If too few of them are not on order, the cleanest of all others that were received take their place.
        """
        chosen, here = self.longest_ago(pool, count), pool[~self.away[pool]]
        if len(here) == len(pool) or len(chosen) == count:
            return chosen
        others = np.setdiff1d(np.flatnonzero((self.seen > 0) & ~self.away & ~self.refused), here)
        return np.concatenate([chosen, others[np.argsort(self.noise[others], kind="stable")[: count - len(chosen)]]])

    def further(self, pull: UEs, slots: int) -> UEs:
        """Return further UEs, to be pulled before those in `pull`; none if all pulled UEs were ready so far.

        Where UEs take time to train, the first slots of a frame are often wasted, and short frames receive nothing. So
        n wanted updates take n / `ready` pulls, rounded. The further UEs are those of the whole cell, noisy and unknown
        ones too, that were received or pulled the longest ago.

        slots: the most UEs that the frame can pull.
        """
        count = min(math.ceil(len(pull) / max(self.ready, 1e-9) - SLACK), slots) - len(pull)
        if count <= 0:
            return pull[:0]
        return self.longest_ago(np.setdiff1d(np.arange(len(self.last)), pull), count)


def _smooth(old: float, new: float, count: int) -> float:
    """Return a smoothed estimate after `count` earlier ones; the first few are averaged."""
    memory = min(MEMORY, count / (count + 1))
    return memory * old + (1 - memory) * new
