"""Valuation methods by name, or your own as `package.module:Name`."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.valuation.game import Game, Valuation


class ValuationMethod(Protocol):
    """Values the players of a game, drawing random numbers from the given generator only."""

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        """Return the values of the players, their standard errors, and the number of utilities that were evaluated."""
        ...


METHODS: Kind[ValuationMethod] = kinds.VALUATIONS
