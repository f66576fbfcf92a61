"""The parameter server of a deployment: everything between announcing a frame and saving the next global model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot import runs
from fedslot.deployment.faults import NO_NODE, Fault, FaultLog
from fedslot.deployment.frame import Frame, write_channel
from fedslot.deployment.reception import Criteria, Reply, hear
from fedslot.deployment.roster import Roster
from fedslot.deployment.screening import Limits, Update
from fedslot.errors import InputError, RefusedError
from fedslot.held_out import HeldOut, no_values
from fedslot.learning.aggregation import average
from fedslot.learning.models import Model
from fedslot.messages import Receipt, UEs
from fedslot.records import RowWriter, RunFolder
from fedslot.round import Round, Snapshot, backlogged, cell, frame_fits, record, schedule
from fedslot.scenario import Scenario
from fedslot.strategies import make_strategy
from fedslot.valuation import Valuation

WEIGHT = "num-examples"  # the metric by which devices say how many training samples they have
AGGREGATION = "aggregation/"  # what names of the aggregation's arrays begin with in a checkpoint


@dataclass(frozen=True)
class Received:
    """The updates that a frame brought, in the order of their slots.

    ues: (Y,) who sent them. models: (Y, P). sizes: (Y,) training samples that count for each.
    metrics: what each UE measured.
    """

    ues: UEs
    models: Tensor
    sizes: NDArray[np.int64]
    metrics: list[dict[str, float]]


class Aggregator(Protocol):
    """Makes the next global model from the received updates."""

    def __call__(self, model: Tensor, received: Received, round: int) -> Tensor:
        """Return the model (P,) that follows `model` (P,). There is at least one update."""
        ...

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that are carried from round to round, such as FedAdam's moments."""
        ...

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Continue with what `memory` returned: after a restart, or because a round failed."""
        ...


class Average:
    """The data-weighted average (ModelAverage of Algorithm 1), which carries nothing from round to round."""

    def __call__(self, model: Tensor, received: Received, round: int) -> Tensor:
        return average(received.models, received.sizes)

    def memory(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None: ...


class ParameterServer:
    """Runs the rounds of a scenario on devices; a transport carries the messages.

        server.start()
        while frame := server.announce():
            # the transport sends server.now.model and frame.turns to the UEs, and collects their replies
            server.close(frame, reached, replies)
        server.finish()

    scenario: the cell, the strategy and the valuation, as studied in the simulator.
    model: the network. held_out: the PS's held-out samples.
    aggregate: makes the next global model; None stands for the data-weighted average.
    out: folder for `scenario.yaml`, `rounds.csv`, `faults.csv`, `summary.json` and checkpoints; None writes no files.
    resume: continue what the folder holds.
    seeded: UEs draw their slots from the scenario's seed, as in the simulator; otherwise from their own entropy.
    keyed: a UE belongs to its node for good, because nodes have keys or certificates.
    limits: limits of what a device may send. weight: the metric that counts training samples.
    """

    def __init__(
        self,
        scenario: Scenario,
        model: Model,
        held_out: HeldOut,
        aggregate: Aggregator | None = None,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        seeded: bool = True,
        keyed: bool = False,
        limits: Limits = Limits(),  # noqa: B008
        weight: str = WEIGHT,
    ) -> None:
        self.strategy = make_strategy(scenario.strategy.name, cell(scenario))
        _check(scenario)
        self.scenario, self.model, self.held_out, self.limits = scenario, model, held_out, limits
        self.aggregate = aggregate or Average()
        self.seeded, self.resume, self.weight = seeded, resume, weight
        self.folder = None if out is None else RunFolder(Path(out))
        self.roster = Roster(scenario.data.ues, keyed)
        self.claims = np.zeros(scenario.data.ues, dtype=np.int64)  # training samples that each UE claims
        self.faults = FaultLog()
        self._rows: RowWriter | None = None

    def start(self, initial: Tensor | None = None) -> None:
        """Begin with a model (P,), by default the network's own, or with the folder's checkpoint."""
        model = self.model.initial if initial is None else initial
        self.now = Snapshot(0, 0, model, self.strategy.init())
        # relative to the initial model, because a device could raise the norm of the present one round by round
        self._longest = self.limits.norm * max(float(model.double().norm()), 1.0)
        if self.folder:
            self._open(self.folder)

    @property
    def over(self) -> bool:
        """Whether the scenario's rounds or its time budget are used up."""
        return self.now.round >= self.scenario.rounds or not frame_fits(self.scenario, self.now.slots_spent)

    def announce(self) -> Frame | None:
        """Return the next frame, or None if the training is over."""
        self._began, round = time.perf_counter(), self.now.round
        if self.over:
            return None
        grant = schedule(self.strategy, self.scenario, self.now.state, round)
        return Frame(self.scenario, grant, backlogged(self.scenario, grant, round), round, self.seeded)

    def close(self, frame: Frame, reached: Mapping[int, str], replies: Iterable[tuple[int, Reply]]) -> Round:
        """Make the next global model from the replies to a frame, and record and save the round.

        reached: the nodes of the UEs that must answer, by UE; the frame's other UEs count as absent.
        replies: each with the UE that it comes from, one of the frame.
        """
        heard = hear(frame, reached, replies, self._criteria())
        self.faults.add(*heard.faults)
        receipt = frame.receipt(heard.used, heard.updates.keys())
        received = self._received(receipt, heard.updates, frame.round)
        valuation = self._value(received, frame.round)
        model = self._aggregate(received, frame.round)
        state = self.strategy.observe(self.now.state, receipt, valuation.values)

        self.now = Snapshot(frame.round + 1, self.now.slots_spent + receipt.cost_max, model, state)
        row = record(self.held_out, frame.round, receipt, valuation, self.now, self._began)
        self._save(row)
        return row

    def finish(self) -> None:
        """Close the files; write the summary if the training is over."""
        if self.folder and self._rows:
            self._rows.close()
            if self.over and self.now.round:
                self.folder.finish(runs.Result(self.scenario, self.folder.rounds()).summary())

    def _criteria(self) -> Criteria:
        shapes = {name: tuple(shape) for name, shape in self.model.shapes.items()}
        return Criteria(self.now.model.cpu().numpy(), shapes, self.weight, self._longest, self._loss)

    def _received(self, receipt: Receipt, updates: Mapping[int, Update], round: int) -> Received:
        ues = receipt.received
        mine = [updates[ue] for ue in ues.tolist()]
        models = np.array([update.model for update in mine], dtype=np.float32).reshape(len(mine), self.model.size)
        sizes = self._sizes(ues, np.array([update.examples for update in mine], dtype=np.int64), round)
        return Received(ues, torch.from_numpy(models).to(self.now.model), sizes, [update.metrics for update in mine])

    def _sizes(self, ues: UEs, claimed: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """Return the training samples that count for each UE: claims are limited by the median of all UEs' claims."""
        self.claims[ues] = claimed
        known = np.sort(self.claims[self.claims > 0])
        most = int(self.limits.examples * known[(len(known) - 1) // 2]) if len(known) else 0
        for ue, claim in zip(ues.tolist(), claimed.tolist(), strict=True):
            if claim > most:
                node = self.roster.nodes.get(ue, NO_NODE)
                self.faults.add(Fault(round, ue, node, "weight", f"{claim}, counted as {most}"))
        return np.minimum(claimed, most)

    def _value(self, received: Received, round: int) -> Valuation:
        if not self.strategy.needs_values:
            return no_values(len(received.ues))
        try:
            return self.held_out.value(self.now.model, received.models, received.sizes, round)
        except RefusedError as error:  # every update has a finite loss, but an average of some may not
            self.faults.add(Fault(round, -1, NO_NODE, "values", str(error)))
            return no_values(len(received.ues))

    def _aggregate(self, received: Received, round: int) -> Tensor:
        """Return the next global model; the present one without updates, or if the aggregation fails."""
        if not len(received.ues):
            return self.now.model
        before = self.aggregate.memory()
        try:
            model = self.aggregate(self.now.model, received, round)
            if not torch.isfinite(model).all() or not math.isfinite(self._loss(model)):
                raise ArithmeticError("the new model is not finite")
            if not all(np.isfinite(array).all() for array in self.aggregate.memory().values()):
                raise ArithmeticError("the aggregation's memory is not finite")
        except Exception as error:  # the updates are to blame, and must not end the training
            self.aggregate.restore(before)
            detail = f"{type(error).__name__}: {error}; the present model stays"
            self.faults.add(Fault(round, -1, NO_NODE, "aggregate", detail))
            return self.now.model
        return model

    def _loss(self, model: Tensor) -> float:
        return self.held_out.validation.evaluate(model.to(self.now.model))[0]

    def _open(self, folder: RunFolder) -> None:
        folder.prepare(self.scenario, self.resume)
        self.now = folder.restore(self.now)
        if saved := folder.more():
            self.roster.restore(saved["nodes"])
            self.claims = saved["claims"]
            memory = {name.removeprefix(AGGREGATION): saved[name] for name in saved if name.startswith(AGGREGATION)}
            self.aggregate.restore(memory)
        self.faults = FaultLog(folder.path, self.now.round)
        self._rows = folder.open_rows(keep=self.now.round)

    def _save(self, row: Round) -> None:
        if self.folder and self._rows:
            self._rows.append(row)
            self._rows.sync()  # before the checkpoint, which must never be ahead of the rows
            memory = {AGGREGATION + name: array for name, array in self.aggregate.memory().items()}
            self.folder.save(self.now, {"nodes": self.roster.to_array(), "claims": self.claims, **memory})


def _check(scenario: Scenario) -> None:
    """Refuse a scenario that only the simulator can run."""
    if scenario.pools_data:
        raise InputError("strategy.name", scenario.strategy.name, "one whose UEs send updates; no data leaves a device")
    if scenario.fleet.computing is not None:
        raise InputError("fleet.computing", "set", "null in a deployment, where UEs take the time that they take")
    write_channel(scenario.push.channel, scenario.push.channel_options)
