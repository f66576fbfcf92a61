"""Algorithm 1: the loop that joins schedule, access, training, valuation and aggregation."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.channels import Coded
from fedslot.access.clock import radio_of
from fedslot.access.frame import play
from fedslot.data.sources import load, outline
from fedslot.fleet import Fleet
from fedslot.messages import Grant, Receipt, UEs
from fedslot.rounds.devices import Devices
from fedslot.rounds.held_out import HeldOut, finite
from fedslot.rounds.links import Links
from fedslot.rounds.local_training import (
    LocalTraining,
    LoneTraining,
    PooledTraining,
    Trained,
    Training,
    make_model,
)
from fedslot.rounds.memory import check_memory
from fedslot.rounds.ps import PS, Step
from fedslot.rounds.repetition import is_repeated, refuse_difference
from fedslot.rounds.round import Snapshot, backlogged, cell, overhead
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, Strategy
from fedslot.support.errors import InputError, RefusedError, refusing_exit
from fedslot.support.rng import CHANNEL, CONTENTION, stream
from fedslot.support.threads import ONE_THREAD, Threads

Distribute = Callable[[LocalTraining], Training]
"""Wraps the local training of a run, e.g. to spread it over a cluster."""


def check_strategy(scenario: Scenario, strategy: Strategy[Any]) -> None:
    """Refuse fields of a scenario that do not go with its strategy."""
    for name in scenario.training.epochs_by_strategy:
        STRATEGIES.find(name, "training.epochs_by_strategy")
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
        self.scenario, self.threads = scenario, threads
        for part in scenario.parts:  # before data are loaded
            part.bind()
        self.channel = scenario.push.channel.make()
        aggregation = scenario.aggregation.make()
        data = load(scenario.data.dataset)
        self.model = make_model(scenario, data)
        check_memory(scenario, outline(scenario.data.dataset), self.model)
        self.fleet = Fleet.draw(scenario, data.y_train, data.ue_train)
        radio = radio_of(scenario, self.model.tensor_shapes)
        most_age = scenario.staleness.most if scenario.is_asynchronous else None
        self.devices = Devices(scenario.data.ues, self.fleet.computing, most_age)
        self.links = Links.of(scenario, self.fleet, radio)
        if self.links.bursts is not None and isinstance(self.channel, Coded):
            allowed = f"equal, at rate 1, with {scenario.push.channel.name}: copies of several slots are not modelled"
            raise InputError("radio.rates", scenario.radio.rates.name, allowed)
        strategy = scenario.strategy.make(cell(scenario, self.fleet.sizes, radio))
        check_strategy(scenario, strategy)
        self.local = LocalTraining.make(scenario, self.fleet, self.model, data, threads)
        self.trainer = self.local.trainer
        self.held_out = HeldOut(scenario, self.model, data.x_test, data.y_test, threads)
        liars = self.local.liars
        self.goal = None if liars is None else liars.goal(self.model, self.held_out.test, threads)
        self.ps = PS(scenario, self.model, self.held_out, strategy, aggregation, self.links)
        self.train: Training
        if scenario.pools_data:
            self.train = PooledTraining(scenario, self.fleet, self.trainer)
        elif scenario.trains_alone:
            self.train = LoneTraining(scenario, self.model, self.held_out.validation)
        else:
            self.train = distribute(self.local) if distribute else self.local.train
        # elsewhere training may be slow, and on a GPU its last digits differ
        self._repeats = bool(scenario.own_parts) and distribute is None and scenario.training.device == "cpu"

    @refusing_exit()
    def start(self) -> Snapshot:
        """Return the snapshot before the first round."""
        return replace(self.ps.start(self.model.initial), work=self.devices.blank())

    def rounds(self, now: Snapshot | None = None) -> Iterator[Step]:
        """Run Algorithm 1 from the start or from a snapshot, a round at a time; some are repeated with own parts."""
        now = now or self.start()
        while self.goes_on(now):
            before = copy.deepcopy(now) if self._repeats and is_repeated(now.round) else None
            if not (done := self._round(now)):
                return
            if before is not None:
                again = Simulation(self.scenario, threads=self.threads)._round(before)
                refuse_difference(self.scenario, done, again)
            yield done
            now = done.now

    def goes_on(self, now: Snapshot) -> bool:
        """Return whether rounds are left after a snapshot; a budget may end the run before."""
        return now.round < self.scenario.most_rounds

    @refusing_exit()
    def _round(self, now: Snapshot) -> Step | None:
        """Run one round of Algorithm 1; None if no further frame fits into the scenario's budgets."""
        began = time.perf_counter()
        model = self.ps.heard(now)
        now = self.ps.ask(now, partial(self.local.losses, model))
        grant = self.ps.grant(now)
        if grant is None:
            return None
        start = self.ps.begins(now, grant.overhead)
        work, begun = self.devices.begin(now.work, grant, now.round, start, self.ps.absent(now))
        receipt = self._access(grant, now, model, self.devices.ready(work, now.round, start))
        versions = self.devices.versions(work, receipt.received, now.round)
        receipt = replace(receipt, versions=versions, trained=begun)
        receipt = replace(receipt, computing=self.devices.computed(receipt.received, versions))
        trained = self._train(now, model, receipt.received, versions)
        if self.ps.needs_reports:
            trained = replace(trained, metrics=self._report(model, trained, receipt.computing))
        times = self.devices.times(now.round)
        step = self.ps.close(now, receipt, trained, began, times)
        losses = torch.tensor([step.round.test_loss, step.round.val_loss], dtype=torch.float64)
        finite(losses, self.scenario, now.round)  # they may not be although the model is
        work = self.devices.end(work, receipt.received, versions)
        in_use = {version: step.now.versions[version] for version in work.versions & step.now.versions.keys()}
        length = receipt.wait + receipt.slots * self.ps.clock.radio.uplink_length
        absent = self.ps.absent(now)
        training, holding = self.devices.busy(work.finish(start + length), receipt, now.round, length, absent)
        row = replace(step.round, training=training, holding=holding)
        step = step._replace(round=row, now=replace(step.now, work=work, versions=in_use))
        if self.goal is None:
            return step
        success = self.goal.evaluate(step.now.report)[1]
        return step._replace(round=replace(step.round, attack_success=success))

    def _report(self, model: Tensor, trained: Trained, computing: NDArray[np.float64] | None) -> list[dict[str, float]]:
        """Return what the received UEs report of themselves, as devices do: of the names that the strategy needs."""
        ues = trained.ues
        known: dict[str, Callable[[], NDArray[Any]]] = {
            "loss": lambda: self.local.losses(model, ues),
            "norm": lambda: (trained.models - model).double().norm(dim=1).cpu().numpy(),
            "samples": lambda: self.fleet.sizes[ues],
        }
        if computing is not None and (section := self.scenario.fleet.computing) is not None:
            known["seconds"] = lambda: computing * section.slot
        numbers = {name: known[name]().tolist() for name in self.ps.needs_reports if name in known}
        return [{name: float(all[row]) for name, all in numbers.items()} for row in range(len(ues))]

    def _train(self, now: Snapshot, model: Tensor, ues: UEs, versions: UEs) -> Trained:
        """Train the received UEs, each from the model of its version, and send what they have learned.

        model: (P,) that of this round as UEs heard it.
        """
        if not (versions < now.round).any():
            trained = self.train(model, ues, now.round)
            return self.local.send(model, trained, now.round, now.links) if trained.bits is None else trained
        done: list[Trained] = []
        places: list[UEs] = []
        links = now.links
        for version in np.unique(versions).tolist():
            rows = np.flatnonzero(versions == version)
            places.append(rows)
            start = model if version == now.round else now.versions[version]
            trained = self.train(start, ues[rows], version)
            done.append(self.local.send(start, trained, version, links) if trained.bits is None else trained)
            links = done[-1].links
        order = np.argsort(np.concatenate(places))
        return Trained(
            torch.cat([part.models for part in done])[order],
            ues,
            self.fleet.sizes[ues],
            np.concatenate([part.bits for part in done if part.bits is not None])[order],
            links,
        )

    def _access(self, grant: Grant, now: Snapshot, model: Tensor, ready: NDArray[np.float64] | None) -> Receipt:
        """Play the frame on the channel. model: (P,) as UEs heard it. ready: (K,) in slots after the broadcast."""
        seed, round, slots = self.scenario.seed, now.round, grant.uplink_slots(self.scenario.frame.slots)
        contention, fading = stream(seed, CONTENTION, round), stream(seed, CHANNEL, round)
        pushing = backlogged(self.scenario, grant, now.waiting, round)
        if (silent := self.links.silenced(now)) is not None:
            pushing = pushing[~silent[pushing]]
        if ready is not None:
            ready = (ready - grant.wait) / self.ps.clock.radio.uplink_length
        own: dict[str, Callable[[UEs], NDArray[Any]]] = {
            "noise": self.fleet.claimed_noise.__getitem__,
            "samples": self.fleet.sizes.__getitem__,
            "loss": partial(self.local.losses, model),
            "norm": partial(self.local.norms, model, round),
        }
        try:
            return play(grant, slots, pushing, ready, self.channel, contention, fading, own, self.links.fails(round))
        except RefusedError as error:  # a channel of one's own
            raise RefusedError(f"round {round}: {error}") from None
