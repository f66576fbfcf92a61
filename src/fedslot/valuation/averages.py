"""Averages of predicted utilities over the coalitions of all sizes from 2 to Y - 2, weighted as in a semivalue.

Predictions are linear in the evaluated utilities. So an average is a row of weights of these, from which follow the
value and what leaving one of them out would change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.valuation.game import Floats, Geometry, Members
from fedslot.valuation.semivalues import coefficients

PREDICTED = 4000  # predicted coalitions of one size, divided by the size: small coalitions differ most
LEAST_CIRCLES = 12  # of players in random order, for a stratum of sizes, divided by its smallest size
STRATA = 16  # of sizes, by their logarithm: marginal contributions fall like 1 / size


class Predictor(NamedTuple):
    """Predicts utility at a point as kernel(point, points) @ coefficients + constant.

    points: (n, R) the evaluated coalitions. length: squared length of the kernel. coefficients: (n,).
    """

    points: Floats
    length: float
    coefficients: Floats
    constant: float


class Averages(NamedTuple):
    """Weights of a player's value in the kernels at the evaluated points (Y, n) and in the constant (Y,).

    variances: (Y,) squared standard errors of the predicted part of the values, from the coalitions drawn.
    """

    kernels: Floats
    constants: Floats
    variances: Floats


def gaussian(a: Floats, b: Floats, length: float) -> Floats:
    """Return the Gaussian kernel exp(-|a - b|^2 / (2 length)) between points (A, R) and (B, R)."""
    return _of_products(a @ b.T, (a**2).sum(axis=1), (b**2).sum(axis=1), length)


def _of_products(products: Floats, a: Floats, b: Floats, length: float) -> Floats:
    """Return the Gaussian kernel (A, B) from inner products (A, B), which it overwrites, and squares (A,) and (B,)."""
    products -= 0.5 * a[:, None]
    products -= 0.5 * b
    products /= length
    kernel: Floats = np.exp(products, out=products)
    return kernel


def by_size(geometry: Geometry, weights: Floats, predictor: Predictor, rng: np.random.Generator) -> Averages:
    """Average over each size by itself: over all of its coalitions, or over a balanced sample.

    weights: (Y,) weights p(s) of the semivalue.
    """
    players = len(weights)
    kernels, constants, variances = np.zeros((players, len(predictor.points))), np.zeros(players), np.zeros(players)
    for circles in _coalitions(players, rng):
        coalitions = circles.reshape(-1, players)
        means = coefficients(coalitions, weights) / len(coalitions)
        kernel = gaussian(geometry.place(coalitions), predictor.points, predictor.length)
        kernels += means.T @ kernel
        constants += means.sum(axis=0)
        if len(circles) > 1:
            predicted = kernel @ predictor.coefficients + predictor.constant
            by_circle = (means * predicted[:, None]).reshape(circles.shape).sum(axis=1)
            variances += len(circles) * by_circle.var(axis=0, ddof=1)
    return Averages(kernels, constants, variances)


def _coalitions(players: int, rng: np.random.Generator) -> Iterator[Members]:
    """Yield all coalitions (1, C, Y) of each size from 2 to Y - 2, or independent samples (B, Y, Y) of them.

    A sample is the arcs of that length of the players on a circle in random order, so that all occur equally often.
    """
    for size in range(2, players - 1):
        most = PREDICTED // size
        if comb(players, size) <= most:
            coalitions = np.zeros((comb(players, size), players), dtype=bool)
            np.put_along_axis(coalitions, np.array(list(combinations(range(players), size))), True, axis=1)
            yield coalitions[None]
        else:
            circles = rng.random((max(2, most // players), 1, players)).argsort(axis=2)
            yield (circles - np.arange(players)[:, None]) % players < size


def by_strata(geometry: Geometry, weights: Floats, predictor: Predictor, rng: np.random.Generator) -> Averages:
    """Average over strata of sizes, of which each circle draws one: the number of circles hardly grows with Y.

    Models of many players are near that of all, where predictions are nearly linear in the model, and the model in the
    mean over its members of `steps`, below. Contributions to a linear function of that mean are known. So circles only
    tell the contributions to what predictions are beyond it (a control variate).

    weights: (Y,) weights p(s) of the semivalue.
    """
    players, (points, length, coefficients, _) = len(weights), predictor
    shares, grand = geometry.sizes / geometry.sizes.mean(), geometry.sizes @ geometry.points / geometry.sizes.sum()
    steps = (geometry.points - grand) * shares[:, None]  # their sum is 0
    at_grand = gaussian(grand[None], points, length)  # (1, n), with gradients (n, R)
    gradients = at_grand.T / length * (points - grand)
    placed = np.column_stack([geometry.points, np.ones(players)]) * shares[:, None]
    products = placed[:, :-1] @ points.T  # those of an arc are sums of these, so that no circle takes a matrix product
    squares = (points**2).sum(axis=1)

    kernels, slopes, variances = np.zeros((players, len(points))), np.zeros_like(steps), np.zeros(players)
    for sizes in np.split(np.arange(2, players - 1), _edges(players)):
        chances = (weights[sizes - 1] + weights[sizes]) / 2  # of coalitions with a player and of those without
        if not chances.sum():
            continue
        circles = max(2, LEAST_CIRCLES // sizes[0], PREDICTED // (sizes[0] * players))
        found = np.zeros((circles, players))
        for circle in range(circles):
            size, order = rng.choice(sizes, p=chances / chances.sum()), rng.permutation(players)
            scale = chances.sum() / chances[size - sizes[0]] / circles
            sums = _arcs(placed[order], size)  # the arcs of that length are the coalitions
            total, arcs = sums[:, -1:], sums[:, :-1] / sums[:, -1:]
            kernel = _of_products(_arcs(products[order], size) / total, (arcs**2).sum(axis=1), squares, length)
            kernel -= at_grand
            linear = (sums[:, :-1] - total * grand) / size
            of_kernel, of_linear = (scale * _contributions(part, size, weights) for part in (kernel, linear))
            kernels[order] += of_kernel
            slopes[order] -= of_linear
            found[circle, order] = of_kernel @ coefficients - of_linear @ (coefficients @ gradients)
        variances += circles * found.var(axis=0, ddof=1)
        # the mean over the members is (Y - s) / (s (Y - 1)) of a player's step with it, and -1 / (Y - 1) without it
        slopes += (weights[sizes - 1] * (players - sizes) / sizes + weights[sizes]).sum() / (players - 1) * steps
    constant = weights[1] - weights[players - 2]  # p(s - 1) - p(s), summed over the sizes
    return Averages(kernels + slopes @ gradients.T + constant * at_grand, np.full(players, constant), variances)


def _arcs(rows: Floats, length: int) -> Floats:
    """Return the sums (Y, m) of `length` consecutive rows (Y, m) of a circle, from each row on."""
    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    rows.cumsum(axis=0, out=sums[1:])
    arcs: Floats = np.concatenate([sums[length:], sums[1:length] + sums[-1]])  # the later ones go past the last row
    arcs -= sums[:-1]
    return arcs


def _contributions(utilities: Floats, size: int, weights: Floats) -> Floats:
    """Return the contributions (Y, m) of players on a circle to the utilities (Y, m) of its arcs of one size."""
    players = len(weights)
    # arcs with a player start up to size - 1 before it; all others are without it
    contributions = np.roll(_arcs(utilities, size), size - 1, axis=0)
    of_joined, of_missing = weights[size - 1] / size, weights[size] / (players - size)
    contributions *= of_joined + of_missing
    contributions -= of_missing * utilities.sum(axis=0)
    return contributions


def _edges(players: int) -> NDArray[np.int64]:
    """Return where strata of the sizes 2 to Y - 2 begin, counted from 2: each is a factor wider than the one before."""
    edges = np.unique(np.geomspace(2, players - 1, STRATA + 1).round().astype(np.int64))
    return edges[1:-1] - 2
