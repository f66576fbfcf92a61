"""Shapley values from cyclic blocks: every turn of a random circle, read in both directions.

Put the players on a circle in random order. The Y permutations that start at each player in turn and go
round clockwise, and the Y that go round anticlockwise, have the arcs of the circle as their prefixes:
Y(Y - 1) arcs, the empty coalition and the full one. So one block of Y(Y - 1) + 2 utilities gives every
player 2Y marginal contributions, each player stands exactly twice in every place (stratified), and each
permutation comes with its reverse (antithetic). Blocks are independent, unbiased estimates, whose scatter is
an honest standard error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.valuation.exact import FEW_PLAYERS, exact
from fedslot.valuation.game import Game, Valuation


def cyclic(game: Game, rng: np.random.Generator, tolerance: float = 0.25, max_utilities: int = 1000) -> Valuation:
    """Estimate Shapley values by cyclic blocks, two at least, until they are known well enough to rank players.

    Up to six players, where two blocks would ask for nearly all coalitions, the values are exact.

    tolerance: stop once the root mean square standard error is below this share of the standard deviation
        of the values over players.
    max_utilities: begin no further block once all blocks together would ask for more than this. What the game
        remembers counts too: with few players it soon knows all coalitions, and nothing else would end the loop.
    """
    players = game.players
    if players <= FEW_PLAYERS:
        # all subsets cost no more; and two circles of few players may well be the same, with no scatter at all
        return exact(game)
    arcs = players * (players - 1)
    blocks = [_block(game, rng), _block(game, rng)]
    while True:
        values = np.mean(blocks, axis=0)
        errors = np.std(blocks, axis=0, ddof=1) / np.sqrt(len(blocks))
        known = np.sqrt(np.mean(errors**2)) <= tolerance * values.std()
        if known or (len(blocks) + 1) * arcs + 2 > max_utilities:
            return Valuation(values, errors, game.utilities)
        blocks.append(_block(game, rng))


def _block(game: Game, rng: np.random.Generator) -> NDArray[np.float64]:
    """Values (Y,) from all arcs of one random circle."""
    players = game.players
    circle = rng.permutation(players)
    start, place, length = np.ogrid[:players, :players, : players + 1]
    members = np.zeros((players, players + 1, players), dtype=bool)  # [start, length, player]
    members[:, :, circle] = ((place - start) % players < length).transpose(0, 2, 1)
    utility = game(members.reshape(-1, players)).reshape(players, players + 1)
    # an arc of length l + 1 from s adds its last player, clockwise, or its first, anticlockwise
    turns = np.arange(players)[:, None]
    sizes = np.arange(players)[None, :]
    clockwise = utility[:, 1:] - utility[:, :-1]  # by (start, size before): adds place start + size
    anticlockwise = utility[:, 1:] - utility[(turns + 1) % players, sizes]  # adds place start
    values = np.empty(players)
    values[circle] = (clockwise[(turns - sizes) % players, sizes].sum(axis=1) + anticlockwise.sum(axis=1)) / (
        2 * players
    )
    return values
