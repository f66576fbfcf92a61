"""Semivalues: weighted means of marginal contributions, of which Shapley and Banzhaf values are two.

The value of player k is the sum over sizes s of p(s) times the mean of U(S + k) - U(S) over the coalitions S of s
players without k. The weights p(s) say which semivalue it is, and they sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from fedslot.valuation.game import Floats, Members

Semivalue = Callable[[int], Floats]  # maps the number of players to the weights p(s)


def shapley(players: int) -> Floats:
    """Return the weights (Y,) of Shapley values: every size counts the same."""
    return np.full(players, 1 / players)


def banzhaf(players: int) -> Floats:
    """Return the weights (Y,) of Banzhaf values: every coalition counts the same."""
    return np.array([comb(players - 1, size) / 2 ** (players - 1) for size in range(players)])


def coefficients(members: Members, weights: Floats) -> Floats:
    """Return c (C, Y) such that the values are sums over sizes of the mean of c(S) U(S) over coalitions S of that size.

    Utilities of coalitions (C, Y) with a player count for it, those without count against it. So every size can be
    averaged by itself, over all of its coalitions or over a sample in which each player is a member equally often.

    weights: (Y,) weights p(s) of the semivalue.
    """
    players = members.shape[1]
    sizes = np.arange(players + 1)
    joined = np.append(0, weights) * players / np.maximum(sizes, 1)
    missing = np.append(weights, 0) * players / np.maximum(players - sizes, 1)
    size = members.sum(axis=1)
    signed: Floats = np.where(members, joined[size, None], -missing[size, None])
    return signed
