"""Valuation over whole runs: cost, error and honesty of `kriging` against `gtg`, printed as a markdown table.

    python benchmarks/valuation.py

Each setting is one run. In every round both methods value the same game, one after the other, and `kriging` decides
how the run goes on; so a whole run with either method takes the time of all other work plus that of its valuations.
In some rounds, spread over the whole run, both are compared with a reference, for several generators.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

import fedslot
from fedslot.valuation import GTG, Cyclic, Game, Kriging, Valuation, exact

SETTINGS = {
    "`paper`, `greedy-shap`": ("paper", "greedy-shap"),
    "`paper`, `push-pull`": ("paper", "push-pull"),
    "`quickstart`, `push-pull`": ("quickstart", "push-pull"),
}
REFERENCE_ROUNDS = (0, 5, 10, 20, 40, 80, 120, 160, 199)
GENERATORS = 5  # that draw coalitions or permutations in each of these rounds
MOST_EXACT = 13  # players; with more, the reference is sampled
METHODS = {"gtg": GTG(), "kriging": Kriging()}

Log = dict[str, list[tuple[float, float]]]
seconds_and_utilities: Log = defaultdict(list)  # by method, per round
errors: Log = defaultdict(list)  # by method, per reference round: mean square error, mean square stated error
spreads: list[float] = []  # standard deviations of reference values
extra_seconds: list[float] = []  # of everything but the run itself


class Compared:
    """The valuation method that runs use here: notes both methods' times, and returns the values of `kriging`."""

    def __init__(self) -> None:
        self.round = 0

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        began = time.perf_counter()
        game(np.eye(game.players, dtype=bool))  # what happens only once, such as compiling, counts for neither method
        for name, method in METHODS.items():
            start = time.perf_counter()
            valuation = method(Game(game.players, game.utility, game.geometry), rng)
            seconds_and_utilities[name].append((time.perf_counter() - start, valuation.utilities))
        if self.round in REFERENCE_ROUNDS:
            compare_with_reference(game)
        self.round += 1
        extra_seconds.append(time.perf_counter() - began)
        return valuation


def compare_with_reference(game: Game) -> None:
    """Note the squared errors of both methods, actual and stated, relative to the variance of the values."""
    truth = reference(game)
    spreads.append(float(truth.std()))
    for name, method in METHODS.items():
        valuations = [method(game, np.random.default_rng(seed)) for seed in range(GENERATORS)]
        actual = np.mean([(valuation.values - truth) ** 2 for valuation in valuations])
        stated = np.mean([valuation.errors**2 for valuation in valuations])
        errors[name].append((float(actual), float(stated)))


def reference(game: Game, blocks: int = 40) -> NDArray[np.float64]:
    """Exact values, or those of many cyclic blocks with a polynomial of the coalition model as control variate."""
    players = game.players
    if players <= MOST_EXACT:
        return exact(game).values
    seen = []

    def noted(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        seen.append(members)
        return game(members)

    def features(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        x = game.geometry.place(members)
        first, second = np.triu_indices(players)
        norm = (x**2).sum(axis=1, keepdims=True)
        small = 1 / np.maximum(members.sum(axis=1, keepdims=True), 1)
        return np.hstack([x**0, members, x, x[:, first] * x[:, second], norm * x, norm**2, norm**3, small, small**2])

    def sample(utility, count):  # the same generator, hence the same circles, for each utility
        method = Cyclic(tolerance=1e-12, max_utilities=count * players * (players - 1) + 2)
        return method(Game(players, utility), np.random.default_rng(count)).values

    sample(noted, blocks)
    members = np.concatenate(seen)
    fitted = np.linalg.lstsq(features(members), game(members), rcond=1e-10)[0]
    residual = sample(lambda some: game(some) - features(some) @ fitted, blocks)
    return residual + sample(lambda some: features(some) @ fitted, 15 * blocks)


def measure(preset: str, strategy: str, rounds: int, threads: int) -> list[str]:
    """Cells of the two lines of one setting."""
    for log in (seconds_and_utilities, errors, spreads, extra_seconds):
        log.clear()
    scenario = fedslot.Scenario.load(
        preset, {"strategy.name": strategy, "rounds": rounds, "valuation.name": "valuation:Compared"}
    )
    table = fedslot.run(scenario, threads=threads).rounds
    other = table["seconds"].sum() - sum(extra_seconds)
    lines = []
    for name in METHODS:
        seconds, utilities = np.array(seconds_and_utilities[name]).T
        actual, stated = np.array(errors[name]).T
        estimated = stated > 0  # with few UEs values are exact
        relative, ratio = np.sqrt(actual) / spreads, np.sqrt(actual[estimated] / stated[estimated])
        times = 1000 * np.array([seconds.mean(), np.median(seconds), seconds.max()])
        lines.append(
            f"`{name}` | {other + seconds.sum():.1f} | {times[0]:.0f} | {times[1]:.0f} | {times[2]:.0f} "
            f"| {utilities.mean():.0f} | {utilities.max():.0f} | {relative.mean():.2f} | {relative.max():.2f} "
            f"| {np.sqrt(actual).mean():.1g} | {ratio.mean():.2f} | {ratio.min():.2f} to {ratio.max():.2f}"
        )
    return lines


def table(threads: int = 2, rounds: int = 200, only: str = "") -> list[str]:
    """Measure all settings, or one; the lines of the table."""
    lines = [
        "| run | method | run [s] | valuation of a round: mean [ms] | median | max | utilities: mean | max "
        "| error / spread: mean | max | error | actual / stated error: mean | range |",
        "|---" * 13 + "|",
    ]
    for name, (preset, strategy) in SETTINGS.items():
        if only not in preset:
            continue
        for line in measure(preset, strategy, rounds, threads):
            lines.append(f"| {name} | {line} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    import valuation  # runs import it by this name too, and it holds what they note

    print("\n".join(valuation.table()))
