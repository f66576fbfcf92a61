"""Framed ALOHA with equal slots and a known number of contenders: exact numbers of outcomes out of L^N.

L is the number of push slots, N that of contenders; each contender picks one of the slots and is received if no
other picked the same. The sums are inclusion-exclusion: they alternate and cancel almost entirely, so they are
done in integers. They are the reference for what the planner computes in floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise


def received_counts(slots: int, contenders: int) -> list[int]:
    """Return in how many of the L^N outcomes exactly r pushes are received, for r = 0..min(L, N).

    There are C(L,s) (N)_s (L-s)^(N-s) ways to choose s slots with a single contender each and to place the other
    N - s contenders anywhere else. This counts an outcome with r singletons C(r,s) times; shifting the polynomial
    with these coefficients by -1 gives the outcomes with exactly r.

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
    """Return in how many of the L^N outcomes the last received slot is j, for j = 0..L (0: nothing received).

    X <= L - k means no singleton among the last k slots: sum_s (-1)^s C(k,s) (N)_s (L-s)^(N-s). The
    sums for all k together are a triangle of additions, as in Pascal's.

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
    """Return the sum of X over all L^N outcomes, which is L^N E[X]: the closed form of the exact expected cost.

    X is the number of slots j with a singleton at j or later, so E[X] adds up P(X > L - k) over k = 1..L, and
    the sum of C(k,s) over k is C(L+1,s+1).
    """
    alone = _alone(slots, contenders)
    terms = [choices * ways for choices, ways in zip(_combinations(slots + 1, 1), alone, strict=False)]
    return sum(terms[1::2]) - sum(terms[2::2])


def _alone(slots: int, contenders: int) -> list[int]:
    """Return (N)_s (L-s)^(N-s) for s = 0..min(L, N): ways to have one contender in each of s given slots.

    Python's 0**0 = 1 is right at s = L = N: all contenders are alone and none is left for other slots.
    """
    who, ways = 1, []
    for s in range(min(slots, contenders) + 1):
        ways.append(who * (slots - s) ** (contenders - s))
        who *= contenders - s
    return ways


def _combinations(n: int, first: int) -> Iterator[int]:
    """Yield C(n, k) for k = first..n, each from the one before."""
    value = math.comb(n, first)
    for k in range(first, n + 1):
        yield value
        value = value * (n - k) // (k + 1)
