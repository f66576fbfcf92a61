"""Kriging against exact values: accuracy, honest standard errors, and a bounded number of utilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedslot.valuation import GTG, Banzhaf, Game, Geometry, Kriging, Valuation, exact


@dataclass(frozen=True)
class Case:
    """A game of which all utilities are known, with its geometry."""

    table: NDArray[np.float64]
    geometry: Geometry

    def game(self) -> Game:
        players = int(np.log2(len(self.table)))
        return Game(players, lambda members: self.table[members @ (1 << np.arange(players))], self.geometry)


def averages(members: NDArray[np.bool_], sizes: NDArray[np.int64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Averaged points of coalitions, the origin for the empty coalition; one by one, as a definition."""
    rows = [np.average(points[row], axis=0, weights=sizes[row]) if row.any() else 0 * points[0] for row in members]
    return np.array(rows)


def learning(players: int, seed: int, utility: str = "loss") -> Case:
    """Averages of noisy logistic regressions, evaluated on 400 samples: noise grows with the UE, as in the paper."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=30)
    x = rng.normal(size=(400, 30))
    y = np.where(x @ truth + rng.normal(size=400) > 0, 1, -1)
    sizes = rng.integers(20, 200, players)
    noise = rng.permutation(np.linspace(0.1, 1, players))[:, None]
    updates = 0.3 * truth + noise * rng.normal(size=(players, 30))
    members = (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1
    margins = averages(members, sizes, updates) @ (x * y[:, None]).T
    utilities = -np.log1p(np.exp(-margins)).mean(axis=1) if utility == "loss" else (margins > 0).mean(axis=1)
    return Case(utilities, Geometry(sizes, updates @ updates.T))


CASES = {
    "loss": [learning(10, seed) for seed in range(4)],
    "accuracy": [learning(10, seed, "accuracy") for seed in range(4)],
}


def relative_error(found: Valuation, truth: NDArray[np.float64]) -> float:
    return float(np.mean((found.values - truth) ** 2) / truth.var())


@pytest.mark.parametrize(("utility", "factor"), [("loss", 0.5), ("accuracy", 1.0)])
def test_errors_are_smaller_than_those_of_gtg_with_less_than_half_of_the_utilities(utility: str, factor: float) -> None:
    ours, theirs = [], []
    for case in CASES[utility]:
        truth = exact(case.game()).values
        for seed in range(6):
            sampled = GTG()(case.game(), np.random.default_rng(seed))
            found = Kriging()(case.game(), np.random.default_rng(seed))
            assert found.utilities < sampled.utilities / 2
            ours.append(relative_error(found, truth))
            theirs.append(relative_error(sampled, truth))
    assert np.sqrt(np.mean(ours)) < factor * np.sqrt(np.mean(theirs))


@pytest.mark.parametrize("method", [Kriging(), Banzhaf(), Kriging(utilities_per_ue=3), Kriging(utilities_per_ue=12)])
@pytest.mark.parametrize("utility", CASES)
def test_standard_errors_are_honest(method: Kriging, utility: str) -> None:
    """On average over games and generators, actual errors are not larger than stated, nor much smaller."""
    actual, stated = [], []
    for case in CASES[utility]:
        truth = exact(case.game(), method.semivalue).values
        for seed in range(6):
            found = method(case.game(), np.random.default_rng(seed))
            actual.append(np.mean((found.values - truth) ** 2))
            stated.append(np.mean(found.errors**2))
    assert 0.1 < np.sqrt(np.mean(actual) / np.mean(stated)) < 1.5


def test_more_utilities_give_smaller_errors() -> None:
    few, many = (
        np.mean(
            [
                relative_error(Kriging(budget)(case.game(), np.random.default_rng(seed)), exact(case.game()).values)
                for case in CASES["loss"]
                for seed in range(6)
            ]
        )
        for budget in (3, 12)
    )
    assert many < few / 2


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 24), st.integers(3, 12), st.integers(0, 1000))
def test_utilities_are_evaluated_once_in_one_batch_within_the_budget(players: int, budget: int, seed: int) -> None:
    """Whatever the utilities are; efficiency holds as well."""
    rng = np.random.default_rng(seed)
    batches: list[NDArray[np.bool_]] = []

    def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        batches.append(members)
        return rng.normal(size=len(members))

    game = Game(players, utility)
    found = Kriging(budget)(game, rng)
    (members,) = batches
    assert len(np.unique(members, axis=0)) == len(members) == found.utilities <= max(64, budget * players)
    assert found.values.sum() == pytest.approx(game.full - game.empty, abs=1e-4)  # random utilities lose some digits
    assert (found.errors >= 0).all()
    assert len(found.values) == len(found.errors) == players


def test_sizes_are_sampled_in_proportion_to_their_definition() -> None:
    """Beside the corners, 22 coalitions and complements of sizes 2 to Y - 2, each drawn by 1 / (size (Y - size))."""
    players, seeds = 24, 300
    batches: list[NDArray[np.bool_]] = []

    def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        batches.append(members)
        raise InterruptedError

    for seed in range(seeds):
        with pytest.raises(InterruptedError):
            Kriging(utilities_per_ue=3)(Game(players, utility), np.random.default_rng(seed))
    sizes = np.array([members.sum(axis=1) for members in batches])
    counts = np.bincount(np.minimum(sizes, players - sizes).ravel())
    assert counts[:2].tolist() == [2 * seeds, 2 * players * seeds], "the corners alone"
    weights = np.array([(2 - (2 * size == players)) / (size * (players - size)) for size in range(2, 13)])
    drawn, share = 11 * seeds, weights / weights.sum()
    assert counts.sum() - counts[:2].sum() == 2 * drawn
    errors = counts[2:] / 2 - drawn * share
    assert (np.abs(errors) < 4 * np.sqrt(drawn * share * (1 - share))).all()


def test_few_players_and_large_budgets_are_exact() -> None:
    small = learning(6, 0)
    np.testing.assert_allclose(Kriging()(small.game(), np.random.default_rng(0)).values, exact(small.game()).values)
    large = learning(8, 0)
    found = Kriging(utilities_per_ue=32)(large.game(), np.random.default_rng(0))
    np.testing.assert_allclose(found.values, exact(large.game()).values)
    assert not found.errors.any()


def test_twenty_players_whose_values_are_known() -> None:
    """The utility is linear in the average of equal shares: joining s others moves it by (own - theirs) / (s + 1)."""
    players = 20
    rng = np.random.default_rng(3)
    points, direction = rng.normal(size=(players, 5)), rng.normal(size=5)
    own = points @ direction
    harmonic = sum(1 / (size + 1) for size in range(1, players))
    others = (own.sum() - own) / (players - 1)
    truth = (own + harmonic * (own - others)) / players

    def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        return members @ own / np.maximum(members.sum(axis=1), 1)

    game = Game(players, utility, Geometry(np.ones(players), points @ points.T))
    found = Kriging()(game, rng)
    assert np.sqrt(relative_error(found, truth)) < 0.15
    assert found.utilities == 100


def test_the_generator_decides() -> None:
    case = CASES["loss"][0]
    one, same, other = (Kriging()(case.game(), np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.values, same.values)
    assert (one.values != other.values).any()


def test_equal_updates_share_equally() -> None:
    game = Game(8, lambda members: members.any(axis=1) * 4.0, Geometry(np.ones(8), np.zeros((8, 8))))
    assert Kriging()(game, np.random.default_rng(0)).values == pytest.approx(0.5)


def test_coordinates_are_as_far_apart_as_the_averaged_models() -> None:
    rng = np.random.default_rng(0)
    points, sizes = rng.normal(size=(6, 30)), rng.integers(1, 50, 6)
    members = np.vstack([np.zeros((1, 6), dtype=bool), rng.random((20, 6)) < 0.5])
    unit = np.sqrt((points**2).sum(axis=1).mean())
    found, models = Geometry(sizes, points @ points.T).place(members) * unit, averages(members, sizes, points)
    np.testing.assert_allclose(
        np.linalg.norm(found[:, None] - found, axis=2), np.linalg.norm(models[:, None] - models, axis=2), atol=1e-6
    )


@pytest.mark.parametrize("method", [Kriging(utilities_per_ue=20), Banzhaf(utilities_per_ue=20)])
def test_large_games_are_integrated_without_bias_and_errors_count_the_sampling(method: Kriging) -> None:
    """With 14 players and good predictions, most of the error comes from averaging them over a sample."""
    case = learning(14, 5)
    truth = exact(case.game(), method.semivalue).values
    found = [method(case.game(), np.random.default_rng(seed)) for seed in range(6)]
    errors = np.array([valuation.values - truth for valuation in found])
    assert np.abs(errors.mean(axis=0)).max() < 0.1 * truth.std()
    stated = np.mean([valuation.errors**2 for valuation in found])
    assert 0.3 < np.sqrt(np.mean(errors**2) / stated) < 1.5


def ratio(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Utility at models (..., R): the first coordinate over the distance to a far point, bent but smooth."""
    return points[..., 0] / (4 + ((points - 2) ** 2).sum(axis=-1))


def by_permutations(
    sizes: NDArray[np.int64], points: NDArray[np.float64], orders: int
) -> tuple[NDArray[np.float64], float]:
    """Shapley values of `ratio` of averages by random orders and their reverses, and their mean variance."""
    rng, marginals = np.random.default_rng(0), np.zeros((orders, len(sizes)))
    for marginal in marginals:
        order = rng.permutation(len(sizes))
        for joining in (order, order[::-1]):
            models = (points * sizes[:, None])[joining].cumsum(axis=0) / sizes[joining].cumsum()[:, None]
            marginal[joining] += np.diff(ratio(models), prepend=ratio(np.zeros(points.shape[1]))) / 2
    return marginals.mean(axis=0), float(marginals.var(axis=0, ddof=1).mean() / orders)


@pytest.mark.parametrize("players", [51, 160, pytest.param(500, marks=pytest.mark.long)])
def test_errors_of_many_players_are_small_and_honest(players: int) -> None:
    """Against the mean over very many orders, with averages by unequal numbers of samples."""
    rng = np.random.default_rng(players)
    sizes, points = rng.integers(20, 200, players), rng.normal(size=(players, 6))
    truth, variance = by_permutations(sizes, points, 2_000_000 // players)

    def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        weighted = members * sizes
        return ratio((weighted @ points) / np.maximum(weighted.sum(axis=1), 1)[:, None])

    game = Game(players, utility, Geometry(sizes, points @ points.T))
    found = [Kriging()(game, np.random.default_rng(seed)) for seed in range(4)]
    actual = np.mean([(valuation.values - truth) ** 2 for valuation in found]) - variance
    assert 0.5 < np.sqrt(actual / np.mean([valuation.errors**2 for valuation in found])) < 1.5
    assert np.sqrt(actual) < 0.1 * truth.std()


@pytest.mark.parametrize("method", [Kriging(), Banzhaf()])
def test_many_players_whose_values_are_known(method: Kriging) -> None:
    """The utility is a quadratic form of the mean: its mean over coalitions of a size follows from counting pairs."""
    players = 90
    rng = np.random.default_rng(2)
    points, slope = rng.normal(size=(players, 4)), np.array([1.0, 0, -1, 0])
    products = points @ points.T

    def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        means = members @ points / np.maximum(members.sum(axis=1), 1)[:, None]
        return means @ slope - 0.5 * (means**2).sum(axis=1)

    squares, total = np.diag(products), products.sum()
    others = squares.sum() - squares  # sums over the others, and over ordered pairs of different others
    pairs = total - 2 * products.sum(axis=1) + squares - others
    linear, rest = points @ slope, (points @ slope).sum() - points @ slope
    truth = np.zeros(players)
    for size, weight in enumerate(method.semivalue(players)):  # joining `size` others
        single, pair = size / (players - 1), size * max(size - 1, 0) / ((players - 1) * (players - 2))
        without = single * rest / max(size, 1) - 0.5 * (single * others + pair * pairs) / max(size, 1) ** 2
        crossed = 2 * single * (products.sum(axis=1) - squares)
        joined = (linear + single * rest) / (size + 1)
        joined -= 0.5 * (squares + crossed + single * others + pair * pairs) / (size + 1) ** 2
        truth += weight * (joined - without)
    game = Game(players, utility, Geometry(np.ones(players), products))
    found = [method(game, np.random.default_rng(seed)) for seed in range(6)]
    actual = np.mean([(valuation.values - truth) ** 2 for valuation in found])
    assert np.sqrt(actual) < 0.15 * truth.std()
    assert 0.5 < np.sqrt(actual / np.mean([valuation.errors**2 for valuation in found])) < 1.5
