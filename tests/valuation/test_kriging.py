"""Kriging against exact values: the sums it makes, its errors, and how few utilities it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedslot.learning.coalitions import coalition_weights
from fedslot.scenario import Scenario
from fedslot.simulation import Simulation
from fedslot.valuation import Game, Geometry, exact, gtg, kriging
from fedslot.valuation.kriging import _circles, _functional


@dataclass(frozen=True)
class Case:
    """A game whose utilities are all known, and where its coalitions lie."""

    players: int
    table: NDArray[np.float64]
    geometry: Geometry

    def game(self) -> Game:
        return Game(self.players, lambda members: self.table[members @ (1 << np.arange(self.players))])


def members_of(players: int) -> NDArray[np.bool_]:
    return (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1


def smooth(players: int, seed: int) -> Case:
    """Minus the distance of the averaged point from a goal, with a bend."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 200, players)
    points = np.vstack([np.zeros(12), rng.normal(size=(players, 12)) + 0.5])
    goal = rng.normal(size=12)
    weights = coalition_weights(members_of(players), sizes)
    utilities = -np.sqrt(1 + ((weights @ points - goal) ** 2).sum(axis=1))
    return Case(players, utilities, Geometry(sizes, points @ points.T))


def real(players: int) -> list[Case]:
    """Rounds of a real run on digits with noisy updates."""
    overrides = {"strategy.name": "fedavg", "frame.slots": players, "rounds": 12, "data.ues": 60}
    simulation = Simulation(Scenario.load("quickstart", overrides))
    now, cases = simulation.start(), []
    for _, after in simulation.rounds():
        if now.round % 4 == 0:
            pull = simulation.strategy.schedule(now.state, now.round, simulation._rng("schedule", now.round)).pull
            sizes = simulation.fleet.sizes[pull]
            rows = torch.cat([now.model.unsqueeze(0), simulation.train(now.model, pull, now.round)])
            weights = torch.from_numpy(coalition_weights(members_of(players), sizes)).to(rows)
            moves = (rows - rows[0]).double()
            geometry = Geometry(sizes, (moves @ moves.T).numpy())
            cases.append(Case(players, -simulation.judges.jury.averages(rows)(weights)[0].numpy(), geometry))
        now = after
    return cases


@pytest.fixture(scope="module", params=["smooth", "real"])
def cases(request: pytest.FixtureRequest) -> list[Case]:
    return real(10) if request.param == "real" else [smooth(10, seed) for seed in range(4)]


@pytest.mark.parametrize("players", [3, 7])
def test_the_sum_over_all_coalitions_is_exact(players: int) -> None:
    utilities = np.random.default_rng(players).normal(size=2**players)
    members, functional = _functional(players, 2**players)
    truth = exact(Game(players, lambda m: utilities[m @ (1 << np.arange(players))])).values
    np.testing.assert_allclose(functional @ utilities[members @ (1 << np.arange(players))], truth, atol=1e-12)


def test_circles_are_unbiased_and_share_out_everything() -> None:
    players = 6
    utilities = np.random.default_rng(0).normal(size=2**players)
    members, functional = _circles(players, 300_000)
    values = functional @ utilities[members @ (1 << np.arange(players))]
    truth = exact(Game(players, lambda m: utilities[m @ (1 << np.arange(players))])).values
    assert values.sum() == pytest.approx(utilities[-1] - utilities[0])
    np.testing.assert_allclose(values, truth, atol=0.02)  # about 7000 circles; one errs by about 0.3


def test_errors_are_smaller_than_guided_samplings_with_a_quarter_of_the_utilities(cases: list[Case]) -> None:
    ours, theirs, asked, needed = [], [], [], []
    for case in cases:
        truth = exact(case.game()).values
        for seed in range(5):
            paper = gtg(case.game(), np.random.default_rng(seed))
            found = kriging(
                case.game(), case.geometry, np.random.default_rng(seed), 1e-9, max_utilities=paper.utilities // 4
            )
            ours.append(np.mean((found.values - truth) ** 2) / truth.var())
            theirs.append(np.mean((paper.values - truth) ** 2) / truth.var())
            asked.append(found.utilities)
            needed.append(paper.utilities)
    assert max(asked) <= min(needed) / 4 + 1
    assert np.sqrt(np.mean(ours)) < 0.5 * np.sqrt(np.mean(theirs))


def test_standard_errors_are_honest(cases: list[Case]) -> None:
    """On average over games, what is off is no more than the standard errors say, and not absurdly less."""
    scores = []
    for case in cases:
        truth = exact(case.game()).values
        for seed in range(5):
            found = kriging(case.game(), case.geometry, np.random.default_rng(seed))
            scores.append(np.mean(((found.values - truth) / found.errors) ** 2))
    assert 0.1 < np.sqrt(np.mean(scores)) < 1.5


def test_a_tighter_tolerance_gives_smaller_errors() -> None:
    case = real(10)[1]
    loose, tight = (kriging(case.game(), case.geometry, np.random.default_rng(0), limit) for limit in (0.5, 0.05))
    truth = exact(case.game()).values
    assert tight.utilities > loose.utilities
    assert np.abs(tight.values - truth).max() < np.abs(loose.values - truth).max()
    assert np.sqrt(np.mean(tight.errors**2)) <= 0.05 * tight.values.std()


def test_many_players_by_circles() -> None:
    """Beyond the reach of enumeration: the truth of an additive game over averages of equal shares is known."""
    players = 20
    rng = np.random.default_rng(3)
    sizes = np.full(players, 10)
    points = np.vstack([np.zeros(5), rng.normal(size=(players, 5))])
    slope = rng.normal(size=5)

    def weights(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        return coalition_weights(members, sizes)

    # an average's linear utility: joining s others moves it by (own - mean of theirs) / (s + 1)
    own = points[1:] @ slope
    harmonic = sum(1 / (size + 1) for size in range(1, players))
    others = (own.sum() - own) / (players - 1)
    truth = (own + harmonic * (own - others)) / players
    game = Game(players, lambda members: weights(members) @ points @ slope)
    found = kriging(game, Geometry(sizes, points @ points.T), rng)
    np.testing.assert_allclose(found.values, truth, atol=0.05 * truth.std())
    assert game.utilities < 100


def test_coalitions_lie_at_averages() -> None:
    """As far from one another as the averages of which they are made, no one included."""
    rng = np.random.default_rng(0)
    points, sizes = rng.normal(size=(7, 30)), rng.integers(1, 50, 6)
    members = np.vstack([np.zeros((1, 6), dtype=bool), rng.random((20, 6)) < 0.5])
    places, averages = Geometry(sizes, points @ points.T).place(members), coalition_weights(members, sizes) @ points
    np.testing.assert_allclose(
        np.linalg.norm(places[:, None] - places, axis=2),
        np.linalg.norm(averages[:, None] - averages, axis=2),
        atol=1e-6,
    )


def test_edges() -> None:
    """Few players are exact; equal models share equally; a rough game ends."""
    few = smooth(5, 0)
    np.testing.assert_allclose(
        kriging(few.game(), few.geometry, np.random.default_rng(0)).values, exact(few.game()).values
    )
    same = Geometry(np.ones(8, dtype=np.int64), np.zeros((9, 9)))
    assert kriging(Game(8, lambda m: m.any(axis=1) * 4.0), same, np.random.default_rng(0)).values == pytest.approx(0.5)
    rough = smooth(8, 1)
    utilities = np.random.default_rng(0).normal(size=256)
    game = Game(8, lambda m: utilities[m @ (1 << np.arange(8))])
    found = kriging(game, rough.geometry, np.random.default_rng(0))
    np.testing.assert_allclose(found.values, exact(game).values)  # it gave up and asked for all


def test_utilities_that_are_no_numbers_are_refused() -> None:
    game = Game(8, lambda members: np.where(members.sum(axis=1) == 1, np.nan, 1.0))
    with pytest.raises(ValueError, match="finite"):
        kriging(game, smooth(8, 0).geometry, np.random.default_rng(0))
