"""GTG-Shapley as in the paper's experiments: guided, truncated sampling of permutations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.valuation.game import Game, Valuation


@dataclass(frozen=True)
class GTG:
    """Shapley values from sweeps of Y permutations in which each player is first in turn.

    permutations: minimum number of permutations, rounded up to whole sweeps. Earlier work tests for convergence with a
        mean over players, which efficiency keeps constant, so that the test passes at once, at about 20 permutations.
    between: if the grand coalition gains less than this, all values are 0.
    within: a permutation ends once its utility is this close to that of the grand coalition.

    The permutations of a sweep advance together, so that each step is one batch of utilities.
    """

    permutations: Annotated[int, Field(ge=1, le=10**9)] = 20
    between: Annotated[float, Field(ge=0)] = 1e-4
    within: Annotated[float, Field(ge=0)] = 1e-4

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        players = game.players
        empty, full = game.empty, game.full
        if abs(full - empty) < self.between:
            return Valuation(np.zeros(players), np.zeros(players), game.utilities)
        sweeps = -(-self.permutations // players)
        gains = np.concatenate([_sweep(game, rng, empty, full, self.within) for _ in range(sweeps)])
        count = len(gains)
        # permutations are taken as independent, which overstates the error a little: each player is first in turn
        errors = gains.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(players, np.nan)
        return Valuation(gains.mean(axis=0), errors, game.utilities)


def _sweep(game: Game, rng: np.random.Generator, empty: float, full: float, within: float) -> NDArray[np.float64]:
    """Return the marginal contributions (Y permutations, Y players) of one sweep."""
    players = game.players
    orders = np.array([[first, *rng.permutation(np.delete(np.arange(players), first))] for first in range(players)])
    gains = np.zeros((players, players))
    members = np.zeros((players, players), dtype=bool)
    utility = np.full(players, empty)
    for position in range(players):
        going = np.flatnonzero(np.abs(full - utility) >= within)
        if not len(going):
            break
        newcomers = orders[going, position]
        members[going, newcomers] = True
        after = game(members[going])
        gains[going, newcomers] = after - utility[going]
        utility[going] = after
    return gains
