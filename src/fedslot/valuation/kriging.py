"""Values by kriging: few utilities are evaluated, and those of all other coalitions are predicted.

A coalition's model is an average of known updates, so the distance between any two coalition models is known without
evaluating them, and utility is a smooth function of the model. Kriging, which is interpolation by a Gaussian kernel
over these distances, predicts utilities from a sample. Values are linear in utilities:

1. Evaluate the empty and the grand coalition, each player alone, all but each player, and random coalitions with their
   complements, whose sizes follow the weights of KernelSHAP.
2. Choose the kernel's length that predicts the random coalitions best when each is left out in turn.
3. Average the predictions over the coalitions of each remaining size: all of them, or a balanced sample; of many
   players, over strata of sizes.

The fit takes the cube of the number of utilities, and averages its product with the numbers of players and of circles.
So for many players fewer random coalitions are evaluated, and the length is chosen on part of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fedslot.valuation.averages import Predictor, by_size, by_strata, gaussian
from fedslot.valuation.exact import FEW_PLAYERS, exact
from fedslot.valuation.game import Floats, Game, Members, Valuation
from fedslot.valuation.semivalues import banzhaf, coefficients, shapley

LENGTHS = tuple(4.0**power for power in range(-2, 4))  # squared, relative to the mean squared norm of an update
JITTER = 1e-8  # added to the kernel's diagonal, since coalition models may coincide
MOST_BY_SIZE = 50  # players up to which each size is averaged by itself
MOST_SAMPLING = 150  # players for whom random coalitions are evaluated; each further one adds its two corners only
MOST_CHOOSING = 700  # evaluated coalitions on which the length is chosen


@dataclass(frozen=True)
class Kriging:
    """Shapley values from a fixed number of utilities and the geometry of the coalitions.

    Up to six players, or where the budget covers all coalitions, the values are exact.

    utilities_per_ue: number of utilities to evaluate, divided by the number of players; 3 at least. Each player beyond
        the first 150 adds two.
    """

    semivalue = staticmethod(shapley)
    utilities_per_ue: Annotated[int, Field(ge=3, le=100)] = 5

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        players = game.players
        budget = evaluated(players, self.utilities_per_ue)
        if players <= FEW_PLAYERS or 2**players <= budget:
            return exact(game, self.semivalue)
        corners, sample = _corners(players), _sample(players, budget, rng)
        members, sampled = np.concatenate([corners, sample]), slice(len(corners), None)
        utility, points, weights = game(members), game.geometry.place(members), self.semivalue(players)
        utility -= utility.mean()  # adds 0 to the values, and keeps the digits of small differences
        fit = _best_fit(points, utility, len(corners))

        # the values are shares @ utility, where utilities of corners count directly too
        predictor = Predictor(points, fit.length, fit.solution @ utility, float(fit.constant @ utility))
        average = by_size if players <= MOST_BY_SIZE else by_strata
        kernels, constants, variances = average(game.geometry, weights, predictor, rng)
        shares = kernels @ fit.solution + np.outer(constants, fit.constant)
        counts = np.repeat([1, 1, players, players], [1, 1, players, players])
        shares[:, : len(corners)] += (coefficients(corners, weights) / counts[:, None]).T

        # Three independent errors: that of averaging predictions over a sample of coalitions; the change of the values
        # if an evaluated coalition were left out (jackknife); and the sampling error of the mean residual over all
        # coalitions, which keeps errors honest where predictions are bad.
        chances = _size_distribution(players)[sample.sum(axis=1)]
        corrections = (coefficients(sample, weights) / (len(sample) * chances[:, None])).T
        variances += (shares[:, sampled] ** 2 + corrections**2) @ fit.residuals[sampled] ** 2
        return Valuation(shares @ utility, np.sqrt(variances), game.utilities)


def evaluated(players: int, utilities_per_ue: int) -> int:
    """Return the number of utilities to evaluate of many players."""
    return 2 * players + (utilities_per_ue - 2) * min(players, MOST_SAMPLING)


@dataclass(frozen=True)
class Banzhaf(Kriging):
    """Banzhaf values: the mean marginal contribution to a coalition, all coalitions being equally likely."""

    semivalue = staticmethod(banzhaf)


class _Fit(NamedTuple):
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


def _best_fit(points: Floats, utility: Floats, corners: int) -> _Fit:
    """Fit with the length that predicts random coalitions, which follow the corners, best in cross-validation."""
    step = max(1, -(-corners // max(1, MOST_CHOOSING + corners - len(points))))  # takes part of the corners
    chosen, taken = np.r_[:corners:step, corners : len(points)], -(-corners // step)
    fits = (_fit(points[chosen], utility[chosen], length) for length in LENGTHS)  # one at a time, since they are large
    best = min(fits, key=lambda fit: float(np.abs(fit.residuals[taken:]).sum()))
    return best if step == 1 else _fit(points, utility, best.length)


def _fit(points: Floats, utility: Floats, length: float) -> _Fit:
    """Fit utilities (n,) at points (n, R) with a given length."""
    inverse = np.linalg.inv(gaussian(points, points, length) + JITTER * np.eye(len(points)))
    ones = inverse.sum(axis=1)
    solution = inverse - np.outer(ones, ones) / ones.sum()
    return _Fit(length, solution, ones / ones.sum(), solution @ utility / np.diag(solution))


def _corners(players: int) -> Members:
    """Return the empty and the grand coalition, each player alone, and all but each player: (2 + 2Y, Y)."""
    alone = np.eye(players, dtype=bool)
    return np.concatenate([np.zeros((1, players), dtype=bool), np.ones((1, players), dtype=bool), alone, ~alone])


def _size_distribution(players: int) -> Floats:
    """Return probabilities (Y + 1,) of the sizes 2 to Y - 2 in the sample, in proportion to 1 / (size (Y - size))."""
    sizes = np.arange(players + 1)
    chances = np.where((sizes > 1) & (sizes < players - 1), 1 / np.maximum(sizes * (players - sizes), 1), 0)
    distribution: Floats = chances / chances.sum()
    return distribution


def _sample(players: int, budget: int, rng: np.random.Generator) -> Members:
    """Draw distinct random coalitions and their complements, up to the budget that the corners leave."""
    chances = _size_distribution(players)
    chosen: dict[bytes, Members] = {}
    while 2 * (players + 1 + len(chosen) + 1) <= budget:
        coalition = rng.permutation(players) < rng.choice(players + 1, p=chances)
        coalition ^= coalition[0]  # of a coalition and its complement, the one without player 0
        chosen[coalition.tobytes()] = coalition
    half = np.array(list(chosen.values()))
    return np.concatenate([half, ~half])
