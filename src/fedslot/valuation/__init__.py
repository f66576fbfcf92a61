"""What each received update is worth: Shapley values of abstract games, exact or sampled."""

from __future__ import annotations

import numpy as np

from fedslot.valuation.cyclic import cyclic
from fedslot.valuation.exact import exact
from fedslot.valuation.game import Game, Utility, Valuation
from fedslot.valuation.gtg import gtg

__all__ = ["Game", "Utility", "Valuation", "auto", "cyclic", "exact", "gtg"]

EXACT_PLAYERS = 8  # 256 utilities, about what sampling takes to come close


def auto(game: Game, rng: np.random.Generator, tolerance: float = 0.25, max_utilities: int = 1000) -> Valuation:
    """Exact values where all subsets cost about as little as sampling, else cyclic blocks."""
    if game.players <= EXACT_PLAYERS:
        return exact(game)
    return cyclic(game, rng, tolerance, max_utilities)
