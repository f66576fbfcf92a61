"""Own parts with which a resumed run would go on differently are refused, whatever kind they are; others never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedslot
from fedslot import Grant, Link, NoState, Scenario
from fedslot.access.channels import Collision, Slots
from fedslot.aggregation.average import Average
from fedslot.strategies.fedavg import FedAvg
from fedslot.strategies.greedy_shap import GreedyShap
from fedslot.support.errors import RefusedError
from fedslot.valuation import Game, Valuation

SMALL = {"rounds": 10, "data.ues": 20, "training.epochs": 1, "training.engine": "torch", "strategy.warmup": 1}
calls: list[object] = []
"""What parts remember beyond their states, and beyond themselves."""


class Counts(FedAvg):
    """Pulls by the number of its calls instead of by the round."""

    count = 0

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        self.count += 1
        return Grant(np.arange(self.count % 5, 10), push=True)


class Late(FedAvg):
    """Counts too, but differs only from the fifth round on."""

    count = 0

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        self.count += 1
        return Grant(np.arange(3 if self.count > 4 else 2), push=True)


class Unseeded(FedAvg):
    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.random.default_rng().permutation(20)[:10], push=True)


class Drifts(Average):
    """An average with momentum that it keeps to itself."""

    last: Any = None

    def apply(self, state: Any, updates: Any) -> Any:
        new = super().apply(state, updates)
        step = new.broadcast - updates.start + (0 if self.last is None else 0.5 * self.last)
        self.last = step
        return replace(new, broadcast=updates.start + step, report=updates.start + step)


class Fades(Collision):
    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        return super().resolve(sent, slots, rng) * (np.random.default_rng().random(sent.shape[:2]) < 0.5)


class Guesses:
    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        return Valuation(np.random.default_rng().random(game.players), np.zeros(game.players), 0)


class Rounds(Link):
    """Scales updates by the number of updates that went before."""

    count = 0

    def apply(self, update: Any, sender: Any, state: Any) -> Any:
        self.count += 1
        return replace(update, model=update.model * (1 + self.count / 1000)), state


def noise(ues: int, level: float) -> np.ndarray:
    return np.random.default_rng().random(ues) * level


def shares(labels: np.ndarray, ues: int, rng: np.random.Generator) -> np.ndarray:
    return np.random.default_rng().permutation(len(labels)) % ues


def cost(receipt: Any) -> int:
    calls.append(receipt)
    return 1 + len(calls) % 7


class Slower(torch.optim.SGD):
    """A learning rate that falls from one optimiser to the next, in this process."""

    def __init__(self, parameters: Any, lr: float) -> None:
        calls.append(lr)
        super().__init__(parameters, lr / len(calls))


CASES: dict[str, tuple[dict[str, object], str]] = {
    "a strategy that counts": ({"strategy.name": Counts}, "round 1: .*another frame"),
    "that counts late": ({"strategy.name": Late}, "round [48]: .*another frame"),
    "unseeded strategy": ({"strategy.name": Unseeded}, "round 0: .*another frame"),
    "aggregation": ({"aggregation.name": Drifts}, "round 1: .*another model"),
    "channel": ({"push.channel": Fades}, "round .: .*another frame"),
    "valuation": ({"valuation.name": Guesses, "strategy.name": "greedy-shap"}, "round 0: .*another"),
    "link": ({"chain": [Rounds]}, "round 1: .*another model"),
    "noise law": ({"fleet.noise_law": noise}, "round 0: .*another model"),
    "partition": ({"data.partition": shares}, "round 0: .*another model"),
    "cost rule": ({"cost_rule": cost}, "round 0: .*another (cost|slots)"),
    "optimiser": ({"training.optimizer": Slower}, "round 0: .*another model"),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_that_do_not_repeat_are_refused(case: str, tmp_path: Any) -> None:
    fields, expected = CASES[case]
    calls.clear()
    with pytest.raises(RefusedError, match=expected) as caught:
        fedslot.run(Scenario.load("quickstart", {**SMALL, **fields}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run").exists() == ("round 0" not in str(caught.value))


class Honest(GreedyShap):
    """Draws from `rng`, remembers in its state, and caches what it could compute again."""

    cache: dict[int, np.ndarray]

    def __init__(self, cell: Any) -> None:
        super().__init__(cell)
        self.cache = {}

    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Grant:
        best = self.cache.setdefault(round, super().schedule(state, round, rng).pull)
        return Grant(rng.permutation(best)[:5], push=True)


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    inputs = torch.Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, classes))


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_that_repeat_are_not_disturbed(threads: int) -> None:
    """The repetitions leave no trace: the result is that of the same round after round without them."""
    own = {"strategy.name": Honest, "training.model": network, "aggregation.name": "fedadam"}
    scenario = Scenario.load("quickstart", {**SMALL, **own})
    once = fedslot.run(scenario, threads=threads).rounds.drop(columns="seconds")
    without = pytest.MonkeyPatch()
    with without.context() as patch:
        never: Callable[[int], bool] = lambda round: False  # noqa: E731
        patch.setattr("fedslot.rounds.simulation.is_repeated", never)
        assert fedslot.run(scenario).rounds.drop(columns="seconds").equals(once)
