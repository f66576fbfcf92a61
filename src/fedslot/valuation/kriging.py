"""Values by kriging: few utilities are evaluated, and those of all other coalitions are predicted.

A coalition's model is an average of known updates, so the distance between any two coalition models is known without
evaluating them, and utility is a smooth function of the model. Kriging, which is interpolation by a Gaussian kernel
over these distances, predicts utilities from a sample. Values are linear in utilities:

1. Evaluate the empty and the grand coalition, each player alone, all but each player, and random coalitions with their
   complements, whose sizes follow the weights of KernelSHAP.
2. Choose the kernel's length that predicts the random coalitions best when each is left out in turn.
3. Average the predictions over the coalitions of each remaining size: all of them, or a balanced sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from fedslot.valuation.exact import FEW_PLAYERS, exact
from fedslot.valuation.game import Floats, Game, Members, Valuation
from fedslot.valuation.semivalues import Weights, coefficients, shapley

LENGTHS = tuple(4.0**power for power in range(-2, 4))  # squared, relative to the mean squared norm of an update
JITTER = 1e-8  # added to the kernel's diagonal, since coalition models may coincide
PREDICTED = 4000  # predicted coalitions of one size, divided by the size: small coalitions differ most


def kriging(game: Game, rng: np.random.Generator, utilities_per_ue: int = 5, semivalue: Weights = shapley) -> Valuation:
    """Estimate values from a fixed number of utilities and the geometry of the coalitions.

    Up to six players, or where the budget covers all coalitions, the values are exact.

    utilities_per_ue: number of utilities to evaluate, divided by the number of players; 3 at least.
    semivalue: which values, by their weights.
    """
    players = game.players
    budget = utilities_per_ue * players
    if players <= FEW_PLAYERS or 2**players <= budget:
        return exact(game, semivalue)
    corners, sample = _corners(players), _sample(players, budget, rng)
    members = np.concatenate([corners, sample])
    utility, points, weights = game(members), game.geometry.place(members), semivalue(players)
    utility -= utility.mean()  # which changes no value, and loses no digits to the mean
    fits = [_fit(points, utility, length) for length in LENGTHS]
    fit = min(fits, key=lambda fit: np.abs(fit.residuals[len(corners) :]).sum())

    kernels, constants = np.zeros((players, len(members))), np.zeros(players)
    for coalitions in _between(players, rng):
        shares = coefficients(coalitions, weights) / len(coalitions)
        kernels += shares.T @ _kernel(game.geometry.place(coalitions), points, fit.length)
        constants += shares.sum(axis=0)
    predicted = kernels @ fit.solution + np.outer(constants, fit.constant)
    known = coefficients(corners, weights) / np.repeat([1, 1, players, players], [1, 1, players, players])[:, None]
    values = predicted @ utility + known.T @ utility[: len(corners)]

    # the change of the values if one sampled coalition is left out (jackknife), and the error of estimating the mean
    # residual of all coalitions from those of the sample; the latter keeps the errors honest if predictions are bad
    plain = coefficients(sample, weights) / (len(sample) * _size_distribution(players)[sample.sum(axis=1), None])
    squares = predicted[:, len(corners) :] ** 2 + plain.T**2
    return Valuation(values, np.sqrt(squares @ fit.residuals[len(corners) :] ** 2), game.utilities)


@dataclass(frozen=True)
class _Fit:
    """Kriging with a constant mean from utilities at n points.

    length: squared length of the kernel.
    solution: (n, n) maps utilities to the coefficients of the kernel at each point.
    constant: (n,) maps utilities to the constant.
    residuals: (n,) utilities minus their predictions from all other points.
    """

    length: float
    solution: Floats
    constant: Floats
    residuals: Floats


def _fit(points: Floats, utility: Floats, length: float) -> _Fit:
    """Fit utilities (n,) at points (n, R) with a given length."""
    inverse = np.linalg.inv(_kernel(points, points, length) + JITTER * np.eye(len(points)))
    ones = inverse.sum(axis=1)
    solution = inverse - np.outer(ones, ones) / ones.sum()
    return _Fit(length, solution, ones / ones.sum(), solution @ utility / np.diag(solution))


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    """Gaussian kernel exp(-|a - b|^2 / (2 length)) between points (A, R) and (B, R)."""
    exponent = a @ b.T
    exponent -= 0.5 * (a**2).sum(axis=1)[:, None]
    exponent -= 0.5 * (b**2).sum(axis=1)
    exponent /= length
    return np.exp(exponent, out=exponent)


def _corners(players: int) -> Members:
    """The empty coalition, the grand coalition, each player alone, all but each player: (2 + 2Y, Y)."""
    alone = np.eye(players, dtype=bool)
    return np.concatenate([np.zeros((1, players), dtype=bool), np.ones((1, players), dtype=bool), alone, ~alone])


def _size_distribution(players: int) -> Floats:
    """Probabilities (Y + 1,) of the sizes 2 to Y - 2 in the sample, in proportion to 1 / (size (Y - size))."""
    sizes = np.arange(players + 1)
    chances = np.where((sizes > 1) & (sizes < players - 1), 1 / np.maximum(sizes * (players - sizes), 1), 0)
    return chances / chances.sum()


def _sample(players: int, budget: int, rng: np.random.Generator) -> Members:
    """Distinct random coalitions and their complements, as many as the budget leaves besides the corners."""
    chances, chosen = _size_distribution(players), {}
    while 2 * (players + 1 + len(chosen) + 1) <= budget:
        coalition = rng.permutation(players) < rng.choice(players + 1, p=chances)
        coalition ^= coalition[0]  # of a coalition and its complement, the one without player 0
        chosen[coalition.tobytes()] = coalition
    half = np.array(list(chosen.values()))
    return np.concatenate([half, ~half])


def _between(players: int, rng: np.random.Generator) -> Iterator[Members]:
    """For each size from 2 to Y - 2, all coalitions of that size or a sample with each player equally often.

    The sample is the arcs of that length of players on circles in random order.
    """
    for size in range(2, players - 1):
        most = PREDICTED // size
        if comb(players, size) <= most:
            coalitions = np.zeros((comb(players, size), players), dtype=bool)
            np.put_along_axis(coalitions, np.array(list(combinations(range(players), size))), True, axis=1)
        else:
            circles = rng.random((max(1, most // players), 1, players)).argsort(axis=2)
            arcs = (circles - np.arange(players)[:, None]) % players < size
            coalitions = arcs.reshape(-1, players)
        yield coalitions
