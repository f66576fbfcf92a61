"""Shapley values from cyclic blocks: all permutations that go round a random circle in either direction.

Put the players on a circle in random order. The Y permutations that start at each player in turn and go round
clockwise, and the Y that go round anticlockwise, have the arcs of the circle as their prefixes: Y(Y - 1) arcs, the
empty coalition and the grand coalition. So one block of Y(Y - 1) + 2 utilities gives every player 2Y marginal
contributions, each player has every position exactly twice (stratified), and each permutation comes with its reverse
(antithetic). Within a block, contributions depend on one another. But blocks are independent, unbiased estimates, and
their scatter gives standard errors.

Two blocks say little about the variance of one player: the root of it would be 20% too small on average, and an
interval of two such errors would hold 70% of the values instead of 95%. So the variance of a player is a weighted mean
of its own, with one degree of freedom less than there are blocks, and of that of all players, which counts as `SHARED`
degrees of freedom. The standard error is that of Student's t with these degrees of freedom, which is larger than the
root of that variance over the number of blocks, and two of them on either side hold about 95%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedslot.valuation.exact import FEW_PLAYERS, exact
from fedslot.valuation.game import Floats, Game, Valuation

SHARED = 4  # degrees of freedom of the mean variance of all players in that of each


@dataclass(frozen=True)
class Cyclic:
    """Shapley values from cyclic blocks, at least two, until they are known well enough to rank players.

    Up to six players, where two blocks would evaluate nearly all coalitions, the values are exact.

    tolerance: stop once the root mean square standard error is below this share of the values' standard deviation.
    max_utilities: begin no further block if all blocks together could then evaluate more than this. Cached utilities
        count too: with few players all coalitions are soon cached, and nothing else would end the loop.
    """

    tolerance: Annotated[float, Field(gt=0)] = 0.25
    max_utilities: Annotated[int, Field(ge=2, le=10**9)] = 1000

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        players = game.players
        if players <= FEW_PLAYERS:  # two circles of few players may be the same, without any scatter
            return exact(game)
        arcs = players * (players - 1)
        blocks = [_block(game, rng), _block(game, rng)]
        while True:
            values = np.mean(blocks, axis=0)
            errors = _errors(np.array(blocks))
            is_precise = np.sqrt(np.mean(errors**2)) <= self.tolerance * values.std()
            if is_precise or (len(blocks) + 1) * arcs + 2 > self.max_utilities:
                return Valuation(values, errors, game.utilities)
            blocks.append(_block(game, rng))


def _errors(blocks: Floats) -> Floats:
    """Return the standard errors (Y,) of the mean of independent estimates (B, Y)."""
    count, variances = len(blocks), blocks.var(axis=0, ddof=1)
    freedom = count - 1 + SHARED
    variance = ((count - 1) * variances + SHARED * variances.mean()) / freedom
    errors: Floats = np.sqrt(variance / count * freedom / (freedom - 2))
    return errors


def _block(game: Game, rng: np.random.Generator) -> Floats:
    """Return values (Y,) from all arcs of one random circle."""
    players = game.players
    circle = rng.permutation(players)
    start, position, length = np.ogrid[:players, :players, : players + 1]
    members = np.zeros((players, players + 1, players), dtype=bool)  # [start, length, player]
    members[:, :, circle] = ((position - start) % players < length).transpose(0, 2, 1)
    utility = game(members.reshape(-1, players)).reshape(players, players + 1)
    # an arc of length l + 1 from s adds its last player, clockwise, or its first, anticlockwise
    turns = np.arange(players)[:, None]
    sizes = np.arange(players)[None, :]
    clockwise = utility[:, 1:] - utility[:, :-1]  # by (start, size before): adds position start + size
    anticlockwise = utility[:, 1:] - utility[(turns + 1) % players, sizes]  # adds position start
    values, by_position = np.empty(players), clockwise[(turns - sizes) % players, sizes]
    values[circle] = (by_position.sum(axis=1) + anticlockwise.sum(axis=1)) / (2 * players)
    return values
