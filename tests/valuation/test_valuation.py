"""Shapley values against brute force over all orders, and the sampled ones against the exact."""

from itertools import permutations
from math import factorial
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedslot.valuation import GTG, Cyclic, Exact, Game, exact
from fedslot.valuation.game import coalition_weights, weights_by_missing


class Table:
    """A game given by the utilities of all coalitions, which notes what it is asked."""

    def __init__(self, utilities) -> None:
        self.utilities = np.asarray(utilities, dtype=float)
        self.players = int(np.log2(len(self.utilities)))
        self.asked: list[int] = []
        self.batches: list[int] = []

    def __call__(self, members: np.ndarray) -> np.ndarray:
        codes = members @ (1 << np.arange(self.players))
        self.asked += codes.tolist()
        self.batches.append(len(codes))
        return self.utilities[codes]

    def game(self) -> Game:
        return Game(self.players, self)


def _random(players: int, seed: int) -> Table:
    return Table(np.random.default_rng(seed).standard_normal(2**players))


def _learning_like(players: int, seed: int) -> Table:
    """Utility as in learning: a saturating function of the members' weighted mean quality, and interactions."""
    rng = np.random.default_rng(seed)
    sizes, quality = rng.uniform(0.2, 1, players), rng.normal(0.5, 0.5, players)
    skill = rng.normal(0, 0.4, (players, 6))  # what each knows of six topics; a coalition needs all of them
    members = (np.arange(2**players)[:, None] >> np.arange(players)) & 1
    weight = members * sizes
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
    topics = weight @ skill
    utilities = -np.exp(-(weight @ quality)) - 0.5 * (topics**2).sum(axis=1) + 0.3 * np.log1p(members @ sizes)
    return Table(utilities)


def _by_all_orders(table: Table) -> np.ndarray:
    values = np.zeros(table.players)
    for order in permutations(range(table.players)):
        coalition = 0
        for player in order:
            joined = coalition | 1 << player
            values[player] += table.utilities[joined] - table.utilities[coalition]
            coalition = joined
    return values / factorial(table.players)


tables = st.integers(1, 7).flatmap(
    lambda players: st.lists(st.floats(-10, 10), min_size=2**players, max_size=2**players).map(Table)
)


@settings(max_examples=60)
@given(tables)
def test_exact_is_the_mean_over_all_orders(table):
    assume(table.players <= 6)  # 720 orders
    found = exact(table.game())
    np.testing.assert_allclose(found.values, _by_all_orders(table), atol=1e-9)
    assert not found.errors.any()
    assert found.utilities == 2**table.players


EFFICIENT = {"exact": Exact(), "cyclic": Cyclic(), "gtg": GTG(between=0, within=0)}


@pytest.mark.parametrize("method", EFFICIENT.values(), ids=EFFICIENT)
@settings(max_examples=40)
@given(tables, st.integers(0, 1000))
def test_values_share_out_what_all_gain(method, table, seed):
    """Efficiency, of the estimates too."""
    found = method(table.game(), np.random.default_rng(seed))
    assert found.values.sum() == pytest.approx(table.utilities[-1] - table.utilities[0], abs=1e-9)
    assert len(found.values) == len(found.errors) == table.players


@pytest.mark.parametrize("method", EFFICIENT.values(), ids=EFFICIENT)
@settings(max_examples=30)
@given(tables, st.integers(0, 5), st.integers(0, 100))
def test_a_player_who_adds_nothing_is_worth_nothing(method, table, player, seed):
    player %= table.players
    codes = np.arange(len(table.utilities))
    null = Table(table.utilities[codes & ~(1 << player)])
    found = method(null.game(), np.random.default_rng(seed))
    assert found.values[player] == pytest.approx(0, abs=1e-12)


SAMPLED = {
    "cyclic, 2 blocks": Cyclic(tolerance=1e-12, max_utilities=2),
    "cyclic, 3 blocks or more": Cyclic(tolerance=1e-12, max_utilities=5 * 8 * 7 + 2),
    "gtg": GTG(permutations=10, between=0, within=0),
}


@pytest.mark.parametrize("method", SAMPLED.values(), ids=SAMPLED)
@pytest.mark.parametrize("players", [7, 8])
@pytest.mark.parametrize("make", [_random, _learning_like], ids=["random", "learning-like"])
def test_sampled_values_are_unbiased(method, players, make):
    """The mean over many generators is the exact value within four standard errors, for each player."""
    table = make(players, 3)
    truth = exact(table.game()).values
    found = np.array([method(table.game(), np.random.default_rng(seed)).values for seed in range(400)])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - truth) <= 4 * error + 1e-12)
    assert error.max() > 0


@pytest.mark.parametrize("players", [1, 2, 3, 4, 5, 6])
def test_cyclic_is_exact_where_two_blocks_ask_for_nearly_all_coalitions(players):
    table = _random(players, 1)
    found = Cyclic()(table.game(), np.random.default_rng(0))
    np.testing.assert_allclose(found.values, exact(table.game()).values, atol=1e-12)
    np.testing.assert_allclose(found.errors, 0, atol=1e-12)
    assert found.utilities == 2**players


@pytest.mark.parametrize("players", [9, 12])
@pytest.mark.parametrize("make", [_random, _learning_like], ids=["random", "learning-like"])
@pytest.mark.parametrize("blocks", [2, 12, None], ids=["2 blocks", "12 blocks", "until precise"])
def test_standard_errors_of_cyclic_blocks_are_honest(players, make, blocks):
    """Two of them on either side cover the truth about 95% of the time, also where they decide when to stop."""
    method = Cyclic(0.6, 10_000) if blocks is None else Cyclic(1e-12, blocks * players * (players - 1) + 2)
    covered, spread, claimed = [], [], []
    for seed in range(60):
        table = make(players, 1000 + seed)
        truth = exact(table.game()).values
        found = method(table.game(), np.random.default_rng(seed))
        covered.append(np.abs(found.values - truth) <= 2 * found.errors)
        assert found.errors.all()
        spread.append((found.values - truth) ** 2)
        claimed.append(found.errors**2)
    # 60 games; the errors within a game hang together, so take the games for the sample
    coverage = np.mean(covered, axis=1)
    assert abs(coverage.mean() - 0.95) < 4 * coverage.std() / np.sqrt(60) + 0.025
    assert 0.5 < np.mean(spread) / np.mean(claimed) < 1.15


def test_standard_errors_of_gtg_are_about_right():
    """Permutations of one sweep are not quite independent; the claim is on the safe side, within a factor."""
    ratios = []
    for seed in range(60):
        table = _random(6, seed)
        found = GTG(permutations=30, between=0, within=0)(table.game(), np.random.default_rng(seed))
        ratios.append([np.mean((found.values - exact(table.game()).values) ** 2), np.mean(found.errors**2)])
    spread, claimed = np.mean(ratios, axis=0)
    assert 0.5 < spread / claimed < 1.25


@pytest.mark.parametrize("players", [7, 8, 12])
def test_a_block_asks_for_the_arcs_of_a_circle(players):
    """Y(Y - 1) arcs, the empty coalition and the full one; every later block only for what is new."""
    table = _random(players, 0)
    found = Cyclic(max_utilities=2)(table.game(), np.random.default_rng(0))
    arcs = players * (players - 1)
    assert table.batches[0] == arcs + 2
    sizes = np.bincount([code.bit_count() for code in table.asked[: arcs + 2]], minlength=players + 1)
    assert sizes.tolist() == [1, *[players] * (players - 1), 1]
    assert found.utilities == len(table.asked) <= 2 * arcs + 2
    assert len(table.asked) == len(set(table.asked))


@pytest.mark.parametrize("blocks", [2, 3, 7])
def test_cyclic_keeps_to_its_budget(blocks):
    players = 10
    arcs = players * (players - 1)
    for slack in (0, 1, arcs - 1):
        table = _random(players, 0)
        found = Cyclic(1e-12, max_utilities=blocks * arcs + 2 + slack)(table.game(), np.random.default_rng(0))
        assert len(table.batches) == blocks
        assert found.utilities <= blocks * arcs + 2


def test_cyclic_stops_once_values_are_known_well_enough():
    additive = Table([sum(player + 1 for player in range(8) if code >> player & 1) for code in range(256)])
    found = Cyclic(tolerance=0.25, max_utilities=10**6)(additive.game(), np.random.default_rng(0))
    assert len(additive.batches) <= 2  # the first two blocks agree; the second may have found nothing new
    np.testing.assert_allclose(found.values, [1, 2, 3, 4, 5, 6, 7, 8])
    for tolerance in (0.5, 0.2, 0.1):
        table = _learning_like(9, 4)
        found = Cyclic(tolerance, max_utilities=10**5)(table.game(), np.random.default_rng(1))
        assert np.sqrt(np.mean(found.errors**2)) <= tolerance * found.values.std()


@pytest.mark.parametrize("players", [4, 7, 9])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_cyclic_ends_where_no_player_stands_out(players, noise):
    """Equal values are never told apart, and a small game runs out of coalitions to ask for."""
    codes = np.arange(2**players)
    sizes = np.array([code.bit_count() for code in codes.tolist()])
    ring = sum(((codes >> p) & 1) * ((codes >> ((p + 1) % players)) & 1) for p in range(players))
    table = Table(np.sqrt(sizes) + noise * ring)
    found = Cyclic(tolerance=0.25, max_utilities=1000)(table.game(), np.random.default_rng(0))
    assert found.utilities <= 2**players


def test_gtg_asks_for_each_coalition_once_and_starts_with_each_player():
    table = _random(7, 0)
    found = GTG(permutations=14, between=0, within=0)(table.game(), np.random.default_rng(0))
    assert len(table.asked) == len(set(table.asked)) == found.utilities
    assert {1 << player for player in range(7)} <= set(table.asked)
    # two sweeps of 7 permutations: the empty, the full, 7 first players, and at most 14 coalitions of each size 2..6
    assert found.utilities <= 2 + 7 + 14 * 5


@pytest.mark.parametrize(("permutations", "players", "sweeps"), [(20, 8, 3), (20, 20, 1), (20, 4, 5), (1, 5, 1)])
def test_gtg_rounds_up_to_whole_sweeps(permutations, players, sweeps):
    rng = Mock(wraps=np.random.default_rng(0))
    GTG(permutations, between=0, within=0)(_random(players, 0).game(), rng)
    assert rng.permutation.call_count == sweeps * players


def test_gtg_leaves_out_a_round_that_changed_nothing():
    table = _random(5, 0)
    table.utilities[-1] = table.utilities[0] + 0.00099
    found = GTG(between=0.001)(table.game(), np.random.default_rng(0))
    assert not found.values.any()
    assert found.utilities == 2
    assert GTG(between=0.00098)(table.game(), np.random.default_rng(0)).values.any()


def test_gtg_cuts_a_permutation_short_at_the_utility_of_all():
    """Whoever contains player 0 has all there is: permutations end with it, so nothing larger is asked for."""
    players = 6
    table = Table([float(code & 1) for code in range(2**players)])
    found = GTG(permutations=60, between=1e-4, within=1e-4)(table.game(), np.random.default_rng(0))
    np.testing.assert_allclose(found.values, [1, 0, 0, 0, 0, 0], atol=1e-12)
    full = 2**players - 1
    for code in table.asked:
        if code & 1 and code not in {1, full}:
            # asked for because player 0 joined the others, who were worth nothing
            assert (code & ~1) in table.asked
    cut = len(table.asked)
    table.asked.clear()
    GTG(permutations=60, between=1e-4, within=0)(table.game(), np.random.default_rng(0))
    assert cut < len(table.asked)


def test_gtg_cuts_err_by_no_more_than_the_threshold():
    """The part of the utility that a truncated permutation does not assign is less than the threshold."""
    for seed in range(20):
        table = _learning_like(6, seed)
        within = 0.05
        found = GTG(between=0, within=within)(table.game(), np.random.default_rng(seed))
        gain = table.utilities[-1] - table.utilities[0]
        assert abs(found.values.sum() - gain) < within


@given(st.data())
def test_coalition_weights_average_the_members_and_no_one_else(data):
    players = data.draw(st.integers(1, 6))
    sizes = np.array(data.draw(st.lists(st.integers(1, 50), min_size=players, max_size=players)))
    codes = np.array(data.draw(st.lists(st.integers(0, 2**players - 1), min_size=1, max_size=5)))
    members = (codes[:, None] >> np.arange(players)) & 1 == 1
    rows = np.random.default_rng(0).standard_normal((players + 1, 3))
    mixed = coalition_weights(members, sizes) @ rows
    for coalition, found in zip(members, mixed, strict=True):
        inside = np.flatnonzero(coalition)
        expected = np.average(rows[1:][inside], axis=0, weights=sizes[inside]) if len(inside) else rows[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    # the same averages, by those that are missing in more than half
    weights = weights_by_missing(members, sizes)
    whole = np.average(rows[1:], axis=0, weights=sizes)
    np.testing.assert_allclose(weights @ np.vstack([rows, whole]), mixed, atol=1e-9)
    assert (np.count_nonzero(weights, axis=1) <= players // 2 + 1).all()


@given(st.lists(st.integers(0, 31), min_size=1, max_size=40))
def test_a_game_never_asks_twice_not_even_within_a_batch(codes):
    table = _random(5, 0)
    game = table.game()
    members = (np.array(codes)[:, None] >> np.arange(5)) & 1 == 1
    for _ in range(2):
        np.testing.assert_array_equal(game(members), table.utilities[codes])
    assert sorted(table.asked) == sorted(set(codes))
    assert game.utilities == len(set(codes))


def test_games_of_more_than_eight_players_keep_coalitions_apart():
    """Codes span several bytes."""
    table = _random(11, 0)
    exact(table.game())
    assert sorted(table.asked) == list(range(2**11))


def _errors(table: Table, method, seeds: int = 40) -> tuple[float, float]:
    """Mean utilities, and root mean square error relative to the spread of the exact values."""
    truth = exact(table.game()).values
    found = [method(table.game(), np.random.default_rng(seed)) for seed in range(seeds)]
    square = np.mean([(valuation.values - truth) ** 2 for valuation in found])
    return float(np.mean([valuation.utilities for valuation in found])), float(np.sqrt(square) / truth.std())


def test_cyclic_blocks_err_less_than_guided_sampling_at_equal_utilities():
    """At eight players, on average over games, even where guided sampling may evaluate a few more."""
    games = [_learning_like(8, seed) for seed in range(8)]
    for blocks, orders in ((2, 24), (3, 40)):
        ours = [_errors(game, Cyclic(tolerance=1e-12, max_utilities=blocks * 56 + 2)) for game in games]
        theirs = [_errors(game, GTG(permutations=orders, between=0, within=0)) for game in games]
        assert np.mean([used for used, _ in theirs]) >= np.mean([used for used, _ in ours])
        assert np.mean([error for _, error in ours]) < 0.75 * np.mean([error for _, error in theirs])
