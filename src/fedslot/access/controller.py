"""Access barring by feedback: a channel's best load, and an estimate of the backlog from what a receiver sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Capture, Channel, Collision
from fedslot.support.rng import BEST_LOAD, stream

LONGEST = 1000  # push slots: longer frames are taken to have the best load of such
POINTS, SENDERS = 40, 20_000  # numbers of UEs that send, and about how many UEs send in all for each of them
MOST_LOAD = 64  # UEs per slot up to which the best load is sought
LOADS = 400  # that are compared
SHAPE = 4  # per slot, of the Gamma distribution that stands for what is known of the backlog


class BestLoad(NamedTuple):
    """The load at which a push slot receives most on average, and what a receiver sees at this load.

    load: expected number of UEs that send, per push slot. received: expected number of received UEs per push slot.
    unheard: number of UEs that sent in vain per collided slot, the ratio of their means.
    """

    load: float
    received: float
    unheard: float


def best_load(channel: Channel, slots: int) -> BestLoad:
    """Return the best load of a channel with `slots` push slots, if the number of UEs that send is Poisson.

    Many backlogged UEs that contend independently of one another send in such a number.

    On the collision channel, a slot with G UEs on average receives G exp(-G), most at G = 1. Collided slots, which are
    1 - 2 / e of all, then hold (e - 1) / (e - 2) = 2.39 UEs on average (Rivest's pseudo-Bayesian rule). With capture at
    the threshold z, each of k UEs is received with probability exp(-z noise) / (1 + z)^(k - 1). So a slot receives
    exp(-z noise) G exp(-G z / (1 + z)), most at G = 1 + 1 / z. Both hold for any number of slots.

    For other channels, and for `received` and `unheard` with capture, frames are simulated: 40 numbers of UEs, with
    20,000 transmissions or more for each. What is expected at the result is within 2% of the best, and `received`
    within 3% of that. More than 1000 slots count as 1000. 10 slots of `irsa` take 0.2 s: keep the result.

    >>> from fedslot.access import Capture, Collision
    >>> [round(number, 2) for number in best_load(Collision(), 10)]
    [1.0, 0.37, 2.39]
    >>> round(best_load(Capture(threshold_db=0.0), 10).load, 2)
    2.0
    """
    if slots == 0:
        return BestLoad(1.0, 0.0, 1.0)
    if type(channel) is Collision:
        return BestLoad(1.0, 1 / math.e, (math.e - 1) / (math.e - 2))
    slots = min(slots, LONGEST)
    if type(channel) is Capture:
        load = min(1 + 10 ** (-channel.threshold_db / 10), MOST_LOAD)
        return _at(_simulate(channel, slots, 1 + math.ceil(2 * load * slots)), slots, load)
    most = 8 + 2 * slots
    while True:
        curves = _simulate(channel, slots, most)
        # of loads at which nearly all frames have numbers that were simulated
        highest = (most - 3 * math.sqrt(most)) / slots
        found = max((_at(curves, slots, load) for load in np.linspace(0, highest, LOADS + 1)[1:]), key=_received)
        if found.load < highest / 2 or most >= MOST_LOAD * slots:
            return found
        most *= 2


@dataclass(frozen=True)
class Contention:
    """What the PS knows of the contention. backlog: the number of UEs that may contend in the next frame, estimated."""

    backlog: float


class Controller:
    """Access barring by feedback: UEs contend with the probability that gives the push slots the channel's best load.

    The backlog is estimated from what a receiver sees of a frame, the numbers of received UEs and of collided slots. It
    is taken as Poisson, with a mean v of which a Gamma distribution says how sure the estimate is. Each UE contends
    with probability p, so s senders, `unheard` for each collided slot beside those received, leave v (1 - p) (k + s) /
    (k + v p) others, where k is the shape of the distribution. With k without limit and the arrivals, this is Rivest's
    pseudo-Bayesian rule, v <- v (1 - p) + 2.39 collided + arrivals; a finite k lets the estimate grow and shrink by a
    factor, so that it soon recovers from a jam. Arrivals are not seen: as many as were received are taken to arrive, as
    is so on average in a cell that does not jam, and in one with the same number of contenders in each frame.

    channel: the push slots' channel. ues: number of UEs, above which no estimate goes.
    """

    def __init__(self, channel: Channel, ues: int) -> None:
        self.channel, self.ues = channel, ues
        self._best: dict[int, BestLoad] = {}

    def best(self, slots: int) -> BestLoad:
        """Return the best load with a number of push slots."""
        if slots not in self._best:
            self._best[slots] = best_load(self.channel, slots)
        return self._best[slots]

    def probability(self, now: Contention, slots: int) -> float:
        """Return the probability of contending in a frame with a number of push slots, G L / v but at most 1."""
        return min(1.0, self.best(slots).load * slots / now.backlog) if slots and now.backlog > 0 else 1.0

    def observe(self, now: Contention, slots: int, probability: float, received: int, collided: int) -> Contention:
        """Return the estimate after a frame with a number of push slots, of which so many were collided."""
        if not slots:
            return now
        senders = received + self.best(slots).unheard * collided
        before, shape = now.backlog, SHAPE * slots
        silent = (1 - probability) * before * (shape + senders) / (shape + probability * before)
        return Contention(min(senders + silent, float(self.ues)))


def _received(best: BestLoad) -> float:
    return best.received


Curves = tuple[NDArray[np.float64], NDArray[np.float64]]
"""For n = 0, 1, ... UEs that send: the expected numbers of received UEs and of collided slots."""


def _simulate(channel: Channel, slots: int, most: int) -> Curves:
    """Simulate frames with up to `most` UEs, and interpolate between the numbers that were simulated."""
    numbers = np.unique(np.linspace(0, most, min(POINTS, most + 1)).astype(np.int64))
    means = np.zeros((len(numbers), 2))
    for row, ues in enumerate(numbers[1:].tolist(), 1):
        rng = stream(0, BEST_LOAD, slots, ues)
        frames = math.ceil(SENDERS / max(ues, 10))
        sent = channel.send(np.ones((frames, ues), dtype=np.int64), slots, rng)
        received = channel.receive(sent, slots, rng)
        means[row] = np.count_nonzero(received) / frames, collided_slots(sent, received, slots).mean()
    every = np.arange(most + 1)
    return np.interp(every, numbers, means[:, 0]), np.interp(every, numbers, means[:, 1])


def _at(curves: Curves, slots: int, load: float) -> BestLoad:
    """Return what a Poisson number of UEs, of mean `load` per slot, yields by simulated curves."""
    received, collided = curves
    every = np.arange(len(received))
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(every[1:]))])
    chance = np.exp(every * math.log(load * slots) - load * slots - log_factorial)
    chance /= chance.sum()
    vain, lost = float(chance @ (every - received)), float(chance @ collided)
    return BestLoad(float(load), float(chance @ received) / slots, vain / lost if lost else 1.0)


def collided_slots(sent: NDArray[np.int64], received: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Return the number of slots of each frame in which UEs sent and nothing was decoded, (F,).

    sent: (F, N, C) as from `Channel.send`. received: (F, N) as from `Channel.receive`.
    """
    frames, width = len(sent), slots + 1
    start = width * np.arange(frames)[:, None]
    lost = np.zeros(frames * width, dtype=bool)
    lost[(sent + start[:, :, None])[received == 0]] = True
    lost[received + start] = False
    lost[::width] = False  # slot 0 is no slot
    counts: NDArray[np.int64] = lost.reshape(frames, width).sum(axis=1, dtype=np.int64)
    return counts
