"""The push slots of one frame on the collision channel: yield, last received slot and cost of the frame.

A frame has `pull` reserved slots (the paper's Q) and then `slots` push slots (L = M - Q). Each contender picks one
push slot and is received if no other picked it. N' counts the received pushes, and X is the last received push slot,
0 if there is none. Equal slots are computed by generating functions (`collision.py`). Where UEs are ready late, slots
are not equal, and a recursion over them adds only positive terms, so that floats lose no digits by cancellation.

>>> push = PushPeriod(slots=10, contenders=10)
>>> round(push.success_probability, 4), round(push.received_mean, 3)
(0.3874, 3.874)
>>> round(push.expected_cost_exact(pull=10), 3), round(push.expected_cost_paper(pull=10), 3)
(18.419, 18.431)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedslot.planning.collision import last_slot_at_most, push_moments, received_pmf
from fedslot.planning.contenders import Contenders, Floats, contender_pmf, likely_range, mean, sending_pmf, thinning
from fedslot.planning.costs import expected_cost_max, last_success_mean, paper_push_costs
from fedslot.support.checks import check_probability, check_whole
from fedslot.support.errors import InputError


class _Period:
    """A recursion over slots: each UE that still waits sends in slot j with a probability, the hazard of j.

    A UE that picks uniformly among its slots e..L has the hazard 1 / (slots left), whatever its e, so the
    state of the recursion is only the number of waiting UEs. A UE that picks slot j with probability p_j has
    the hazard p_j / (1 - p_1 - ... - p_(j-1)).
    """

    slots: int

    @cached_property
    def _chain(self) -> tuple[Floats, list[int], list[float]]:
        """Distribution of the number of UEs that wait at first (N+1,), and of each slot: UEs that join, hazard."""
        raise NotImplementedError

    @cached_property
    def _waiting(self) -> list[Floats]:
        """Distribution of the number of UEs that wait at each slot, including those that just joined."""
        (pmf, joins, hazards), pmfs = self._chain, []
        for joined, hazard in zip(joins, hazards, strict=True):
            pmf = np.concatenate([np.zeros(joined), pmf])
            pmfs.append(pmf)
            low, high = likely_range(pmf)
            n, m, chance = thinning(low, high, hazard)
            left = np.broadcast_to(n - m, chance.shape)
            flow = chance * pmf[low : high + 1, None]
            pmf = np.zeros(len(pmf)) + np.bincount(left[left >= 0], flow[left >= 0], len(pmf))
        return pmfs

    @cached_property
    def singleton_probabilities(self) -> Floats:
        """Probability that each push slot is received, (L,): exactly one UE sends in it."""
        return np.array([_one_of(*pair) for pair in zip(self._waiting, self._chain[2], strict=True)])

    @cached_property
    def received_mean(self) -> float:
        """E[N'], the expected number of received pushes."""
        return float(self.singleton_probabilities.sum())

    @cached_property
    def received_pmf(self) -> Floats:
        """P(N' = r) for r = 0..min(L, N), by a recursion over (waiting, received)."""
        start, joins, hazards = self._chain
        most = min(self.slots, len(start) - 1 + sum(joins))
        state = np.zeros((len(start), most + 1))
        state[:, 0] = start
        for joined, hazard in zip(joins, hazards, strict=True):
            state = np.concatenate([np.zeros((joined, most + 1)), state])
            low, high = likely_range(state.sum(axis=1))
            _, m, chance = thinning(low, high, hazard)
            after = np.zeros_like(state)
            for sent, column in zip(m[0], chance.T, strict=True):
                rows = slice(max(low, sent), high + 1)
                flow = state[rows] * column[rows.start - low :, None]
                to = after[rows.start - sent : high + 1 - sent]
                if sent == 1:
                    to[:, 1:] += flow[:, :-1]
                else:
                    to += flow
            state = after
        pmf: Floats = state.sum(axis=0)
        return pmf

    @cached_property
    def received_variance(self) -> float:
        """Var N'."""
        r = np.arange(len(self.received_pmf))
        return float(((r - self.received_mean) ** 2) @ self.received_pmf)

    @cached_property
    def last_slot_pmf(self) -> Floats:
        """P(X = j) for j = 0..L; entry 0 is the probability that no push is received."""
        start, joins, hazards = self._chain
        pmf = np.zeros(self.slots + 1)
        silence = np.ones(len(start) + sum(joins))  # P(no singleton from here on | UEs left)
        for j in range(self.slots, 0, -1):
            waiting = self._waiting[j - 1]
            low, high = likely_range(waiting)
            n, m, chance = thinning(low, high, hazards[j - 1])
            onward = chance * silence[np.maximum(n - m, 0)]
            pmf[j] = waiting[low : high + 1] @ onward[:, m[0] == 1].sum(axis=1)
            silence = np.zeros(len(waiting))
            silence[low : high + 1] = onward[:, m[0] != 1].sum(axis=1)
            silence = silence[joins[j - 1] :]
        pmf[0] = start @ silence
        return pmf

    @cached_property
    def last_slot_cdf(self) -> Floats:
        """P(X <= j) for j = 0..L."""
        return np.minimum(np.cumsum(self.last_slot_pmf), 1.0)

    @cached_property
    def last_slot_mean(self) -> float:
        """E[X], the push part of the expected cost."""
        return float(np.arange(self.slots + 1) @ self.last_slot_pmf)

    @property
    def nothing_probability(self) -> float:
        """P(N' = 0), the probability that no push is received."""
        return float(self.last_slot_pmf[0])

    def expected_cost_exact(self, pull: int) -> float:
        """Return Q + E[X] in slots, without the downlink slot; the paper's eq. (5) approximates this."""
        return pull + self.last_slot_mean

    def expected_cost_max(self, pull: int, ready: float = 1.0) -> float:
        """Return the expected `cost_max` of a frame, in slots: its last received slot and the downlink slot.

        pull: reserved slots before the push slots.
        ready: probability that a pulled UE is ready; one that is not wastes its slot.
        """
        last_pull = float(last_success_mean(pull, ready))
        return expected_cost_max(pull, self.last_slot_mean, self.nothing_probability, last_pull)

    def expected_cost_sum(self, pull: int, ready: float = 1.0) -> float:
        """Return the expected `cost_sum` of a frame: slot + 1 summed over received UEs, as in the paper's Fig. 6."""
        costs = pull + 1 + np.arange(1, self.slots + 1)
        return ready * pull * (pull + 3) / 2 + float(costs @ self.singleton_probabilities)


@dataclass(frozen=True)
class PushPeriod(_Period):
    """The push slots of a frame with contenders that are independent and identically distributed.

    slots: push slots, L.
    contenders: the number of contenders N, or a mapping from numbers to their probabilities.
    probability: access barring; each contender sends with this probability and else stays silent.
    ready: (L,), the probability that slot 1, 2, ... is the first that a contender may use; the rest to 1 is the
        probability that it is never ready. A contender picks uniformly from its first usable slot to the last.
        By default all are ready for slot 1.

    >>> push = PushPeriod(slots=4, contenders=3)
    >>> push.received_pmf.round(12).tolist(), round(push.last_slot_mean, 12)
    ([0.0625, 0.5625, 0.0, 0.375], 2.8125)
    >>> late = PushPeriod(slots=4, contenders=3, ready=(0.5, 0.0, 0.25, 0.0))
    >>> late.slot_probabilities.tolist()
    [0.125, 0.125, 0.25, 0.25]
    """

    slots: int
    contenders: Contenders
    probability: float = 1.0
    ready: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_whole("slots", self.slots)
        contender_pmf(self.contenders)
        check_probability("probability", self.probability)
        if self.ready is not None:
            chances = np.asarray(self.ready, dtype=float)
            if chances.shape != (self.slots,) or not (chances >= 0).all() or not chances.sum() <= 1 + 1e-9:
                raise InputError("ready", self.ready, f"{self.slots} probabilities that add up to at most 1")

    @cached_property
    def _pmf(self) -> Floats:
        return contender_pmf(self.contenders)

    @cached_property
    def _chain(self) -> tuple[Floats, list[int], list[float]]:
        chances = self.slot_probabilities
        silent = 1 - self.probability * (1.0 if self.ready is None else min(1.0, math.fsum(self.ready)))
        if silent < 1e-12:  # only rounding separates it from 0
            silent = 0.0
        left = silent + np.cumsum(chances[::-1])[::-1]
        hazards = np.divide(chances, left, out=np.zeros(self.slots), where=left > 0)
        return self._pmf, [0] * self.slots, hazards.tolist()

    @cached_property
    def slot_probabilities(self) -> Floats:
        """Probability that a contender sends in each push slot, (L,)."""
        if self.ready is None:
            return np.full(self.slots, self.probability / self.slots if self.slots else 0.0)
        left = np.arange(self.slots, 0, -1)
        shares: Floats = self.probability * np.cumsum(np.asarray(self.ready, dtype=float) / left)
        return shares

    @property
    def sending_mean(self) -> float:
        """Expected number of contenders that send in this frame."""
        return mean(self._pmf) * float(self.slot_probabilities.sum())

    @property
    def success_probability(self) -> float:
        """Probability that a contender that sends is received, (1 - 1/L)^(N-1); 0 if none can send."""
        return self.received_mean / self.sending_mean if self.sending_mean > 0 else 0.0

    @cached_property
    def singleton_probabilities(self) -> Floats:
        """Probability that each push slot is received, (L,): E[N p (1-p)^(N-1)]."""
        return np.array([_one_of(self._pmf, p) for p in self.slot_probabilities.tolist()])

    @cached_property
    def received_pmf(self) -> Floats:
        """P(N' = r) for r = 0..min(L, N)."""
        if self.ready is not None:
            return super().received_pmf
        return received_pmf(self.slots, self._pmf, self.probability)

    @cached_property
    def received_variance(self) -> float:
        """Var N'. With equal slots of probability q, E[N'(N'-1)] = L(L-1) E[N(N-1) q^2 (1-2q)^(N-2)]."""
        if self.ready is not None or self.slots < 2:
            return super().received_variance
        n, q = np.arange(2, len(self._pmf)), self.probability / self.slots
        pairs = self.slots * (self.slots - 1) * q * q * (n * (n - 1) * (1 - 2 * q) ** (n - 2)) @ self._pmf[2:]
        return max(0.0, float(pairs) + self.received_mean - self.received_mean**2)

    @cached_property
    def last_slot_pmf(self) -> Floats:
        """P(X = j) for j = 0..L; entry 0 is the probability that no push is received."""
        if self.ready is not None:
            return super().last_slot_pmf
        below = last_slot_at_most(np.arange(self.slots + 1), self.slots, self._pmf, self.probability)
        return np.diff(below, prepend=0.0).clip(min=0.0)

    @cached_property
    def last_slot_mean(self) -> float:
        """E[X], the push part of the expected cost."""
        if self.ready is not None:
            return super().last_slot_mean
        return float(push_moments(np.array([float(self.slots)]), self._pmf, np.array([self.probability]))[1][0])

    def expected_cost_paper(self, pull: int) -> float:
        """Return the paper's eq. (5), averaged over the number of UEs that send; see `costs.paper_push_costs`."""
        sending = sending_pmf(self._pmf, min(1.0, float(self.slot_probabilities.sum())))
        return pull + float(paper_push_costs(np.array([float(self.slots)]), sending)[0])

    def paper_error(self, pull: int = 0) -> float:
        """Return the relative error of the paper's expected cost; with pull = 0, that of its push part alone."""
        exact = self.expected_cost_exact(pull)
        return self.expected_cost_paper(pull) / exact - 1 if exact else 0.0


@dataclass(frozen=True)
class TimedPushPeriod(_Period):
    """The push slots of a frame with contenders that each have a known first usable slot.

    slots: push slots, L.
    earliest: the first slot, from 1, that each contender may use; one beyond L stays silent.

    >>> TimedPushPeriod(slots=3, earliest=(1, 3)).last_slot_pmf.round(4).tolist()  # the second can only use 3
    [0.3333, 0.0, 0.0, 0.6667]
    """

    slots: int
    earliest: Sequence[int]

    def __post_init__(self) -> None:
        check_whole("slots", self.slots)
        for slot in self.earliest:
            check_whole("earliest", slot, least=1)

    @cached_property
    def _chain(self) -> tuple[Floats, list[int], list[float]]:
        slots = range(1, self.slots + 1)
        return np.ones(1), [list(self.earliest).count(slot) for slot in slots], [1 / left for left in reversed(slots)]


def _one_of(pmf: Floats, p: float) -> float:
    """Return the probability that exactly one of a random number of UEs sends, E[n p (1-p)^(n-1)]."""
    n = np.arange(len(pmf))
    return float(pmf @ (n * p * (1 - p) ** np.maximum(n - 1, 0)))
