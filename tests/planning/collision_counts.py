"""Framed ALOHA with equal slots and a known number of contenders: exact numbers of outcomes out of L^N.

Each of N contenders picks one of L push slots and is received if no other picked the same. The sums are
inclusion-exclusion: they alternate and cancel almost entirely, so they are done in integers.
"""

from __future__ import annotations

from itertools import pairwise
from math import comb, perm


def received_counts(slots: int, contenders: int) -> list[int]:
    """Return in how many of the L^N outcomes exactly r pushes are received, for r = 0..min(L, N).

    There are C(L,s) (N)_s (L-s)^(N-s) ways to choose s slots with a single contender each and to place the other
    N - s contenders anywhere else. This counts an outcome with r singletons C(r,s) times.

    >>> received_counts(2, 2)
    [2, 0, 2]
    """
    ways = [comb(slots, s) * alone for s, alone in enumerate(_alone(slots, contenders))]
    return [
        sum((-1) ** (s - r) * comb(s, r) * count for s, count in enumerate(ways[r:], start=r)) for r in range(len(ways))
    ]


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


def _alone(slots: int, contenders: int) -> list[int]:
    """Return (N)_s (L-s)^(N-s) for s = 0..min(L, N): ways to have one contender in each of s given slots."""
    return [perm(contenders, s) * (slots - s) ** (contenders - s) for s in range(min(slots, contenders) + 1)]
