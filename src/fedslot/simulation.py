"""Algorithm 1: the loop that joins schedule, access, training, valuation and aggregation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.channels import make_channel
from fedslot.access.frame import draw_hopefuls, play
from fedslot.data.sources import load
from fedslot.errors import InputError, RefusedError
from fedslot.exchange import Grant, Receipt, UEs
from fedslot.fleet import Fleet
from fedslot.learning.aggregation import average, coalition_weights
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.mixtures import mixtures
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.plugins import find
from fedslot.rng import stream, torch_seed
from fedslot.scenario import MOST_EXACT_PLAYERS, Scenario
from fedslot.strategies import STRATEGIES, Cell, make_strategy
from fedslot.valuation import Game, Geometry, Valuation, cyclic, exact, gtg, kriging


@dataclass(frozen=True)
class Round:
    """One row of `rounds.csv`.

    Costs are in slots; `slots_spent` adds up `cost_max` since the first round. `utilities` counts coalition
    utilities, `value_error` is the largest standard error of this round's Shapley values.
    """

    round: int
    test_accuracy: float
    test_loss: float
    val_loss: float
    pulled: int
    wasted: int
    contenders: int
    push_received: int
    collided: int
    cost_max: int
    cost_sum: int
    slots_spent: int
    utilities: int
    value_error: float
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """All that is carried from one round to the next.

    round: the round to come. slots_spent: sum of `cost_max` so far.
    model: (P,) the global model. state: the strategy's state.
    """

    round: int
    slots_spent: int
    model: Tensor
    state: Any


class Simulation:
    """A scenario made ready to run: data loaded, fleet drawn, parts built. What cannot run is refused here."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        training, push = scenario.training, scenario.push
        self.strategy = make_strategy(scenario.strategy.name, cell(scenario))
        for name in training.epochs_by_strategy:
            find("training.epochs_by_strategy", name, STRATEGIES)
        self.channel = make_channel(push.channel, **push.channel_options)
        data = load(scenario.data.dataset)
        self.fleet = Fleet.draw(scenario, data.y_train)
        shape = data.x_train.shape[1:]
        self.model = Model.build(training.model, shape, data.classes, scenario.seed, training.device)
        recipe = Recipe(training.lr, training.momentum, training.batches)
        self.trainer = Trainer(self.model, *self._tensors(data.x_train, data.y_train), recipe)
        self.test, self.validation, self.jury = self._evaluators(data.x_test, data.y_test)

    def start(self) -> Snapshot:
        """The beginning: the initial model, nothing known of any UE."""
        return Snapshot(0, 0, self.model.initial, self.strategy.init())

    def rounds(self, now: Snapshot | None = None) -> Iterator[tuple[Round, Snapshot]]:
        """Run Algorithm 1 from the start or from a snapshot, a round at a time."""
        now = now or self.start()
        while now.round < self.scenario.rounds and self._frame_fits(now.slots_spent):
            began, round = time.perf_counter(), now.round

            grant = self.strategy.schedule(now.state, round, self._rng("schedule", round))
            receipt = self._access(grant, round)
            updates = self.train(now.model, receipt.received, round)
            valuation = self._value(now.model, updates, receipt.received, round)
            model = self._aggregate(now.model, updates, receipt.received)
            state = self.strategy.observe(now.state, receipt, valuation.values)

            now = Snapshot(round + 1, now.slots_spent + receipt.cost_max, model, state)
            yield self._record(round, receipt, valuation, now, began), now

    def _frame_fits(self, spent: int) -> bool:
        budget = self.scenario.time_budget
        return budget is None or spent + 1 + self.scenario.frame.slots <= budget

    def _access(self, grant: Grant, round: int) -> Receipt:
        """Play the frame on the channel."""
        contenders, slots = self.scenario.push.contenders, self.scenario.frame.slots
        pull = set(grant.pull.tolist())
        if len(grant.pull) > slots or len(pull) < len(grant.pull) or any(not 0 <= ue < self.fleet.ues for ue in pull):
            raise RefusedError(
                f"round {round}: strategy {self.scenario.strategy.name} granted {len(grant.pull)} pull slots; it may "
                f"grant {slots} at most, each to another UE from 0 to {self.fleet.ues - 1}"
            )
        number = None if contenders == "ready" else contenders
        hopefuls = draw_hopefuls(number, self.fleet.ues, grant.pull, self._rng("hopefuls", round))
        return play(grant, slots, hopefuls, self.fleet.ready(round), self.channel, self._rng("push", round))

    def train(self, model: Tensor, received: UEs, round: int) -> Tensor:
        """Updates (Y, P) of the received UEs. What collided influences nothing, so it is never trained.

        Where UEs send data instead, the PS trains on all of it: one row, no straggling, no noise.
        """
        updates = self.trainer(model, self._jobs(received, round))
        if not self.strategy.pools_data:
            self._disturb(updates, received.tolist(), round)
        return self._finite(updates, round)

    def stacks(self, received: UEs, round: int) -> list[list[int]]:
        """Places in `received` whose training must not be torn apart; `train` gives each stack alone the same rows."""
        return self.trainer.stacks(self._jobs(received, round))

    def _jobs(self, received: UEs, round: int) -> list[Job]:
        fleet, ues, seed = self.fleet, received.tolist(), self.scenario.seed
        if self.strategy.pools_data:
            shares = [fleet.shares.share(ue) for ue in ues]
            work = [(np.concatenate(shares), self.scenario.epochs, fleet.ues)] if ues else []
        else:
            work = [(fleet.shares.share(ue), int(fleet.epochs[ue]), ue) for ue in ues]
        return [
            Job(share, epochs, self._rng("shuffle", round, who), torch_seed(seed, "dropout", round, who))
            for share, epochs, who in work
        ]

    def _disturb(self, updates: Tensor, ues: list[int], round: int) -> None:
        """Add each UE's noise to its update, in place."""
        for row, ue in enumerate(ues):
            if self.fleet.noise[ue] > 0:
                noise = self._rng("noise", round, ue).standard_normal(self.model.size, dtype=np.float32)
                updates[row].add_(torch.from_numpy(noise).to(updates), alpha=float(self.fleet.noise[ue]))

    def _value(self, model: Tensor, updates: Tensor, received: UEs, round: int) -> Valuation:
        """Shapley values of the received updates on the PS's validation samples."""
        if not self.strategy.needs_values or self.strategy.pools_data or not len(received):
            return Valuation(np.zeros(len(received)), np.zeros(len(received)), 0)
        sizes, options = self.fleet.sizes[received], self.scenario.valuation
        rows = torch.cat([model.unsqueeze(0), updates])
        measure = mixtures(self.jury, rows)
        moves = (rows - model).double()
        geometry = Geometry(lambda members: coalition_weights(members, sizes), (moves @ moves.mT).cpu().numpy())

        def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
            losses, accuracies = measure(torch.from_numpy(coalition_weights(members, sizes)).to(model))
            return self._finite(-losses if options.utility == "loss" else accuracies, round).cpu().numpy()

        game, rng = Game(len(received), utility), self._rng("valuation", round)
        match options.method:
            case "exact":
                if game.players > MOST_EXACT_PLAYERS:  # a capture channel can bring more than one a slot
                    raise RefusedError(f"round {round}: {game.players} UEs are too many for valuation.method exact")
                valuation = exact(game)
            case "gtg":
                valuation = gtg(game, rng, options.permutations, options.between, options.within)
            case "cyclic":
                valuation = cyclic(game, rng, options.tolerance, options.max_utilities)
            case "kriging":
                valuation = kriging(game, geometry, rng, options.tolerance, options.max_utilities)
        return valuation

    def _aggregate(self, model: Tensor, updates: Tensor, received: UEs) -> Tensor:
        """ModelAverage of Algorithm 1; a round in which nothing is received leaves the model as it is."""
        if not len(received):
            return model
        return updates[0] if self.strategy.pools_data else average(updates, self.fleet.sizes[received])

    def _record(self, round: int, receipt: Receipt, valuation: Valuation, now: Snapshot, began: float) -> Round:
        test_loss, test_accuracy = self.test.evaluate(now.model)
        val_loss, _ = self.validation.evaluate(now.model)
        return Round(
            round=round,
            test_accuracy=test_accuracy,
            test_loss=test_loss,
            val_loss=val_loss,
            pulled=len(receipt.pulled),
            wasted=len(receipt.wasted),
            contenders=receipt.contenders,
            push_received=len(receipt.pushed),
            collided=len(receipt.collided),
            cost_max=receipt.cost_max,
            cost_sum=receipt.cost_sum,
            slots_spent=now.slots_spent,
            utilities=valuation.utilities,
            value_error=float(max(valuation.errors, default=0.0)),
            seconds=time.perf_counter() - began,
        )

    def _rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        return stream(self.scenario.seed, purpose, *numbers)

    def _finite(self, numbers: Tensor, round: int) -> Tensor:
        if not math.isfinite(numbers.sum()) and not torch.isfinite(numbers).all():
            training = self.scenario.training
            raise RefusedError(
                f"round {round}: training diverged, an update or its loss is no longer finite; "
                f"lower training.lr ({training.lr}) or fleet.noise ({self.scenario.fleet.noise})"
            )
        return numbers

    def _tensors(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        device = self.scenario.training.device
        samples = torch.tensor(x, device=device)
        if self.model.convolves and samples.dim() == 4:  # the order in which convolutions on a CPU are fastest
            samples = samples.contiguous(memory_format=torch.channels_last)
        return samples, torch.tensor(y, device=device)

    def _evaluators(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[Evaluator, Evaluator, Evaluator]:
        """Split the held-out samples: one part tests, one part validates, some of which judge coalitions."""
        options = self.scenario
        order = self._rng("held-out").permutation(len(y))
        count = round(options.data.validation * len(y))
        if not 0 < count < len(y):
            allowed = f"such that both parts of the {len(y)} test samples get one"
            raise InputError("data.validation", options.data.validation, allowed)
        judging = options.valuation.samples or count
        if judging > count:
            raise InputError("valuation.samples", judging, f"at most {count}, the number of validation samples")
        parts = order[count:], order[:count], order[:judging]
        test, validation, jury = (Evaluator(self.model, *self._tensors(x[part], y[part])) for part in parts)
        return test, validation, jury


def cell(scenario: Scenario) -> Cell:
    """What the scenario tells its strategy."""
    contenders, options = scenario.push.contenders, scenario.strategy
    return Cell(
        ues=scenario.data.ues,
        slots=scenario.frame.slots,
        pull=scenario.frame.pull,
        contenders=None if contenders == "ready" else contenders,
        probability=scenario.push.probability,
        warmup=options.warmup,
        memory=options.memory,
        share=options.share,
        options=options.options,
    )
