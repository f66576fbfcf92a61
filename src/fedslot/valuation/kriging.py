"""Shapley values by kriging: the utility of a coalition is a smooth function of where its averaged model lies.

A coalition's model is an average of known updates, so the distance between the models of any two coalitions is
known without evaluating them. Utilities of a few coalitions then say much about all the others: a Gaussian
process over that geometry predicts them, and Shapley values, being linear in the utilities, come with their
posterior standard errors. Alone and leave-one-out coalitions matter most and are always evaluated; random ones
and their complements follow until the errors are small enough to rank the players.

This is the method of geostatistics known as kriging (or Bayesian quadrature), on the simplex of averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from fedslot.valuation.exact import FEW_PLAYERS, exact
from fedslot.valuation.game import Game, Members, Valuation

Floats = NDArray[np.float64]

FEW, MANY = 400, 30_000  # coalitions whose predicted utilities make errors, and values
BLOCK = 4096  # coalitions that a thread predicts at a time
LINES = 256  # coalitions whose correlations stay within the processor's cache
DENSE = 2000  # coalitions up to which a dense matrix is faster than a sparse one
ROOM = 1 << 22  # numbers of a kernel that are in memory at a time
SCALES = tuple(4.0**power for power in range(-3, 4))  # of lengths, times the mean square size of an update
NUGGETS = (1e-8, 1e-4, 1e-2)  # share of the variance that is roughness, not trend (accuracy comes in steps)


@dataclass(frozen=True)
class Geometry:
    """Where coalitions lie: at the averages of their members' points, and no one at a point of its own.

    sizes: (Y,) how much each player counts in an average.
    gram: (Y + 1, Y + 1) inner products of no one's point, which comes first, and the players'.
    """

    sizes: NDArray[Any]
    gram: Floats

    @cached_property
    def points(self) -> Floats:
        """Coordinates (Y + 1, R) of the points: as far from one another as they are, in as few dimensions as can be."""
        roots, axes = linalg.eigh(self.gram)
        found: Floats = axes * np.sqrt(np.maximum(roots, 0))
        return found

    def place(self, members: Members) -> Floats:
        """Coordinates (C, R) of coalitions (C, Y)."""
        sums = members.astype(float) @ (
            self.sizes[:, None] * np.column_stack([self.points[1:], np.ones(len(self.sizes))])
        )
        total = sums[:, -1]
        found: Floats = np.where(total[:, None] > 0, sums[:, :-1] / np.maximum(total, 1)[:, None], self.points[0])
        return found


def kriging(
    game: Game, geometry: Geometry, rng: np.random.Generator, tolerance: float = 0.25, max_utilities: int = 1000
) -> Valuation:
    """Estimate Shapley values from few utilities and the geometry of the coalitions.

    tolerance: stop once the root mean square standard error is below this share of the standard deviation of
        the values over players.
    max_utilities: evaluate no further coalitions beyond this.
    """
    players = game.players
    if players <= FEW_PLAYERS:
        return exact(game)
    scale = np.trace(geometry.gram) / max(1, np.count_nonzero(np.diag(geometry.gram)))
    if scale <= 0:  # all models are one: nothing to tell apart
        gain = (game.full - game.empty) / players
        return Valuation(np.full(players, gain), np.zeros(players), game.utilities)
    few, functional = _functional(players, FEW)
    near = geometry.place(few)
    members = _design(players)
    while True:
        process = _Process.fit(geometry.place(members), game(members), scale)
        errors = process.errors(near, functional)
        known = np.sqrt(np.mean(errors**2)) <= tolerance * (functional @ process.mean(near)).std()
        if known or len(members) + players > max_utilities:
            break
        members = np.unique(np.concatenate([members, _pairs(players, rng)]), axis=0)
        if 2 * len(members) > 2**players:
            return exact(game)
    many, functional = _functional(players, MANY)
    blocks = [many[first : first + BLOCK] for first in range(0, len(many), BLOCK)]
    values = functional @ np.concatenate([process.mean(geometry.place(block)) for block in blocks])
    return Valuation(values, errors, game.utilities)


@dataclass(frozen=True)
class _Process:
    """A Gaussian process with a constant mean, given utilities y at places x."""

    x: Floats
    length: float
    level: float
    variance: float
    factor: tuple[Floats, bool]
    weights: Floats

    @classmethod
    def fit(cls, x: Floats, y: Floats, scale: float) -> _Process:
        """Choose length and nugget by the likelihood, the level and the variance being estimated along."""
        if not np.isfinite(y).all():
            raise ValueError("utilities must be finite")
        lengths, rough = np.repeat(np.multiply(scale, SCALES), len(NUGGETS)), np.multiply.outer(NUGGETS, np.eye(len(y)))
        kernels = np.concatenate([_kernel(x, x, scale * times) + rough for times in SCALES])
        factors = np.linalg.cholesky(kernels)
        mean = y.mean()
        ones, ys = np.moveaxis(np.linalg.solve(factors, np.column_stack([np.ones(len(y)), y - mean])), 2, 0)
        above = (ones * ys).sum(axis=1) / (ones**2).sum(axis=1)
        variances = np.maximum(((ys - above[:, None] * ones) ** 2).mean(axis=1), np.finfo(float).tiny)
        halves = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)  # of the logarithms of determinants
        best = int(np.argmax(-0.5 * len(y) * np.log(variances) - halves))
        factor, level = (factors[best], True), mean + above[best]
        weights = linalg.cho_solve(factor, y - level, check_finite=False)
        return cls(x, lengths[best], level, variances[best], factor, weights)

    def kernel(self, a: Floats, b: Floats) -> Floats:
        return _kernel(a, b, self.length)

    def mean(self, places: Floats) -> Floats:
        """Predicted utilities (C,) at places (C, R)."""
        return self.level + _predict(places, self.x, self.length, self.weights)

    def errors(self, places: Floats, functional: sparse.csr_array) -> Floats:
        """Posterior standard deviations (Y,) of linear functionals (Y, C) of the utilities at places (C, R)."""
        step = max(1, min(FEW // 2, ROOM // len(places)))  # many players have very many coalitions
        shapley: Any = functional.toarray() if len(places) <= DENSE else functional

        def before_data(first: int) -> Floats:
            some = slice(first, first + step)
            shares: Floats = (shapley[:, some] * (shapley @ self.kernel(places, places[some]))).sum(axis=1)
            return shares

        variance = np.sum([before_data(first) for first in range(0, len(places), step)], axis=0)
        with_data: Floats = shapley @ self.kernel(places, self.x)
        left = variance - np.einsum("ij,ij->i", with_data, linalg.cho_solve(self.factor, with_data.T).T)
        deviations: Floats = np.sqrt(self.variance * np.maximum(left, 0))
        return deviations


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    """Correlations exp(-|a - b|^2 / (2 length)) of places (C, R) and (D, R)."""
    exponents: Floats = a @ b.T
    exponents -= 0.5 * np.einsum("ij,ij->i", a, a)[:, None]
    exponents -= 0.5 * np.einsum("ij,ij->i", b, b)
    exponents /= length
    return np.exp(np.minimum(exponents, 0, out=exponents), out=exponents)


def _predict(a: Floats, b: Floats, length: float, weights: Floats) -> Floats:
    """Sums (C,) of the correlations, weighted (D,)."""
    parts = [_kernel(a[first : first + LINES], b, length) @ weights for first in range(0, len(a), LINES)]
    return np.concatenate(parts)


def _design(players: int) -> Members:
    """The coalitions to begin with: no one, all, each alone, all but one."""
    alone = np.eye(players, dtype=bool)
    return np.concatenate([np.zeros((1, players), dtype=bool), np.ones((1, players), dtype=bool), alone, ~alone])


def _pairs(players: int, rng: np.random.Generator) -> Members:
    """As many random coalitions as players, half of them the complements of the others, of sizes between."""
    sizes = rng.integers(2, players - 1, size=(players + 1) // 2)
    chosen = rng.permuted(np.tile(np.arange(players), (len(sizes), 1)), axis=1) < sizes[:, None]
    return np.concatenate([chosen, ~chosen])


@lru_cache(maxsize=16)
def _functional(players: int, coalitions: int) -> tuple[Members, sparse.csr_array]:
    """Coalitions (C, Y), and the matrix (Y, C) that makes Shapley values of their utilities.

    All coalitions if they are no more than wanted, else arcs of random circles. Few circles average less, so the
    errors that they give are rather too large than too small.
    """
    if 2**players > coalitions:
        return _circles(players, coalitions)
    members = (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1
    size = members.sum(axis=1)
    weight = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)] + [0])
    return members, sparse.csr_array(np.where(members.T, weight[size - 1], -weight[size]))


def _circles(players: int, coalitions: int) -> tuple[Members, sparse.csr_array]:
    """Arcs of random circles of players: see `cyclic` for how they make Shapley values."""
    rng = np.random.default_rng(players)
    count = max(2, coalitions // (players * (players + 1)))
    circles = rng.permuted(np.tile(np.arange(players), (count, 1)), axis=1)  # player at each place
    shape = (count, players, players + 1)  # circle, start, length
    circle, start, place = np.ogrid[:count, :players, :players]
    members = np.zeros((*shape, players), dtype=bool)
    lengths = np.arange(players + 1)
    for offset in range(players):  # an arc of length l holds the places start, ..., start + l - 1
        who = circles[:, (np.arange(players) + offset) % players]
        np.put_along_axis(
            members, np.broadcast_to(who[:, :, None, None], (*shape, 1)), (lengths > offset)[:, None], axis=3
        )
    column = np.arange(np.prod(shape)).reshape(shape)
    longer, shorter = column[:, :, 1:], column[:, :, :-1]
    last = circles[circle, (start + place) % players]  # the player that a longer arc from the same start adds
    first = circles[circle, np.broadcast_to(start, (count, players, players))]
    without_first = column[circle, (start + 1) % players, place]
    rows = np.stack([last, last, first, first])
    columns = np.stack([longer, shorter, longer, without_first])
    signs = np.broadcast_to(np.array([1.0, -1.0, 1.0, -1.0])[:, None, None, None], rows.shape) / (2 * players * count)
    matrix = sparse.csr_array((signs.ravel(), (rows.ravel(), columns.ravel())), shape=(players, column.size))
    return members.reshape(-1, players), matrix
