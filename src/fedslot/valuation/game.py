"""A cooperative game: coalitions of players and their utilities, each evaluated at most once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Members = NDArray[np.bool_]
Utility = Callable[[Members], NDArray[np.float64]]


@dataclass(frozen=True)
class Valuation:
    """Shapley values of the players of one game.

    values: (Y,) the values.
    errors: (Y,) standard errors; 0 where the values are exact, NaN where one sample gives no estimate.
    utilities: how many coalition utilities were evaluated.
    """

    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    utilities: int


class Game:
    """Remembers utilities, and asks for new ones in batches.

    players: number of players, Y.
    utility: maps coalitions (C, Y) to their utilities (C,).

    >>> game = Game(2, lambda members: members.sum(axis=1).astype(float))
    >>> game(np.array([[True, False], [True, True], [True, False]]))
    array([1., 2., 1.])
    >>> game.utilities
    2
    """

    def __init__(self, players: int, utility: Utility) -> None:
        self.players = players
        self._utility = utility
        self._known: dict[bytes, float] = {}

    def __call__(self, members: Members) -> NDArray[np.float64]:
        """Utilities (C,) of coalitions (C, Y)."""
        codes = [row.tobytes() for row in np.packbits(members, axis=1)]
        new = {code: row for row, code in enumerate(codes) if code not in self._known}
        if new:
            found = self._utility(members[list(new.values())])
            self._known.update(zip(new, found.tolist(), strict=True))
        return np.array([self._known[code] for code in codes])

    @property
    def utilities(self) -> int:
        """How many different coalitions have been evaluated."""
        return len(self._known)

    @property
    def empty(self) -> float:
        """Utility of no one."""
        return float(self(np.zeros((1, self.players), dtype=bool))[0])

    @property
    def full(self) -> float:
        """Utility of all."""
        return float(self(np.ones((1, self.players), dtype=bool))[0])
