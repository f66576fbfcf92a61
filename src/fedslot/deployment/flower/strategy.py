"""`SlotAccess`: a Flower strategy that grants pull slots by value and leaves the others open to contention."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.supercore import log
from numpy.typing import NDArray
from torch import Tensor

from fedslot import runs
from fedslot.deployment.flower.arrays import to_arrays, to_flat
from fedslot.deployment.flower.faults import Fault, FaultLog
from fedslot.deployment.flower.frame import Announced
from fedslot.deployment.flower.grid import POLL, DeadlineGrid, SomeNodes
from fedslot.deployment.flower.moments import hold, moments, put_back, restore_moments
from fedslot.deployment.flower.reception import Expected, Heard, hear
from fedslot.deployment.flower.roster import Roster, asks_who
from fedslot.deployment.flower.screening import Limits, Update
from fedslot.deployment.flower.turn import LABEL, Turn, write_channel
from fedslot.errors import InputError, RefusedError
from fedslot.held_out import HeldOut, no_values
from fedslot.learning.models import Model
from fedslot.messages import Receipt
from fedslot.records import RowWriter, RunFolder
from fedslot.round import Snapshot, backlogged, cell, frame_fits, record, schedule
from fedslot.scenario import Scenario
from fedslot.strategies import NoState, make_strategy
from fedslot.valuation import Valuation

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class SlotAccess(FedAvg):
    """A stock strategy on frames of pull and push slots: FedAvg, or another by `class Mine(SlotAccess, FedAdam)`.

    scenario: the cell, the scheduler and the valuation, as studied in the simulator.
    model: the network, whose parameters are the arrays that are exchanged.
    held_out: the PS's held-out samples.
    deadline: seconds after which a round is closed.
    out: folder for `scenario.yaml`, `rounds.csv`, `faults.csv`, `summary.json` and the saved state; None: no files.
    resume: go on with what the folder holds, values included.
    seeded: UEs draw their slots from the scenario's seed, as in the simulator; otherwise from their own entropy.
    keyed: SuperNodes have keys, so that a UE belongs to its node for good.
    wait: seconds to wait for all UEs before the first round.
    poll: seconds between looks at what has come in.
    limits: what is absurd in an update.
    options: what the stock strategy takes, e.g. `eta` of FedAdam.
    """

    def __init__(
        self,
        *,
        scenario: Scenario,
        model: Model,
        held_out: HeldOut,
        deadline: float,
        out: str | Path | None = None,
        resume: bool = False,
        seeded: bool = True,
        keyed: bool = False,
        wait: float = 60.0,
        poll: float = POLL,
        limits: Limits = Limits(),  # noqa: B008
        **options: Any,
    ) -> None:
        # who trains is the scheduler's to say, and the frame has no slots for federated evaluation
        super().__init__(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=0, min_available_nodes=0, **options)
        self.scheduler = make_strategy(scenario.strategy.name, cell(scenario))
        _check(scenario)
        self.scenario, self.model, self.held_out, self.limits = scenario, model, held_out, limits
        self.deadline, self.poll, self.wait, self.seeded = deadline, poll, wait, seeded
        self.folder, self.resume = None if out is None else RunFolder(Path(out)), resume
        self.roster = Roster(scenario.data.ues, keyed)
        self.claims = np.zeros(scenario.data.ues, dtype=np.int64)  # training samples that UEs say they have
        self.faults = FaultLog()
        self._rows: RowWriter | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train to the end of the scenario, or for `num_rounds` more rounds at most."""
        self._grid = DeadlineGrid(grid, self.deadline, self.poll)
        model = to_flat(self.model, initial_arrays)
        self.now = Snapshot(0, 0, model, model, self.scheduler.init(), NoState())
        # of the first model rather than the present one, whose norm a device could raise round by round
        self._reach = self.limits.norm * max(float(self.now.model.double().norm()), 1.0)
        self._open_folder()
        done, left = self.now.round, self.scenario.rounds - self.now.round
        evaluate = evaluate_fn and (lambda round, arrays: evaluate_fn(done + round, arrays))
        try:
            if left:
                self._note(self.roster.gather(self._grid, self.wait))
            result = super().start(
                self._grid,
                to_arrays(self.model, self.now.model),
                left if num_rounds is None else min(num_rounds, left),
                timeout,
                train_config,
                evaluate_config,
                evaluate,
            )
        finally:
            self._close_folder()
        result.arrays = to_arrays(self.model, self.now.model)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Grant the pull slots, open the push window, and write each UE's turn on its message."""
        self._began, round = time.perf_counter(), self.now.round
        self._frame: Announced | None = None
        if not frame_fits(self.scenario, self.now.slots_spent):
            return []
        self.roster.ask(self._grid)
        grant = schedule(self.scheduler, self.scenario, self.now.state, round)
        pushing = backlogged(self.scenario, grant, round)
        frame = self._frame = Announced(self.scenario, grant, pushing, round, self.seeded)
        online = self.roster.online(grid)
        nodes = {ue: online[ue] for ue in frame.turns if ue in online}
        # the stock strategy sees only the nodes that have a turn, and makes a message for each
        made = super().configure_train(round + 1, arrays, config, SomeNodes(grid, nodes.values()))
        messages = {message.metadata.dst_node_id: message for message in made}
        self._sent = {ue: self._label(messages[node], frame.turns[ue]) for ue, node in nodes.items()}
        counts = len(grant.pull), len(frame.backlogged), len(nodes)
        log(INFO, "fedslot: %d UEs pulled, %d may push, %d of them here", *counts)
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Screen what came, resolve the slots, value what was received, aggregate it, and learn from it."""
        frame, now = self._frame, self.now
        if frame is None:
            return None, None
        heard = self._hear(frame, replies)
        receipt = frame.receipt(heard.used, heard.updates.keys())
        updates = [heard.updates[ue] for ue in receipt.received.tolist()]
        sizes = self._sizes(receipt, updates, frame.round)
        valuation = self._value(updates, sizes, frame.round)
        model, metrics = self._average(receipt, updates, sizes, frame.round)
        state = self.scheduler.observe(now.state, receipt, valuation.values)

        spent = now.slots_spent + receipt.cost_max
        self.now = Snapshot(frame.round + 1, spent, model, model, state, NoState())
        row = record(self.held_out, frame.round, receipt, valuation, self.now, self._began)
        if self.folder and self._rows:
            self._rows.append(row)
            self._rows.sync()  # before the checkpoint, which must never be ahead of the rows
            self.folder.save(self.now, {"nodes": self.roster.nodes, "claims": self.claims, **moments(self)})
        return to_arrays(self.model, model), MetricRecord(metrics | asdict(row))

    def _hear(self, frame: Announced, replies: Iterable[Message]) -> Heard:
        shapes = {name: tuple(shape) for name, shape in self.model.shapes.items()}
        expected = Expected(self.now.model.cpu().numpy(), shapes, self.weighted_by_key, self._reach, self._loss)
        heard = hear(frame, self._sent, replies, expected)
        self._aside(frame.round)
        self._note(heard.faults)
        return heard

    def _aside(self, round: int) -> None:
        """See to what came beside the answers to this frame: who nodes are, and answers that are late."""
        others, self._grid.others = self._grid.others, []
        self._note(self.roster.bind([answer for answer in others if asks_who(answer[0])], self._grid, round))
        for question, reply in others:
            if not asks_who(question) and reply.has_content():
                turn = Turn.from_record(question.content.config_records[LABEL])
                self._note([Fault(turn.round, turn.ue, question.metadata.dst_node_id, "late")])

    def _note(self, faults: list[Fault]) -> None:
        self.faults.add(faults)
        for fault in faults:
            log(WARNING, "fedslot: UE %d, node %d: %s %s", fault.ue, fault.node, fault.reason, fault.detail)

    def _sizes(self, receipt: Receipt, updates: list[Update], round: int) -> NDArray[np.int64]:
        """The training samples that count for each received UE: no one may buy weight by a claim."""
        claimed = np.array([update.examples for update in updates], dtype=np.int64)
        self.claims[receipt.received] = claimed
        known = np.sort(self.claims[self.claims > 0])
        most = int(self.limits.examples * known[(len(known) - 1) // 2]) if len(known) else 0
        for ue, claim in zip(receipt.received.tolist(), claimed.tolist(), strict=True):
            if claim > most:
                self._note([Fault(round, ue, int(self.roster.nodes[ue]), "weight", f"{claim}, counted as {most}")])
        return np.minimum(claimed, most)

    def _value(self, updates: list[Update], sizes: NDArray[np.int64], round: int) -> Valuation:
        if not self.scheduler.needs_values or not updates:
            return no_values(len(updates))
        rows = torch.from_numpy(np.stack([update.row for update in updates])).to(self.now.model)
        try:
            return self.held_out.value(self.now.model, rows, sizes, round)
        except RefusedError as error:  # each update has a finite loss, but an average of some may have none
            self._note([Fault(round, -1, 0, "values", str(error))])
            return no_values(len(updates))

    def _average(
        self, receipt: Receipt, updates: list[Update], sizes: NDArray[np.int64], round: int
    ) -> tuple[Tensor, dict[str, Any]]:
        """The stock strategy's new model and metrics; without updates, or if it is not sound, the old model."""
        old = self.now.model
        if not updates:
            return old, {}
        common = set.intersection(*(set(update.metrics) for update in updates))
        replies = []
        for ue, update, size in zip(receipt.received.tolist(), updates, sizes.tolist(), strict=True):
            metrics = {name: update.metrics[name] for name in sorted(common)} | {self.weighted_by_key: size}
            arrays = to_arrays(self.model, torch.from_numpy(update.row))
            content = RecordDict({self.arrayrecord_key: arrays, "metrics": MetricRecord(metrics)})
            replies.append(Message(content, reply_to=self._sent[ue]))
        before = hold(self)
        try:
            found, measured = super().aggregate_train(round + 1, replies)
            new = old if found is None else to_flat(self.model, found)
            held = moments(self).values()
            if not torch.isfinite(new).all() or not math.isfinite(self._loss(new)):
                raise ArithmeticError("the new model is not finite; the old one stays")
            if not all(np.isfinite(array).all() for array in held):
                raise ArithmeticError("the strategy's moments are not finite; the old ones stay, and the old model")
        except Exception as error:  # it is the updates' fault, and must not end the training
            put_back(self, before)
            self._note([Fault(round, -1, 0, "aggregate", f"{type(error).__name__}: {error}")])
            return old, {}
        return new, dict(measured or {})

    def _loss(self, flat: Tensor) -> float:
        return self.held_out.validation.evaluate(flat.to(self.now.model))[0]

    def _label(self, message: Message, turn: Turn) -> Message:
        content = RecordDict({**message.content, LABEL: turn.to_record()})
        asked = message.metadata
        # a late answer can still come, and be known as late, for as long again
        return Message(content, asked.dst_node_id, asked.message_type, ttl=2 * self.deadline)

    def _open_folder(self) -> None:
        if self.folder is None:
            return
        self.folder.prepare(self.scenario, self.resume)
        self.now = self.folder.restore(self.now)
        if saved := self.folder.more():
            self.roster.restore(saved["nodes"])
            self.claims = saved["claims"]
            restore_moments(self, saved)
        self.faults = FaultLog(self.folder.path, self.now.round)
        self._rows = self.folder.open_rows(keep=self.now.round)

    def _close_folder(self) -> None:
        if self.folder is None or self._rows is None:
            return
        self._rows.close()
        over = self.now.round == self.scenario.rounds or not frame_fits(self.scenario, self.now.slots_spent)
        if over and self.now.round:
            self.folder.finish(runs.Result(self.scenario, self.folder.rounds()).summary())


def _check(scenario: Scenario) -> None:
    """Refuse what only a simulator can do."""
    if scenario.pools_data:
        raise InputError("strategy.name", scenario.strategy.name, "one whose UEs send updates; no data leaves a device")
    if scenario.fleet.computing is not None:
        raise InputError("fleet.computing", "set", "null in a deployment, where UEs take the time that they take")
    write_channel(scenario.push.channel, scenario.push.channel_options)
