"""Algorithm 1: the loop that joins schedule, access, training, valuation and aggregation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedslot.access.channels import make_channel
from fedslot.access.frame import draw_hopefuls, play
from fedslot.data.sources import load
from fedslot.errors import RefusedError
from fedslot.exchange import Grant, Receipt, UEs
from fedslot.fleet import Fleet
from fedslot.judging import Judges, finite, no_values, tensors
from fedslot.learning.aggregation import average
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.plugins import find
from fedslot.rng import stream, torch_seed
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, Cell, Strategy, make_strategy
from fedslot.valuation import Valuation


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
        recipe = Recipe(training.lr, training.momentum, training.batches, training.proximal, training.optimizer)
        samples = tensors(self.model, data.x_train, data.y_train)
        self.trainer = Trainer(self.model, *samples, recipe, training.engine)
        self.judges = Judges(scenario, self.model, data.x_test, data.y_test)

    def start(self) -> Snapshot:
        """The beginning: the initial model, nothing known of any UE."""
        return Snapshot(0, 0, self.model.initial, self.strategy.init())

    def rounds(self, now: Snapshot | None = None) -> Iterator[tuple[Round, Snapshot]]:
        """Run Algorithm 1 from the start or from a snapshot, a round at a time."""
        now = now or self.start()
        while now.round < self.scenario.rounds and frame_fits(self.scenario, now.slots_spent):
            began, round = time.perf_counter(), now.round

            grant = schedule(self.strategy, self.scenario, now.state, round)
            receipt = self._access(grant, round)
            updates = self.train(now.model, receipt.received, round)
            valuation = self._value(now.model, updates, receipt.received, round)
            model = self._aggregate(now.model, updates, receipt.received)
            state = self.strategy.observe(now.state, receipt, valuation.values)

            now = Snapshot(round + 1, now.slots_spent + receipt.cost_max, model, state)
            yield record(self.judges, round, receipt, valuation, now, began), now

    def _access(self, grant: Grant, round: int) -> Receipt:
        """Play the frame on the channel."""
        hopefuls = invite(self.scenario, grant, round)
        slots, ready = self.scenario.frame.slots, self.fleet.ready(round)
        return play(grant, slots, hopefuls, ready, self.channel, self._rng("push", round))

    def train(self, model: Tensor, received: UEs, round: int) -> Tensor:
        """Updates (Y, P) of the received UEs. What collided influences nothing, so it is never trained.

        Where UEs send data instead, the PS trains on all of it: one row, no straggling, no noise.
        """
        updates = self.trainer(model, self._jobs(received, round))
        if not self.strategy.pools_data:
            self._disturb(updates, received.tolist(), round)
        return finite(updates, self.scenario, round)

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
        if not self.strategy.needs_values or self.strategy.pools_data:
            return no_values(len(received))
        return self.judges.value(model, updates, self.fleet.sizes[received], round)

    def _aggregate(self, model: Tensor, updates: Tensor, received: UEs) -> Tensor:
        """ModelAverage of Algorithm 1; a round in which nothing is received leaves the model as it is."""
        if not len(received):
            return model
        return updates[0] if self.strategy.pools_data else average(updates, self.fleet.sizes[received])

    def _rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        return stream(self.scenario.seed, purpose, *numbers)


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


def schedule(strategy: Strategy[Any], scenario: Scenario, state: Any, round: int) -> Grant:
    """What the strategy grants, which must be possible."""
    grant = strategy.schedule(state, round, stream(scenario.seed, "schedule", round))
    slots, ues, pull = scenario.frame.slots, scenario.data.ues, set(grant.pull.tolist())
    if len(grant.pull) > slots or len(pull) < len(grant.pull) or any(not 0 <= ue < ues for ue in pull):
        raise RefusedError(
            f"round {round}: strategy {scenario.strategy.name} granted {len(grant.pull)} pull slots; it may "
            f"grant {slots} at most, each to another UE from 0 to {ues - 1}"
        )
    return grant


def invite(scenario: Scenario, grant: Grant, round: int) -> UEs:
    """The UEs that happen to have something to push in this frame."""
    contenders = scenario.push.contenders
    number = None if contenders == "ready" else contenders
    return draw_hopefuls(number, scenario.data.ues, grant.pull, stream(scenario.seed, "hopefuls", round))


def frame_fits(scenario: Scenario, spent: int) -> bool:
    """Whether the time budget leaves room for another frame."""
    return scenario.time_budget is None or spent + 1 + scenario.frame.slots <= scenario.time_budget


def record(judges: Judges, round: int, receipt: Receipt, valuation: Valuation, now: Snapshot, began: float) -> Round:
    """The row of a round; `began` is what `time.perf_counter` gave at its beginning."""
    test_loss, test_accuracy = judges.test.evaluate(now.model)
    val_loss, _ = judges.validation.evaluate(now.model)
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
