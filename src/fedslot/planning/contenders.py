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
    """Return the distribution of the number of contenders as an array: entry n is the probability of n.

    >>> contender_pmf({0: 0.25, 2: 0.75}).tolist()
    [0.25, 0.0, 0.75]
    """
    if not isinstance(contenders, Mapping):
        check_whole("contenders", contenders)
        contenders = {int(contenders): 1.0}
    for number, probability in contenders.items():
        check_whole("contenders", number, most=MOST)
        check_probability("contenders", probability)
    if not contenders or abs(math.fsum(contenders.values()) - 1) > 1e-9:
        raise InputError("contenders", dict(contenders), "numbers with probabilities that add up to 1")
    pmf = np.zeros(max(contenders) + 1)
    for number, probability in contenders.items():
        pmf[number] = probability
    pmf /= pmf.sum()
    return pmf


def at_most(number: int, pmf: Floats) -> Floats:
    """Return the distribution of the smaller one of a number and the number of contenders.

    >>> at_most(1, contender_pmf({0: 0.25, 2: 0.75})).tolist()
    [0.25, 0.75]
    """
    if number >= len(pmf) - 1:
        return pmf
    capped = pmf[: number + 1].copy()
    capped[number] = pmf[number:].sum()
    return capped


def most_who_contend(contenders: Contenders) -> int:
    """Return the number of UEs that may contend: the largest number of contenders, or those of a binomial."""
    if isinstance(contenders, Mapping):
        return contenders.ues if isinstance(contenders, Binomial) else max(contenders)
    return contenders


def contenders_among(ues: int, contenders: Contenders) -> Floats:
    """Return the distribution of the number of contenders, as an array, if only `ues` UEs may contend.

    A fixed number is capped at `ues`. With a `Binomial`, each of these UEs contends with its probability.

    >>> contenders_among(1, 2).tolist(), contenders_among(1, Binomial(2, 0.25)).round(6).tolist()
    ([0.0, 1.0], [0.75, 0.25])
    """
    if isinstance(contenders, Binomial) and contenders.ues > ues:
        return contender_pmf(Binomial(ues, contenders.probability))
    return at_most(ues, contender_pmf(contenders))


def parse_contenders(text: str) -> Contenders:
    """Read contenders from text: `10`, `poisson:8`, `binomial:40:0.25`, or numbers and probabilities `5:0.5,10:0.5`.

    Numbers that are less likely than 1e-14 are left out.

    >>> parse_contenders("10"), parse_contenders("5:0.5,10:0.5")
    (10, {5: 0.5, 10: 0.5})
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
        if rest:
            pairs = [pair.split(":") for pair in text.split(",")]
            given = {int(number): float(probability) for number, probability in pairs}
            contender_pmf(given)
            return given
        contender_pmf(int(text))
        return int(text)
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
