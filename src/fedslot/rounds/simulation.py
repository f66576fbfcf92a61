"""Algorithm 1: the loop that joins schedule, access, training, valuation and aggregation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import make_channel
from fedslot.access.frame import play
from fedslot.aggregation import make_aggregation
from fedslot.data.sources import load
from fedslot.fleet import Fleet
from fedslot.messages import Grant, Receipt
from fedslot.parts.registry import find
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.local_training import (
    LocalTraining,
    LoneTraining,
    PooledTraining,
    Training,
    make_chain,
    make_model,
    make_trainer,
)
from fedslot.rounds.ps import PS, Step
from fedslot.rounds.round import Snapshot, backlogged, cell, overhead
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, Strategy, make_strategy
from fedslot.support.errors import InputError, RefusedError, refusing_exit
from fedslot.support.rng import CHANNEL, CONTENTION, stream
from fedslot.support.threads import ONE_THREAD, Threads

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
        aggregation = make_aggregation(scenario.aggregation.name, scenario.aggregation.options)
        data = load(scenario.data.dataset)
        self.fleet = Fleet.draw(scenario, data.y_train, data.ue_train)
        strategy = make_strategy(scenario.strategy.name, cell(scenario, self.fleet.sizes))
        check_strategy(scenario, strategy)
        self.model = make_model(scenario, data)
        self.trainer = make_trainer(scenario, self.model, data, threads)
        self.local = LocalTraining(scenario, self.fleet, self.trainer, make_chain(scenario))
        self.held_out = HeldOut(scenario, self.model, data.x_test, data.y_test, threads)
        self.ps = PS(scenario, self.model, self.held_out, strategy, aggregation)
        self.train: Training
        if scenario.pools_data:
            self.train = PooledTraining(scenario, self.fleet, self.trainer)
        elif scenario.trains_alone:
            self.train = LoneTraining(scenario, self.model, self.held_out.validation)
        else:
            self.train = distribute(self.local) if distribute else self.local.train

    @refusing_exit()
    def start(self) -> Snapshot:
        """Return the snapshot before the first round."""
        return self.ps.start(self.model.initial)

    def rounds(self, now: Snapshot | None = None) -> Iterator[Step]:
        """Run Algorithm 1 from the start or from a snapshot, a round at a time."""
        now = now or self.start()
        while self.goes_on(now) and (done := self._round(now)):
            yield done
            now = done.now

    def goes_on(self, now: Snapshot) -> bool:
        """Return whether rounds are left after a snapshot; the time budget may end the run before."""
        return now.round < self.scenario.most_rounds

    @refusing_exit()
    def _round(self, now: Snapshot) -> Step | None:
        """Run one round of Algorithm 1; None if its frame does not fit into the budget."""
        began = time.perf_counter()
        now = self.ps.ask(now, partial(self.local.losses, now.model))
        grant = self.ps.grant(now)
        if grant is None:
            return None
        receipt = self._access(grant, now.waiting, now.round)
        trained = self.train(now.model, receipt.received, now.round)
        if trained.bits is None:
            trained = self.local.send(now.model, trained, now.round, now.links)
        return self.ps.close(now, receipt, trained, began)

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
