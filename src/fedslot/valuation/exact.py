"""Exact Shapley values by all subsets: 2^Y utilities, in one batch."""

from __future__ import annotations

from math import factorial

import numpy as np

from fedslot.valuation.game import Game, Valuation

FEW_PLAYERS = 6  # 64 coalitions: up to here sampling would ask for nearly as many


def exact(game: Game) -> Valuation:
    """Shapley values by eq. (7) of the paper: the mean marginal contribution over sizes and coalitions.

    >>> glove = Game(3, lambda m: (m[:, 0] & (m[:, 1] | m[:, 2])).astype(float))  # one left, two right gloves
    >>> exact(glove).values.round(4)
    array([0.6667, 0.1667, 0.1667])
    """
    players = game.players
    codes = np.arange(2**players)
    members = (codes[:, None] >> np.arange(players)) & 1 == 1
    utility = game(members)
    size = members.sum(axis=1)
    # weight of a coalition without player k: |S|! (Y - |S| - 1)! / Y!
    weight = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)])
    values = np.empty(players)
    for player in range(players):
        without = codes[~members[:, player]]
        gain = utility[without | (1 << player)] - utility[without]
        values[player] = weight[size[without]] @ gain
    return Valuation(values, np.zeros(players), game.utilities)
