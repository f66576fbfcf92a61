"""Choosing UEs by a score: those of the highest, or at random by weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import UEs


def top(scores: NDArray[np.float64], count: int) -> UEs:
    """Return the `count` UEs of highest score (K,), best first; equal ones by index.

    >>> top(np.array([0.2, 0.9, 0.2, 0.5]), 3).tolist()
    [1, 3, 0]
    """
    count = min(count, len(scores))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    # partial selection: the time is linear in the number of UEs, and short from the side without long ties (of -inf)
    least = -np.partition(-scores, count - 1)[count - 1]
    better, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    chosen = np.concatenate([better, equal[: count - len(better)]])
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def draw(log_weights: NDArray[np.float64], count: int, rng: np.random.Generator) -> UEs:
    """Draw `count` UEs without replacement, one after the other, each in proportion to its weight among the rest.

    The weights exp(log_weights), (K,), need not sum to 1. The UEs with the largest log weight plus Gumbel noise have
    this distribution (the Gumbel-max trick), and no weight can overflow.
    """
    return top(log_weights + rng.gumbel(size=len(log_weights)), count)
