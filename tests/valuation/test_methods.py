"""Methods by name, methods of one's own, and values other than Shapley's."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedslot
from fedslot.support.errors import InputError
from fedslot.valuation import METHODS, Banzhaf, Game, LeaveOneOut, Valuation, banzhaf, exact, shapley


class Alone:
    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        alone = game(np.eye(game.players, dtype=bool)) - game.empty
        return Valuation(self.factor * alone, np.zeros(game.players), game.utilities)


def table_game(utilities: np.ndarray) -> Game:
    players = int(np.log2(len(utilities)))
    return Game(players, lambda members: utilities[members @ (1 << np.arange(players))])


def by_definition(utilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums over sizes of the weight times the mean marginal contribution to coalitions of that size."""
    players = len(weights)
    values = np.zeros(players)
    for player in range(players):
        others = [other for other in range(players) if other != player]
        for size in range(players):
            codes = [sum(1 << member for member in members) for members in combinations(others, size)]
            values[player] += weights[size] * np.mean([utilities[c | 1 << player] - utilities[c] for c in codes])
    return values


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(0, 1000))
def test_exact_semivalues_follow_their_definition(players: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    utilities, weights = rng.normal(size=2**players), rng.dirichlet(np.ones(players))
    for semivalue in (shapley, banzhaf, lambda _: weights):
        found = exact(table_game(utilities), semivalue).values
        np.testing.assert_allclose(found, by_definition(utilities, semivalue(players)), atol=1e-9)


@pytest.mark.parametrize("players", [1, 2, 4, 6])
def test_banzhaf_is_the_mean_marginal_contribution_over_all_coalitions(players: int) -> None:
    utilities = np.random.default_rng(players).normal(size=2**players)
    codes = np.arange(2**players)
    truth = [np.mean(utilities[codes | 1 << player] - utilities[codes & ~(1 << player)]) for player in range(players)]
    np.testing.assert_allclose(Banzhaf()(table_game(utilities), np.random.default_rng(0)).values, truth, atol=1e-12)


def test_leave_one_out_is_what_the_grand_coalition_loses() -> None:
    utilities = np.random.default_rng(0).normal(size=32)
    game = table_game(utilities)
    found = LeaveOneOut()(game, np.random.default_rng(0))
    np.testing.assert_allclose(found.values, [utilities[31] - utilities[31 & ~(1 << player)] for player in range(5)])
    assert found.utilities == 6


@pytest.mark.parametrize("name", METHODS)
def test_utilities_that_are_not_finite_are_refused(name: str) -> None:
    game = Game(8, lambda members: np.where(members.sum(axis=1) == 7, np.nan, 1.0 * members[:, 0]))
    with pytest.raises(ValueError, match="finite"):
        METHODS.make(name, {})(game, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("kriging", "utilities_per_ue", 2),
        ("cyclic", "max_utilities", 1),
        ("cyclic", "tolerance", 0.0),
        ("gtg", "permutations", 0),
        ("gtg", "between", -1.0),
        ("gtg", "within", -1.0),
    ],
)
def test_options_have_limits(name: str, option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"valuation.options.{option}: {value} is not allowed; it must be greater"):
        METHODS.make(name, {option: value})


@pytest.mark.parametrize("name", ["leave-one-out", "banzhaf", f"{__name__}:Alone"])
def test_a_run_takes_any_method(name: str) -> None:
    overrides = {"rounds": 2, "valuation.name": name, "strategy.name": "greedy-shap"}
    rounds = fedslot.run(fedslot.Scenario.load("quickstart", overrides)).rounds
    assert (rounds["utilities"] > 0).all()
