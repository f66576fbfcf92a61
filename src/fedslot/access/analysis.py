"""What framed ALOHA yields and costs, computed and not simulated.

A frame has `pull` reserved slots (the paper's Q) and then `slots` push slots (L = M - Q). Each contender
picks one push slot and is received if nobody else picked it. N' counts the received pushes, and X is the
largest push slot that was received, 0 if there is none.

Two ways of counting, and each is the other's check:

* Equal slots and a known number of contenders: numbers of outcomes out of L^N, by inclusion-exclusion. The
  sums alternate and cancel almost entirely, so they are done in integers and rounded once, at the end.
* Everything else (barring, unequal slots, UEs that are ready late or never, a random number of contenders):
  a walk over the slots that only ever adds positive terms, so that floats lose nothing that matters.

>>> push = PushPeriod(slots=10, contenders=10)
>>> round(push.success_probability, 4), round(push.received_mean, 3)
(0.3874, 3.874)
>>> round(push.expected_cost_exact(pull=10), 3), round(push.expected_cost_paper(pull=10), 3)
(18.419, 18.431)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedslot.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = int | Mapping[int, float]
"""How many contend: a number, or the probability of each number."""

NEGLIGIBLE = 1e-30
"""Probability below which the walk forgets a state: far under the rounding of what it is added to."""


# Equal slots, a known number of contenders: whole numbers of outcomes ------------------------------------


def received_counts(slots: int, contenders: int) -> list[int]:
    """In how many of the L^N outcomes exactly r pushes are received, for r = 0..min(L, N).

    There are C(L,s) (N)_s (L-s)^(N-s) ways to mark s slots as singletons and let the other N - s contenders
    do as they like elsewhere. An outcome with r singletons is counted C(r,s) times, which the shift of a
    polynomial by -1 undoes.

    >>> received_counts(2, 2)
    [2, 0, 2]
    """
    alone = _alone(slots, contenders)
    marked = [choices * ways for choices, ways in zip(_combinations(slots, 0), alone, strict=False)]
    for start in range(len(marked)):  # sum_s marked[s] (y-1)^s, by repeated synthetic division
        for s in range(len(marked) - 2, start - 1, -1):
            marked[s] -= marked[s + 1]
    return marked


def last_slot_counts(slots: int, contenders: int) -> list[int]:
    """In how many of the L^N outcomes the last received slot is j, for j = 0..L (0: nothing received).

    X <= L - k means no singleton among the last k slots: sum_s (-1)^s C(k,s) (N)_s (L-s)^(N-s). Summing with
    C(k,s) for all k at once is a triangle of additions.

    >>> last_slot_counts(2, 2)
    [2, 0, 2]
    """
    terms = [-ways if s % 2 else ways for s, ways in enumerate(_alone(slots, contenders))]
    terms += [0] * (slots + 1 - len(terms))
    at_most = [terms[0]]  # at_most[k]: outcomes with X <= L - k
    while len(terms) > 1:
        terms = [a + b for a, b in pairwise(terms)]
        at_most.append(terms[0])
    return [at_most[-1], *(a - b for a, b in zip(at_most[-2::-1], at_most[:0:-1], strict=True))]


def last_slot_total(slots: int, contenders: int) -> int:
    """The sum of X over all L^N outcomes: L^N E[X], the closed form of the exact expected cost.

    X is the number of slots j with a singleton at j or later, so E[X] adds up P(X > L - k) over k = 1..L, and
    the sum of C(k,s) over k is C(L+1,s+1).
    """
    alone = _alone(slots, contenders)
    terms = [choices * ways for choices, ways in zip(_combinations(slots + 1, 1), alone, strict=False)]
    return sum(terms[1::2]) - sum(terms[2::2])


def _alone(slots: int, contenders: int) -> list[int]:
    """(N)_s (L-s)^(N-s) for s = 0..min(L, N): who is alone in s given slots, and where the others went.

    Python's 0**0 = 1 is right at s = L = N: all are alone, and nobody is left to go elsewhere.
    """
    who, ways = 1, []
    for s in range(min(slots, contenders) + 1):
        ways.append(who * (slots - s) ** (contenders - s))
        who *= contenders - s
    return ways


def _combinations(n: int, first: int) -> Iterator[int]:
    """C(n, k) for k = first..n, each from the one before."""
    value = math.comb(n, first)
    for k in range(first, n + 1):
        yield value
        value = value * (n - k) // (k + 1)


# Everything else: the walk over the slots -----------------------------------------------------------------


def thinning(low: int, high: int, p: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the binomial distributions of n = low..high trials, on the band of m that has nearly all probability.

    returns: n (W, 1), m (1, B) and P(m of n) (W, B). The band, ten standard deviations and 20 to either side,
    leaves out less than 1e-20 of each distribution.
    """
    from scipy.stats import binom  # the import takes longer than most plans

    p = min(p, 1.0)
    spread = [10 * math.sqrt(n * p * (1 - p)) + 20 for n in (low, high)]
    first, last = max(0, math.floor(low * p - spread[0])), min(high, math.ceil(high * p + spread[1]))
    n, m = np.arange(low, high + 1)[:, None], np.arange(first, last + 1)[None, :]
    return n, m, np.asarray(binom.pmf(m, n, p), dtype=float)


class _Period:
    """Slot by slot: `waiting` UEs have something to send, each sends in slot j with probability `hazard[j]`.

    A UE that picks uniformly among its slots e..L does just that, with hazard 1 / (slots left), whatever its
    e: so the number of waiting UEs is all there is to know, whoever they are and whenever they came. And one
    that picks slot j with probability p_j does so with hazard p_j / (1 - p_1 - ... - p_(j-1)).
    """

    slots: int

    @property
    def _start(self) -> Floats:
        """Law of the number of UEs that wait before the first slot, (N+1,)."""
        raise NotImplementedError

    @property
    def _arrivals(self) -> Sequence[int]:
        """UEs that join before each slot, (L,)."""
        raise NotImplementedError

    @property
    def _hazards(self) -> Floats:
        """Probability that a waiting UE sends in each slot, (L,)."""
        raise NotImplementedError

    @cached_property
    def _waiting(self) -> list[Floats]:
        """Law of the number that wait at each slot, those that just joined included."""
        law: Floats = self._start
        laws: list[Floats] = []
        for joined, hazard in zip(self._arrivals, self._hazards, strict=True):
            law = np.concatenate([np.zeros(joined), law])
            laws.append(law)
            low, high = _window(law)
            n, m, chance = thinning(low, high, float(hazard))
            left = np.broadcast_to(n - m, chance.shape)
            flow = chance * law[low : high + 1, None]
            law = np.zeros(len(law)) + np.bincount(left[left >= 0], flow[left >= 0], len(law))
        return laws

    @cached_property
    def singleton_probabilities(self) -> Floats:
        """Probability that each push slot is received, (L,): exactly one UE sends in it."""
        received = np.zeros(self.slots)
        for j, (law, hazard) in enumerate(zip(self._waiting, self._hazards, strict=True)):
            received[j] = law @ _one_of(np.arange(len(law)), float(hazard))
        return received

    @cached_property
    def received_mean(self) -> float:
        """E[N'], the expected number of received pushes."""
        return float(self.singleton_probabilities.sum())

    @cached_property
    def received_pmf(self) -> Floats:
        """P(N' = r) for r = 0..min(L, N).

        In general a walk over (waiting, received), a second or so at 200 slots and 200 contenders.
        """
        most = min(self.slots, len(self._start) - 1 + sum(self._arrivals))
        state = np.zeros((len(self._start), most + 1))
        state[:, 0] = self._start
        for joined, hazard in zip(self._arrivals, self._hazards, strict=True):
            state = np.concatenate([np.zeros((joined, most + 1)), state])
            low, high = _window(state.sum(axis=1))
            _, m, chance = thinning(low, high, float(hazard))
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
        """P(X = j) for j = 0..L; entry 0 is the probability that nothing is pushed through."""
        pmf = np.zeros(self.slots + 1)
        silence = np.ones(len(self._start) + sum(self._arrivals))  # P(no singleton from here on | left)
        for j in range(self.slots, 0, -1):
            law, hazard = self._waiting[j - 1], float(self._hazards[j - 1])
            low, high = _window(law)
            n, m, chance = thinning(low, high, hazard)
            onward = chance * silence[np.maximum(n - m, 0)]
            pmf[j] = law[low : high + 1] @ onward[:, m[0] == 1].sum(axis=1)
            silence = np.zeros(len(law))
            silence[low : high + 1] = onward[:, m[0] != 1].sum(axis=1)
            silence = silence[self._arrivals[j - 1] :]
        pmf[0] = self._start @ silence
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
        """P(N' = 0): nothing is pushed through."""
        return float(self.last_slot_pmf[0])

    def expected_cost_exact(self, pull: int) -> float:
        """Q + E[X] in slots: what the paper's eq. (5) approximates. The downlink slot is not in it."""
        return pull + self.last_slot_mean

    def expected_cost_max(self, pull: int, ready: float = 1.0) -> float:
        """Expected `cost_max` of a frame, in slots: its last received slot, and the downlink slot.

        pull: reserved slots before the push slots.
        ready: probability that a pulled UE is ready; one that is not wastes its slot.
        """
        return expected_cost_max(pull, self.last_slot_mean, self.nothing_probability, ready)

    def expected_cost_sum(self, pull: int, ready: float = 1.0) -> float:
        """Expected `cost_sum` of a frame: slot + 1 over received UEs, as plotted in the paper's Fig. 6."""
        costs = pull + 1 + np.arange(1, self.slots + 1)
        return ready * pull * (pull + 3) / 2 + float(costs @ self.singleton_probabilities)


@dataclass(frozen=True)
class PushPeriod(_Period):
    """The push slots of a frame and UEs that contend for them, all alike and independent.

    slots: push slots, L.
    contenders: how many would contend: a number N, or a mapping from numbers to their probabilities.
    probability: access barring; each of them contends with this probability, else it stays silent.
    ready: (L,), the probability that slot 1, 2, ... is the first that a contender may use; what is missing
        from 1 is the probability that it is never ready. A contender picks uniformly from its first usable
        slot to the last. By default all are ready for slot 1.

    >>> push = PushPeriod(slots=4, contenders=3)
    >>> push.received_pmf.tolist(), push.last_slot_mean
    ([0.0625, 0.5625, 0.0, 0.375], 2.8125)
    >>> late = PushPeriod(slots=4, contenders=3, ready=(0.5, 0.0, 0.25, 0.0))
    >>> late.slot_probabilities.tolist()
    [0.125, 0.125, 0.25, 0.25]
    """

    slots: int
    contenders: Law
    probability: float = 1.0
    ready: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_whole("slots", self.slots)
        law_of(self.contenders)
        check_probability("probability", self.probability)
        if self.ready is not None:
            chances = np.asarray(self.ready, dtype=float)
            if chances.shape != (self.slots,) or not (chances >= 0).all() or not chances.sum() <= 1 + 1e-9:
                raise InputError("ready", self.ready, f"{self.slots} probabilities that add up to at most 1")

    @cached_property
    def _start(self) -> Floats:
        return law_of(self.contenders)

    @property
    def _arrivals(self) -> Sequence[int]:
        return [0] * self.slots

    @cached_property
    def _hazards(self) -> Floats:
        chances = self.slot_probabilities
        silent = 1 - self.probability * (1.0 if self.ready is None else min(1.0, math.fsum(self.ready)))
        if silent < 1e-12:  # rounding: whoever says "always" means it
            silent = 0.0
        left = silent + np.cumsum(chances[::-1])[::-1]
        return np.divide(chances, left, out=np.zeros(self.slots), where=left > 0)

    @property
    def _number(self) -> int | None:
        """N if outcomes can be counted: there are slots, all alike, and a known number of UEs all contend."""
        known = self.ready is None and self.probability == 1 and not isinstance(self.contenders, Mapping)
        return len(self._start) - 1 if known and self.slots else None

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
        return float(np.arange(len(self._start)) @ self._start) * float(self.slot_probabilities.sum())

    @property
    def success_probability(self) -> float:
        """Probability that a contender that sends is received: (1 - 1/L)^(N-1). 0 if nobody can send."""
        return self.received_mean / self.sending_mean if self.sending_mean > 0 else 0.0

    @cached_property
    def singleton_probabilities(self) -> Floats:
        """Probability that each push slot is received, (L,): E[N p (1-p)^(N-1)]."""
        n = np.arange(len(self._start))
        return np.array([self._start @ _one_of(n, float(p)) for p in self.slot_probabilities])

    @cached_property
    def received_pmf(self) -> Floats:
        """P(N' = r) for r = 0..min(L, N)."""
        if (n := self._number) is None:
            return super().received_pmf
        return _ratios(received_counts(self.slots, n), self.slots**n)

    @cached_property
    def received_variance(self) -> float:
        """Var N'. With equal slots, E[N'(N'-1)] = L(L-1) E[N(N-1) q^2 (1-2q)^(N-2)], q the chance of each."""
        if self.ready is not None or self.slots < 2:
            return super().received_variance
        n, q = np.arange(2, len(self._start)), self.probability / self.slots
        pairs = self.slots * (self.slots - 1) * q * q * (n * (n - 1) * (1 - 2 * q) ** (n - 2)) @ self._start[2:]
        return max(0.0, float(pairs) + self.received_mean - self.received_mean**2)

    @cached_property
    def last_slot_pmf(self) -> Floats:
        """P(X = j) for j = 0..L; entry 0 is the probability that nothing is pushed through."""
        if (n := self._number) is None:
            return super().last_slot_pmf
        return _ratios(last_slot_counts(self.slots, n), self.slots**n)

    @cached_property
    def last_slot_mean(self) -> float:
        """E[X], the push part of the expected cost; the closed form of docs/access.md where it applies."""
        if (n := self._number) is None:
            return super().last_slot_mean
        outcomes: int = self.slots**n
        return last_slot_total(self.slots, n) / outcomes

    def expected_cost_paper(self, pull: int) -> float:
        """The paper's eq. (5), averaged over the number of UEs that send; see `paper_cost`."""
        sending = sending_law(self._start, min(1.0, float(self.slot_probabilities.sum())))
        return pull + paper_push_cost(self.slots, sending)

    def paper_error(self, pull: int = 0) -> float:
        """Relative error of the paper's expected cost; with pull = 0, of its push part alone."""
        exact = self.expected_cost_exact(pull)
        return self.expected_cost_paper(pull) / exact - 1 if exact else 0.0


@dataclass(frozen=True)
class TimedPushPeriod(_Period):
    """The push slots of a frame and contenders of which each has a known first usable slot.

    slots: push slots, L.
    earliest: the first slot, from 1, that each contender may use; beyond L it stays silent.

    >>> TimedPushPeriod(slots=3, earliest=(1, 3)).last_slot_pmf.round(4).tolist()  # the second can only use 3
    [0.3333, 0.0, 0.0, 0.6667]
    """

    slots: int
    earliest: Sequence[int]

    def __post_init__(self) -> None:
        check_whole("slots", self.slots)
        for slot in self.earliest:
            check_whole("earliest", slot, least=1)

    @property
    def _start(self) -> Floats:
        return np.ones(1)

    @cached_property
    def _arrivals(self) -> Sequence[int]:
        return [int(k) for k in np.bincount(np.asarray(self.earliest, int), minlength=self.slots + 1)][
            1 : self.slots + 1
        ]

    @property
    def _hazards(self) -> Floats:
        return 1 / np.arange(self.slots, 0, -1)


# Parts that the planner shares ------------------------------------------------------------------------------


def paper_cost(slots: int, contenders: int, pull: int = 0) -> float:
    """The paper's expected cost (eq. 5), which takes successes as independent and slots as continuous.

    slots: push slots, L; contenders: N; pull: Q. Where the printed success probability means nothing (no push
    slots: a division by zero; no contenders: above 1) nothing can be received, and the cost is Q.
    """
    return pull + paper_push_cost(slots, law_of(contenders))


def paper_push_cost(slots: int, law: Floats) -> float:
    """The push part of eq. (5), averaged over the number of contenders: `law[n]` is the chance of n."""
    numbers = np.flatnonzero(law[1:]) + 1
    n: Floats = numbers.astype(float)
    if slots == 0 or n.size == 0:
        return 0.0
    p = (1 - 1 / slots) ** (n - 1)
    # The factors of Q add up to 1. With l_i = (L+1)(N-i+1)/(N+1), what is left is (L+1)/(N+1) times the sum
    # of 1 - (1-p)^k over k = 1..N, or N - (1-p) (1 - (1-p)^N) / p. If N p is small the two parts of that
    # cancel; its powers of p, with factors (-1)^(j+1) C(N+1,j+1), then say it better.
    several = n * p > 0.01
    usual, few = np.where(several & (p < 1), p, 0.5), np.where(several, 0.0, p)
    result = np.where(p < 1, n + (1 - usual) / usual * np.expm1(n * np.log1p(-usual)), n)
    series, term = np.zeros_like(n), n * (n + 1) / 2 * few
    for j in range(1, 9):
        series += term
        term = -term * few * (n - j) / (j + 2)
    costs = (slots + 1) / (n + 1) * np.where(several, result, series)
    return float(law[numbers] @ costs)


def expected_cost_max(pull: int, last_slot_mean: float, nothing: float, ready: float = 1.0) -> float:
    """Expected `cost_max`: 1 + Q + X if a push was received, else 1 + the last pull slot that was used.

    nothing: P(N' = 0); ready: probability that a pulled UE is ready by its slot, independently of the others.
    """
    return 1 + pull * (1 - nothing) + last_slot_mean + nothing * last_pull_mean(pull, ready)


def last_pull_mean(pull: int, ready: float) -> float:
    """Expected last pull slot whose UE was ready, 0 if none: the sum of z r (1-r)^(Q-z) over z = 1..Q."""
    z = np.arange(1, pull + 1)
    return float(z @ (ready * (1 - ready) ** (pull - z)))


def law_of(contenders: Law) -> Floats:
    """The number of contenders as an array: entry n is the probability of n.

    >>> law_of({0: 0.25, 2: 0.75}).tolist()
    [0.25, 0.0, 0.75]
    """
    if not isinstance(contenders, Mapping):
        check_whole("contenders", contenders)
        contenders = {int(contenders): 1.0}
    for number, chance in contenders.items():
        check_whole("contenders", number, most=1_000_000)
        check_probability("contenders", chance)
    if not contenders or abs(math.fsum(contenders.values()) - 1) > 1e-9:
        raise InputError("contenders", dict(contenders), "numbers with probabilities that add up to 1")
    law = np.zeros(max(contenders) + 1)
    for number, chance in contenders.items():
        law[number] = chance
    law /= law.sum()
    return law


def sending_law(law: Floats, probability: float) -> Floats:
    """Law of the number that contend when each of N (with law `law`) does so with the given probability."""
    if probability == 1:
        return law
    low, high = _window(law)
    _, m, chance = thinning(low, high, probability)
    sending = np.zeros(len(law))
    sending[m[0]] = law[low : high + 1] @ chance
    return sending


def check_whole(field: str, value: object, least: int = 0, most: int | None = None) -> None:
    """Refuse what is not a whole number in the range."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        limit = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(field, value, f"a whole number {limit}")


def check_probability(field: str, value: object) -> None:
    """Refuse what is not a number from 0 to 1."""
    if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
        raise InputError(field, value, "a probability, from 0 to 1")


def _one_of(n: NDArray[np.int64], p: float) -> Floats:
    """P(exactly one of n) = n p (1-p)^(n-1)."""
    chance: Floats = n * p * (1 - p) ** np.maximum(n - 1, 0)
    return chance


def _window(law: Floats) -> tuple[int, int]:
    """The states that matter, from the first to the last."""
    states = np.flatnonzero(law > NEGLIGIBLE)
    return (int(states[0]), int(states[-1])) if len(states) else (0, 0)


def _ratios(counts: Sequence[int], total: int) -> Floats:
    return np.array([count / total for count in counts])  # integers divide with one rounding, whatever their size
