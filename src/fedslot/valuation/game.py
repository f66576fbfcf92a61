"""Cooperative games: coalitions of players, their utilities, and the geometry of their averaged models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Members = NDArray[np.bool_]
Utility = Callable[[Members], Floats]


@dataclass(frozen=True)
class Valuation:
    """Values of the players of one game.

    errors: (Y,) standard errors of the values (Y,); 0 where they are exact, NaN where one sample gives no estimate.
    utilities: number of coalition utilities that were evaluated.
    """

    values: Floats
    errors: Floats
    utilities: int


class Geometry:
    """Coordinates of coalition models, as far from one another as the models are.

    sizes: (Y,) weights of the players in an average, such as their numbers of samples.
    gram: (Y, Y) inner products of the updates minus the global model, which is the model of the empty coalition.
    points: (Y, Y) coordinates of the updates.
    """

    def __init__(self, sizes: NDArray[Any], gram: Floats) -> None:
        roots, axes = np.linalg.eigh(gram)
        scale = np.trace(gram) / len(gram)
        self.points = axes * np.sqrt(np.maximum(roots, 0) / (scale if scale > 0 else 1))
        self.sizes = np.asarray(sizes, dtype=float)
        self._sums = np.column_stack([self.points, np.ones(len(gram))]) * self.sizes[:, None]

    def place(self, members: Members) -> Floats:
        """Return coordinates (C, Y) of coalitions (C, Y), in units of the root mean square norm of an update.

        The empty coalition is at the origin.
        """
        sums = members.astype(float) @ self._sums
        total = sums[:, -1:]
        coordinates: Floats = sums[:, :-1] / np.where(total > 0, total, 1)
        return coordinates


class Game:
    """Evaluates coalitions in batches, each coalition at most once.

    players: number of players, Y.
    utility: maps coalitions (C, Y) to their utilities (C,), which must be finite.
    geometry: distances between coalition models, for methods that predict utilities; without it, averages of
        orthogonal updates of equal length.

    >>> game = Game(2, lambda members: members.sum(axis=1).astype(float))
    >>> game(np.array([[True, False], [True, True], [True, False]]))
    array([1., 2., 1.])
    >>> game.utilities
    2
    """

    def __init__(self, players: int, utility: Utility, geometry: Geometry | None = None) -> None:
        self.players = players
        self.geometry = geometry or Geometry(np.ones(players), np.eye(players))
        self.utility = utility
        self._cache: dict[bytes, float] = {}

    def __call__(self, members: Members) -> Floats:
        """Return the utilities (C,) of coalitions (C, Y)."""
        codes = [row.tobytes() for row in np.packbits(members, axis=1)]
        new = {code: row for row, code in enumerate(codes) if code not in self._cache}
        if new:
            utilities = self.utility(members[list(new.values())])
            if not np.isfinite(utilities).all():
                raise ValueError("utilities must be finite")
            self._cache.update(zip(new, utilities.tolist(), strict=True))
        return np.array([self._cache[code] for code in codes])

    @property
    def utilities(self) -> int:
        """Number of different coalitions that have been evaluated."""
        return len(self._cache)

    @property
    def empty(self) -> float:
        """Utility of the empty coalition."""
        return float(self(np.zeros((1, self.players), dtype=bool))[0])

    @property
    def full(self) -> float:
        """Utility of the grand coalition, which all players form."""
        return float(self(np.ones((1, self.players), dtype=bool))[0])


class ValuationMethod(Protocol):
    """Values the players of a game, drawing random numbers from the given generator only."""

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation: ...


def coalition_weights(members: Members, sizes: NDArray[np.int64]) -> Floats:
    """Return the averaging weights (C, Y + 1) of coalitions (C, Y) over the global model (column 0) and the updates.

    The empty coalition is the global model itself.

    >>> coalition_weights(np.array([[False, False], [True, True]]), np.array([30, 10]))
    array([[1.  , 0.  , 0.  ],
           [0.  , 0.75, 0.25]])
    """
    weights = np.empty((len(members), len(sizes) + 1))
    shares = np.multiply(members, sizes.astype(float), out=weights[:, 1:])
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.maximum(total, 1)
    weights[:, :1] = total == 0
    return weights


def weights_by_missing(members: Members, sizes: NDArray[np.int64]) -> Floats:
    """Return averaging weights (C, Y + 2), where the last column is that of the average of all updates.

    A coalition of more than half of the players is that average without the others, so that one of all but a few
    players takes few models as well.

    >>> weights_by_missing(np.array([[True, False, False], [True, True, False]]), np.array([30, 10, 40]))
    array([[ 0.,  1.,  0.,  0.,  0.],
           [ 0.,  0.,  0., -1.,  2.]])
    """
    most = 2 * members.sum(axis=1, keepdims=True) > members.shape[1]
    weights = np.column_stack([coalition_weights(members & ~most, sizes), np.zeros(len(members))])
    total = (members * sizes.astype(float)).sum(axis=1, keepdims=True)
    weights = np.where(most, 0, weights)
    weights[:, 1:-1] -= most * ~members * sizes / np.maximum(total, 1)
    weights[:, -1:] = most * sizes.sum() / np.maximum(total, 1)
    return weights
