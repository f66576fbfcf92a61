"""Theorem 1 of the paper, a bound on the mean local training latency, beside Hoeffding's inequality.

The training times T_1..T_K of K UEs are independent and lie in [a, b] = [p log(1/eps), 2 T_F] (Remark 1).
Hoeffding's inequality then says, for any h the user picks,

    E[T] <= mean(T) + (b - a) sqrt(log(1/h) / (2K))    with probability at least 1 - h.

The theorem as printed fixes h = exp(-2 T_max^2 / (K (b - a)^2)), Hoeffding's bound on the probability that the *sum* of
the K times is off by T_max. Its margin has the factor A = log(1/eps^2) (2q - p(1 - theta)) where Hoeffding has b - a,
and no 1/sqrt(K). It states no probability; by Hoeffding, a bound with this margin fails with a probability of at most
h^(K (A / (b - a))^2). That depends on p and q, which the paper does not give: with p = 1e-6 and its other defaults it
is 0.993 if q = 0.5, and 0.071 if q = 10.

>>> paper = printed_bound(8.0, ues=200, frame_length=20, budget=20, epsilon=0.1, theta=0.1, p=1e-6, q=0.5)
>>> round(paper.h, 4), round(paper.margin, 3), paper.vacuous
(0.9975, 0.163, 'it is only certain to hold with probability 0.0066')
>>> larger = printed_bound(8.0, ues=200, frame_length=20, budget=20, epsilon=0.1, theta=0.1, p=1e-6, q=10)
>>> round(larger.margin, 2), round(larger.failure, 3)
(3.26, 0.071)
>>> plain = hoeffding_bound(8.0, ues=200, lower=0, upper=40, failure=0.05)
>>> round(plain.margin, 2), plain.vacuous
(3.46, None)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedslot.support.checks import check_whole
from fedslot.support.errors import InputError


@dataclass(frozen=True)
class LatencyBound:
    """An upper bound on an expected latency: E[T] <= mean + margin, except with probability `failure`.

    mean: the average of the observed times. upper: the largest value that a time can have, b.
    failure: probability, by Hoeffding's inequality, that a bound with this margin does not hold; of the printed theorem
        h^(K (A / (b - a))^2), with A the factor of its margin. h: the theorem's, or the probability that was chosen.
    """

    mean: float
    margin: float
    upper: float
    failure: float
    h: float

    @property
    def bound(self) -> float:
        """The bound itself."""
        return self.mean + self.margin

    @property
    def vacuous(self) -> str | None:
        """Why the bound is vacuous; None if its margin is positive, its value below b and its probability above 1/2."""
        if self.margin <= 0:
            return f"its margin {self.margin:.4g} is not above 0, and a sample mean is as often too low"
        if self.bound >= self.upper:
            return f"it is not below {self.upper:.4g}, which no time exceeds"
        if self.failure >= 0.5:
            return f"it is only certain to hold with probability {1 - self.failure:.2g}"
        return None


def hoeffding_bound(mean: float, *, ues: int, lower: float, upper: float, failure: float) -> LatencyBound:
    """Hoeffding: E[T] <= mean + (b - a) sqrt(log(1/h) / (2K)) with probability at least 1 - h.

    mean: average of the K observed times; ues: K; lower, upper: a and b; failure: h, e.g. 0.05.
    """
    check_whole("ues", ues, least=1)
    if not lower < upper:
        raise InputError("lower", lower, f"below upper ({upper})")
    if not 0 < failure < 1:
        raise InputError("failure", failure, "a probability between 0 and 1")
    margin = (upper - lower) * math.sqrt(math.log(1 / failure) / (2 * ues))
    return LatencyBound(mean, margin, upper, failure, failure)


def printed_bound(
    mean: float,
    *,
    ues: int,
    frame_length: float,
    budget: float,
    epsilon: float,
    theta: float,
    p: float,
    q: float,
) -> LatencyBound:
    """Theorem 1 as printed: mean + log(1/eps^2) (2q - p(1-theta)) sqrt(log(1/h) / 2).

    mean: average of the observed times; ues: K; frame_length: T_F; budget: T_max, in the unit of the times.
    epsilon, theta: local and global accuracy; p, q: the theorem's scaling constants of local and global work.
    """
    check_whole("ues", ues, least=1)
    for field, value in {"frame_length": frame_length, "budget": budget, "p": p, "q": q}.items():
        if not value > 0:
            raise InputError(field, value, "above 0")
    if not 0 < epsilon < 1:
        raise InputError("epsilon", epsilon, "between 0 and 1")
    if not 0 <= theta <= 1:
        raise InputError("theta", theta, "from 0 to 1")
    lower, upper = p * math.log(1 / epsilon), 2 * frame_length
    if not lower < upper:
        raise InputError("p", p, f"small enough for p log(1/epsilon) to be below 2 frame_length ({upper})")
    log_h = -2 * budget**2 / (ues * (upper - lower) ** 2)
    factor = math.log(1 / epsilon**2) * (2 * q - p * (1 - theta))
    margin = factor * math.sqrt(-log_h / 2)
    failure = math.exp(ues * (factor / (upper - lower)) ** 2 * log_h) if factor > 0 else 1.0
    return LatencyBound(mean, margin, upper, failure, math.exp(log_h))
