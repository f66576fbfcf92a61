"""Algorithm 1: the loop that joins schedule, access, training, valuation and aggregation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.channels import make_channel
from fedslot.access.clock import Clock
from fedslot.access.frame import play
from fedslot.aggregation import Aggregate, Updates, make_aggregation
from fedslot.data.sources import load
from fedslot.fleet import Fleet
from fedslot.messages import Grant, Receipt
from fedslot.parts.registry import find
from fedslot.rounds.held_out import HeldOut, no_values
from fedslot.rounds.local_training import (
    LocalTraining,
    LoneTraining,
    PooledTraining,
    Trained,
    Training,
    make_model,
    make_trainer,
)
from fedslot.rounds.round import (
    Round,
    Snapshot,
    add,
    aggregate,
    ask,
    backlogged,
    cell,
    first_waiting,
    frame_fits,
    gather,
    measure,
    observe,
    overhead,
    record,
    schedule,
    start,
    start_aggregation,
    still_waiting,
    trace,
)
from fedslot.rounds.trace import Event
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, Strategy, make_strategy
from fedslot.support.errors import InputError, RefusedError, refusing_exit
from fedslot.support.rng import CHANNEL, CONTENTION, stream
from fedslot.support.threads import ONE_THREAD, Threads
from fedslot.valuation import Valuation

Distribute = Callable[[LocalTraining], Training]
"""Wraps the local training of a run, e.g. to spread it over a cluster."""


def check_strategy(scenario: Scenario, strategy: Strategy[Any]) -> None:
    """Refuse fields of a scenario that do not go with its strategy."""
    for name in scenario.training.epochs_by_strategy:
        find("training.epochs_by_strategy", name, STRATEGIES)
    least = overhead(strategy) + 1 + scenario.frame.slots
    if scenario.time_budget is not None and scenario.time_budget < least:
        raise InputError("time_budget", scenario.time_budget, f"at least a frame and what asking costs ({least})")
    if scenario.pools_data and (strategy.needs_values or getattr(strategy, "needs_measurements", False)):
        raise InputError("training.pooled", True, f"false for {scenario.strategy.name}, which needs updates")


class Step(NamedTuple):
    """A round that is done: its record, the snapshot after it, and the trace of its frame."""

    round: Round
    now: Snapshot
    frame: list[Event]


class Simulation:
    """A scenario with its data loaded, fleet drawn and parts built; one that cannot run is refused here.

    distribute: replaces the local training of UEs; where the PS itself trains, it is not used.
    threads: share the work of a round; the result does not depend on their number.
    """

    @refusing_exit()
    def __init__(self, scenario: Scenario, distribute: Distribute | None = None, threads: Threads = ONE_THREAD) -> None:
        self.scenario = scenario
        find("strategy.name", scenario.strategy.name, STRATEGIES)  # before data are loaded
        self.channel = make_channel(scenario.push.channel, **scenario.push.channel_options)
        self.aggregation = make_aggregation(scenario.aggregation.name, scenario.aggregation.options)
        data = load(scenario.data.dataset)
        self.fleet = Fleet.draw(scenario, data.y_train, data.ue_train)
        self.strategy = make_strategy(scenario.strategy.name, cell(scenario, self.fleet.sizes))
        check_strategy(scenario, self.strategy)
        self.model = make_model(scenario, data)
        self.clock = Clock.of(scenario, self.model.size)
        self.trainer = make_trainer(scenario, self.model, data, threads)
        self.local = LocalTraining(scenario, self.fleet, self.trainer)
        self.train: Training
        if scenario.pools_data:
            self.train = PooledTraining(scenario, self.fleet, self.trainer)
        else:
            self.train = distribute(self.local) if distribute else self.local
        self.held_out = HeldOut(scenario, self.model, data.x_test, data.y_test, threads)
        if scenario.trains_alone:
            self.train = LoneTraining(scenario, self.model, self.held_out.validation)

    @refusing_exit()
    def start(self) -> Snapshot:
        """Return the snapshot before the first round."""
        model = self.model.initial
        waiting, state = first_waiting(self.scenario), start(self.strategy, self.scenario)
        aggregation = start_aggregation(self.aggregation, self.scenario, model)
        return Snapshot(0, 0, waiting, model, model, state, aggregation)

    def rounds(self, now: Snapshot | None = None) -> Iterator[Step]:
        """Run Algorithm 1 from the start or from a snapshot, a round at a time."""
        now = now or self.start()
        while self.goes_on(now) and (done := self._round(now)):
            yield done
            now = done.now

    def goes_on(self, now: Snapshot) -> bool:
        """Return whether rounds are left after a snapshot; a budget may end the run before."""
        return now.round < self.scenario.most_rounds

    @refusing_exit()
    def _round(self, now: Snapshot) -> Step | None:
        """Run one round of Algorithm 1; None if no further frame fits into the scenario's budgets."""
        began, round = time.perf_counter(), now.round

        state = ask(self.strategy, self.scenario, now.state, round, partial(self.local.losses, now.model))
        grant = schedule(self.strategy, self.scenario, state, round)
        if not frame_fits(self.scenario, self.clock, now, grant):
            return None
        receipt = self._access(grant, now.waiting, round)
        trained = self.train(now.model, receipt.received, round)
        valuation = self._value(now.model, trained, receipt, round)
        updates = self._gather(now.model, trained, valuation)
        new = self._aggregate(now, updates)
        receipt = replace(receipt, measured=measure(self.strategy, updates))
        state = observe(self.strategy, self.scenario, state, receipt, valuation.values, round)

        cost = self.clock.cost(receipt, self.fleet.ready(round) if self.clock.compute_joules else None)
        spent, seconds, joules = add(now, cost)
        waiting = still_waiting(self.scenario, now.waiting, receipt.received, now.slots_spent, spent)
        after = Snapshot(round + 1, spent, waiting, new.broadcast, new.report, state, new.state, seconds, joules)
        frame = trace(self.scenario, round, receipt, state, new.state)
        row = record(self.held_out, round, receipt, valuation, after, began, cost, new.val_loss)
        return Step(row, after, frame)

    def _access(self, grant: Grant, waiting: NDArray[np.bool_], round: int) -> Receipt:
        """Play the frame on the channel."""
        seed, slots = self.scenario.seed, grant.uplink_slots(self.scenario.frame.slots)
        contention, fading = stream(seed, CONTENTION, round), stream(seed, CHANNEL, round)
        pushing, ready = backlogged(self.scenario, grant, waiting, round), self.fleet.ready(round)
        own = {"noise": self.fleet.noise, "samples": self.fleet.sizes}
        try:
            return play(grant, slots, pushing, ready, self.channel, contention, fading, own)
        except RefusedError as error:  # a channel of one's own
            raise RefusedError(f"round {round}: {error}") from None

    def _value(self, model: Tensor, trained: Trained, receipt: Receipt, round: int) -> Valuation:
        """Value the received updates on the PS's validation samples."""
        if not self.strategy.needs_values:
            return no_values(len(receipt.received))
        return self.held_out.value(model, trained.models, trained.sizes, round)

    def _gather(self, model: Tensor, trained: Trained, valuation: Valuation) -> Updates:
        """Return the received updates with their values; a model that the PS trained has none."""
        values = no_values(len(trained.models)).values if (trained.ues < 0).any() else valuation.values
        return gather(self.model, self.held_out, model, trained.models, trained.ues, trained.sizes, values)

    def _aggregate(self, now: Snapshot, updates: Updates) -> Aggregate[Any]:
        """Aggregate the received models into the next model; without any, the model stays as it is."""
        if not len(updates.local):
            return Aggregate(now.model, now.report, now.aggregation)
        return aggregate(self.aggregation, now.aggregation, updates, self.scenario, now.round)
