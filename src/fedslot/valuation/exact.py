"""Exact values by all subsets: 2^Y utilities, in one batch."""

from __future__ import annotations

from math import comb

import numpy as np

from fedslot.valuation.game import Game, Valuation
from fedslot.valuation.semivalues import Weights, coefficients, shapley

FEW_PLAYERS = 6  # 64 coalitions: up to here sampling would evaluate nearly as many


def exact(game: Game, semivalue: Weights = shapley) -> Valuation:
    """Shapley values by eq. (7) of the paper, or another semivalue, from the utilities of all coalitions.

    >>> glove = Game(3, lambda m: (m[:, 0] & (m[:, 1] | m[:, 2])).astype(float))  # one left, two right gloves
    >>> exact(glove).values.round(4)
    array([0.6667, 0.1667, 0.1667])
    """
    players = game.players
    members = (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1
    counts = np.array([comb(players, size) for size in range(players + 1)])
    shares = coefficients(members, semivalue(players)) / counts[members.sum(axis=1), None]
    return Valuation(game(members) @ shares, np.zeros(players), game.utilities)
