"""Exact values from the utilities of all 2^Y coalitions, in one batch; leave-one-out values, which need only Y + 1."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from fedslot.valuation.game import Game, Valuation
from fedslot.valuation.semivalues import Semivalue, coefficients, shapley

FEW_PLAYERS = 6  # 64 coalitions: up to here sampling would evaluate nearly as many


@dataclass(frozen=True)
class Exact:
    """Exact Shapley values."""

    def __call__(self, game: Game, rng: np.random.Generator | None = None) -> Valuation:
        return exact(game)


def exact(game: Game, semivalue: Semivalue = shapley) -> Valuation:
    """Return Shapley values by eq. (7) of the paper, or another semivalue, from the utilities of all coalitions.

    >>> glove = Game(3, lambda m: (m[:, 0] & (m[:, 1] | m[:, 2])).astype(float))  # one left, two right gloves
    >>> exact(glove).values.round(4)
    array([0.6667, 0.1667, 0.1667])
    """
    players = game.players
    members = (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1
    counts = np.array([comb(players, size) for size in range(players + 1)])
    shares = coefficients(members, semivalue(players)) / counts[members.sum(axis=1), None]
    return Valuation(game(members) @ shares, np.zeros(players), game.utilities)


@dataclass(frozen=True)
class LeaveOneOut:
    """Utility that the grand coalition would lose without each player.

    >>> LeaveOneOut()(Game(3, lambda members: members.sum(axis=1) ** 2.0)).values
    array([5., 5., 5.])
    """

    def __call__(self, game: Game, rng: np.random.Generator | None = None) -> Valuation:
        players = game.players
        utility = game(np.concatenate([np.ones((1, players), dtype=bool), ~np.eye(players, dtype=bool)]))
        return Valuation(utility[0] - utility[1:], np.zeros(players), game.utilities)
