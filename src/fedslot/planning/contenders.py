"""How many UEs contend: a number or a distribution, and how access barring thins it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedslot.support.checks import check_probability, check_whole
from fedslot.support.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Contenders: TypeAlias = int | Mapping[int, float]
"""The number of contenders, or the probability of each number."""

MOST = 1_000_000
"""The largest number of contenders."""

NEGLIGIBLE = 1e-30
"""Probability below which a state is left out: far below the rounding of what it is added to."""


class Binomial(dict[int, float]):
    """The probability of each number of contenders, if each of some UEs contends independently of the others.

    Numbers that are less likely than 1e-14 are left out.

    >>> {number: round(chance, 6) for number, chance in Binomial(2, 0.5).items()}
    {0: 0.25, 1: 0.5, 2: 0.25}
    """

    def __init__(self, ues: int, probability: float) -> None:
        from scipy.stats import binom  # slow to import

        check_whole("contenders", ues, most=MOST)
        check_probability("contenders", probability)
        super().__init__(_likely(binom.pmf(np.arange(ues + 1), ues, probability)))
        self.ues, self.probability = ues, probability


def contender_pmf(contenders: Contenders) -> Floats:
    """Return the distribution of the number of contenders as an array: entry n is the probability of n."""
    chances = contenders if isinstance(contenders, Mapping) else {contenders: 1.0}
    for number, chance in chances.items():
        check_whole("contenders", number, most=MOST)
        check_probability("contenders", chance)
    if not chances or abs(math.fsum(chances.values()) - 1) > 1e-9:
        raise InputError("contenders", dict(chances), "numbers with probabilities that add up to 1")
    pmf = np.zeros(max(chances) + 1)
    pmf[list(chances)] = list(chances.values())
    pmf /= pmf.sum()
    return pmf


def mean(pmf: Floats) -> float:
    """Return the mean of a distribution: entry n is the probability of n."""
    return float(np.arange(len(pmf)) @ pmf)


def parse_contenders(text: str) -> Contenders:
    """Read contenders from text: `10`, `poisson:8`, `binomial:40:0.25`, or numbers and probabilities `5:0.5,10:0.5`.

    Numbers that are less likely than 1e-14 are left out.
    """
    kind, *rest = text.strip().split(":")
    try:
        if kind == "poisson":
            from scipy.stats import poisson  # slow to import

            (mean,) = map(float, rest)
            if not 0 <= mean <= 100_000:
                raise ValueError(mean)
            return _likely(poisson.pmf(np.arange(mean + 8 * math.sqrt(mean) + 30), mean))
        if kind == "binomial":
            number, probability = rest
            return Binomial(int(number), float(probability))
        pairs = [pair.split(":") for pair in text.split(",")] if rest else []
        contenders = {int(number): float(chance) for number, chance in pairs} if pairs else int(text)
        contender_pmf(contenders)
        return contenders
    except ValueError as error:
        allowed = (
            "a whole number, poisson:MEAN (up to 100,000), binomial:N:P, or N:P,N:P,... with different numbers and "
            "probabilities that add up to 1"
        )
        raise InputError("contenders", text, allowed) from error


def sending_pmf(pmf: Floats, probability: float) -> Floats:
    """Return the distribution of the number that send when each contender does so with the given probability."""
    if probability == 1:
        return pmf
    low, high = likely_range(pmf)
    _, m, chance = thinning(low, high, probability)
    sending = np.zeros(len(pmf))
    sending[m[0]] = pmf[low : high + 1] @ chance
    return sending


def thinning(low: int, high: int, p: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the binomial distributions of n = low..high trials, on the band of m that has nearly all probability.

    returns: n (W, 1), m (1, B) and P(m of n) (W, B). The band, ten standard deviations and 20 to either side,
    leaves out less than 1e-20 of each distribution. A negligible p counts as 0; the smallest would overflow in SciPy.
    """
    from scipy.stats import binom  # slow to import

    p = min(p, 1.0) if p > NEGLIGIBLE else 0.0
    spread = [10 * math.sqrt(n * p * (1 - p)) + 20 for n in (low, high)]
    first, last = max(0, math.floor(low * p - spread[0])), min(high, math.ceil(high * p + spread[1]))
    n, m = np.arange(low, high + 1)[:, None], np.arange(first, last + 1)[None, :]
    return n, m, np.asarray(binom.pmf(m, n, p), dtype=float)


def likely_range(pmf: Floats) -> tuple[int, int]:
    """Return the first and the last number that is not negligible."""
    numbers = np.flatnonzero(pmf > NEGLIGIBLE)
    return (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, 0)


def _likely(pmf: Floats) -> dict[int, float]:
    numbers = np.flatnonzero(pmf > 1e-14)
    likely = pmf[numbers] / pmf[numbers].sum()
    return dict(zip(numbers.tolist(), likely.tolist(), strict=True))
