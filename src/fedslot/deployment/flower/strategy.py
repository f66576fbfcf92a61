"""`SlotAccess`: a Flower strategy that grants pull slots by value and leaves the others open to contention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from logging import getLogger
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from fedslot.deployment.flower import nodes
from fedslot.deployment.flower.arrays import to_arrays, to_flat
from fedslot.deployment.flower.grid import POLL, DeadlineGrid, SomeNodes
from fedslot.deployment.flower.messages import LABEL, FlowerReply
from fedslot.deployment.flower.stock import StockAggregation
from fedslot.deployment.flower.wire import WIRE, announce
from fedslot.deployment.frame import Turn
from fedslot.deployment.screening import Limits
from fedslot.deployment.server import ParameterServer
from fedslot.learning.models import Model
from fedslot.rounds.held_out import HeldOut
from fedslot.runs.callbacks import Callback
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
logger = getLogger("flwr")


class SlotAccess(FedAvg):
    """A stock strategy on frames of pull and push slots: FedAvg, or another by `class Mine(SlotAccess, FedAdam)`.

    `scenario`, `model`, `held_out`, `out`, `resume`, `force`, `seeded`, `limits`, `metrics`, `callbacks` and `frames`
    are those of `fedslot.deployment.server.ParameterServer`, which is the attribute `server`.

    deadline: seconds after which a round is closed.
    keyed: SuperNodes have keys, so that a UE belongs to its node for good.
    wait: seconds to wait for all UEs before the first round.
    poll: seconds between looks at what has come in.
    options: those of the stock strategy, e.g. `eta` of FedAdam.
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
        force: bool = False,
        seeded: bool = True,
        keyed: bool = False,
        wait: float = 60.0,
        poll: float = POLL,
        limits: Limits = Limits(),  # noqa: B008
        metrics: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        frames: bool = True,
        **options: Any,
    ) -> None:
        # the scheduler decides who trains, and the frame has no slots for federated evaluation
        super().__init__(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=0, min_available_nodes=0, **options)
        if scenario.aggregation.name != "average":
            allowed = "average: over Flower the stock strategy aggregates, as in `class Mine(SlotAccess, FedAdam)`"
            raise InputError("aggregation.name", scenario.aggregation.name, allowed)
        self.deadline, self.poll, self.wait = deadline, poll, wait
        self.stock = StockAggregation(self, super().aggregate_train, model)
        self.server = ParameterServer(
            scenario,
            model,
            held_out,
            self.stock,
            out=out,
            resume=resume,
            force=force,
            seeded=seeded,
            keyed=keyed,
            limits=limits,
            weight=self.weighted_by_key,
            metrics=metrics,
            callbacks=callbacks,
            frames=frames,
        )

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
        server, model = self.server, self.server.model
        self._grid = DeadlineGrid(grid, self.deadline, self.poll)
        server.start(to_flat(model, initial_arrays))
        done, left = server.now.round, server.scenario.rounds - server.now.round
        evaluate = evaluate_fn and (lambda round, arrays: evaluate_fn(done + round, arrays))
        try:
            if left:
                nodes.gather(server, self._grid, self.wait)
            result = super().start(
                self._grid,
                to_arrays(model, server.now.model),
                left if num_rounds is None else min(num_rounds, left),
                timeout,
                train_config,
                evaluate_config,
                evaluate,
            )
        finally:
            server.finish()
        result.arrays = to_arrays(model, server.now.model)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Announce the next frame: write each UE's turn on the message that the stock strategy makes for it."""
        online, self.stock.sent = nodes.online(self.server, grid), {}
        self.server.note_presence(online.keys())
        self._frame = self.server.announce(online.keys())
        if self._frame is None:
            return []
        self.stock.round, turns = self._frame.round, self._frame.turns
        nodes.ask_new_nodes(self.server, self._grid)
        here = {ue: online[ue] for ue in turns if ue in online}
        stock = super().configure_train(self._frame.round + 1, arrays, config, SomeNodes(grid, here.values()))
        messages = {message.metadata.dst_node_id: message for message in stock}
        self.stock.sent = {ue: self._label(messages[node], turns[ue]) for ue, node in here.items()}
        counts = len(self._frame.grant.pull), len(self._frame.backlogged), len(here)
        logger.info("fedslot: %d UEs pulled, %d may push, %d of them here", *counts)
        return list(self.stock.sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the frame with the devices' replies."""
        frame, server = self._frame, self.server
        if frame is None:
            return None, None
        nodes.note(server, self._grid, self._grid.others)
        sent, self.stock.metrics = self.stock.sent, {}
        asked = {message.metadata.message_id: ue for ue, message in sent.items()}
        reached = {ue: str(message.metadata.dst_node_id) for ue, message in sent.items()}
        # the grid returns replies to these messages only, from the nodes that they were sent to
        row = server.close(
            frame, reached, [(asked[reply.metadata.reply_to_message_id], FlowerReply(reply)) for reply in replies]
        )
        measured = {name: number for name, number in asdict(row).items() if number is not None}
        return to_arrays(server.model, server.now.model), MetricRecord(self.stock.metrics | measured)

    def _label(self, message: Message, turn: Turn) -> Message:
        asked, server = message.metadata, self.server
        wire = announce(
            server.encoding, list(server.model.shapes), server.broadcast, int(server.last_received[turn.ue])
        )
        content = RecordDict({**message.content, LABEL: ConfigRecord(asdict(turn)), WIRE: wire})
        if server.encoding.models is not None:  # the model is in `wire`
            content[self.arrayrecord_key] = ArrayRecord()
        # it lives for two deadlines, so that a late answer still comes and is known as late
        return Message(content, asked.dst_node_id, asked.message_type, ttl=2 * self.deadline)
