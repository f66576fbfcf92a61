"""Framed ALOHA by generating functions: exact expectations at any number of slots, without a recursion over them.

N contenders each pick one of L slots with probability p/L, or stay silent. The probability that none of k given
slots has a single contender is N! times the coefficient of z^N in

    e^((1-p) z) (e^u - u)^k e^((L-k) u) = e^z w^k    with u = p z / L and w = 1 - u e^-u:

a slot contributes e^u whatever happens in it, and e^u - u if it has no singleton. The coefficient is the mean of the
function over a circle (Cauchy's formula). On the circle of radius N the trapezoidal rule needs some nine times sqrt(N)
points, since all coefficients are positive and at most those of e^z: beyond nine standard deviations of a Poisson
distribution of mean N they are negligible. What remains is rounding, about 1e-12 of the largest result.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedslot.planning.contenders import Floats

Complexes: TypeAlias = NDArray[np.complex128]
Numbers: TypeAlias = NDArray[np.int64]

WINDOW = 2000
"""Number of contenders above which the circle is cut off where e^z is below 1e-50 of its largest value."""
BLOCK = 256
"""Numbers of slots that are computed at once, which keeps their points in the processor's cache."""
UNHEARD = 1e-20
"""Expected number of received pushes below which there are none."""


def push_moments(slots: Floats, pmf: Floats, probability: Floats) -> tuple[Floats, Floats, Floats]:
    """Return E[N'], E[X] and P(X = 0): N' counts received pushes, X is the last received push slot, 0 if there is none.

    slots: (S,) numbers of push slots, L. pmf: entry n is the probability of n contenders. probability: (S,) of sending.

    >>> received, last, nothing = push_moments(np.array([4.0]), np.array([0.0, 0.0, 0.0, 1.0]), np.ones(1))
    >>> received.round(12).tolist(), last.round(12).tolist(), nothing.round(12).tolist()
    ([1.6875], [2.8125], [0.0625])
    """
    received, last, nothing = np.zeros((3, len(slots)))
    for n in np.flatnonzero(pmf).tolist():
        mean = _received_mean(slots, n, probability)
        moments = _last_slot_moments(slots, n, probability, np.flatnonzero(mean > UNHEARD))
        received += pmf[n] * mean
        last += pmf[n] * moments[0]
        nothing += pmf[n] * moments[1]
    return received, last, np.minimum(nothing, 1.0)


def received_mean(slots: int, pmf: Floats, probability: float) -> float:
    """Return E[N'] alone, which takes far less time than `push_moments`."""
    count, chance = np.array([float(slots)]), np.array([probability])
    return math.fsum(pmf[n] * _received_mean(count, n, chance)[0] for n in np.flatnonzero(pmf).tolist())


def received_pmf(slots: int, pmf: Floats, probability: float) -> Floats:
    """Return P(N' = r) for r = 0..min(L, most contenders): the coefficients of e^z C(L,r) (1-w)^r w^(L-r)."""
    chances = np.zeros(min(slots, len(pmf) - 1) + 1)
    for n in np.flatnonzero(pmf).tolist():
        if not n or not _is_heard(slots, n, probability):
            chances[0] += pmf[n]
            continue
        r = np.arange(min(slots, n) + 1)[:, None]
        weights, density, alone, log_missed = _circle(np.array([[float(slots)]]), n, np.array([[probability]]))
        ways = np.array([[math.lgamma(slots + 1) - math.lgamma(k + 1) - math.lgamma(slots - k + 1)] for k in r[:, 0]])
        values = np.exp(density + ways + r * np.log(alone) + (slots - r) * log_missed) @ weights
        chances[: len(r)] += pmf[n] * np.clip(values.real, 0.0, 1.0)
    return chances


def last_slot_at_most(last: Numbers, slots: int, pmf: Floats, probability: float) -> Floats:
    """Return P(X <= j) for each j in `last` (J,): none of the slots after it is received."""
    chances = np.zeros(len(last))
    for n in np.flatnonzero(pmf).tolist():
        below = np.ones(len(last))
        if _is_heard(slots, n, probability):
            weights, density, _, log_missed = _circle(np.array([[float(slots)]]), n, np.array([[probability]]))
            after = np.maximum(slots - last, 0)[:, None]
            for first in range(0, len(last), BLOCK):
                block = slice(first, first + BLOCK)
                below[block] = np.clip((np.exp(density + after[block] * log_missed) @ weights).real, 0.0, 1.0)
            below[last >= slots] = 1.0
        chances += pmf[n] * below
    return np.minimum(chances, 1.0)


def _received_mean(slots: Floats, contenders: int, probability: Floats) -> Floats:
    """Return E[N'] = N p (1 - p/L)^(N-1), the expected number of received pushes, for each number of slots (S,)."""
    share = np.divide(probability, slots, out=np.ones(len(slots)), where=slots > 0)
    with np.errstate(divide="ignore"):  # all in one slot: log 0
        alone = np.exp((contenders - 1) * np.log1p(-share)) if contenders > 1 else np.ones(len(slots))
    return np.where(slots > 0, contenders * probability * alone, 0.0)


def _is_heard(slots: int, contenders: int, probability: float) -> bool:
    return bool(_received_mean(np.array([float(slots)]), contenders, np.array([probability]))[0] > UNHEARD)


def _last_slot_moments(slots: Floats, contenders: int, probability: Floats, indices: Numbers) -> tuple[Floats, Floats]:
    """Return E[X] and P(X = 0) for each number of slots (S,); indices: of those where pushes are received."""
    last, nothing = np.zeros(len(slots)), np.ones(len(slots))
    for first in range(0, len(indices), BLOCK):
        block = indices[first : first + BLOCK]
        count = slots[block, None]
        weights, density, alone, log_missed = _circle(count, contenders, probability[block, None])
        none = np.exp(density + count * log_missed)
        nothing[block] = np.clip((none @ weights).real, 0.0, 1.0)
        total = _total(count, np.exp(density), none, alone, log_missed)
        last[block] = np.clip((total @ weights).real, 0.0, count[:, 0])
    return last, nothing


def _circle(slots: Floats, contenders: int, probability: Floats) -> tuple[Floats, Complexes, Complexes, Complexes]:
    """Return the weights of the points on the circle, and there: log(N! e^z / z^N), u e^-u and log(1 - u e^-u).

    slots, probability: (S, 1). returns: weights (P,), the logarithm (P,), and two arrays (S, P).
    """
    half = math.ceil(4.5 * math.sqrt(contenders)) + 8  # of the points; the other half is conjugate
    points = half if contenders <= WINDOW else math.ceil(16 / math.sqrt(contenders) * half / math.pi)
    angle = np.arange(points + 1) * (math.pi / half)
    weights = np.full(points + 1, 1 / half)
    weights[0] = 0.5 / half
    if points == half:
        weights[-1] = 0.5 / half
    n = contenders
    # log(N! e^N / N^N), from Stirling's series where the terms of N log N would cancel
    size = (
        math.lgamma(n + 1) - n * math.log(n) + n
        if n < 50
        else 0.5 * math.log(2 * math.pi * n) + 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5)
    )
    density = size - 2 * n * np.sin(angle / 2) ** 2 + 1j * n * (np.sin(angle) - angle)
    u = probability * (n / slots) * np.exp(1j * angle)
    alone = u * np.exp(-u)
    return weights, density, alone, np.log1p(-alone)


def _total(slots: Floats, density: Complexes, none: Complexes, alone: Complexes, log_missed: Complexes) -> Complexes:
    """Return e^z times the sum of 1 - w^k over k = 1..L, whose coefficient is E[X], the sum of P(X > L - k).

    The sum is L + w (w^L - 1) / (1 - w); if L (1 - w) is small, its terms cancel, and its power series is used.
    """
    few = np.abs(slots * alone) < 0.01
    usual = np.where(few, 0.5, alone)
    exponent = slots * log_missed
    near = np.abs(exponent) < 1
    rise = np.where(near, density * np.expm1(np.where(near, exponent, 0.0)), none - density)
    closed = slots * density + (1 - usual) / usual * rise
    if not few.any():
        return closed
    series, term = np.zeros_like(alone), slots * (slots + 1) / 2 * np.where(few, alone, 0.0)
    for j in range(1, 9):
        series += term
        term = -term * np.where(few, alone, 0.0) * (slots - j) / (j + 2)
    return np.where(few, series * density, closed)
