"""The parameter server's side of a round: the same code in the simulator and in every deployment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedslot.aggregation import Aggregate, Aggregation, Updates
from fedslot.learning.models import Model
from fedslot.messages import Grant, Receipt
from fedslot.rounds.checks import check_aggregate, check_state
from fedslot.rounds.held_out import HeldOut, no_values
from fedslot.rounds.local_training import Trained
from fedslot.rounds.round import (
    Losses,
    Round,
    Snapshot,
    ask,
    first_waiting,
    frame_fits,
    measure,
    observe,
    record,
    schedule,
    spend,
    still_waiting,
    trace,
)
from fedslot.rounds.states import state_arrays
from fedslot.rounds.trace import Event
from fedslot.scenario import Scenario
from fedslot.strategies import Strategy
from fedslot.support.errors import RefusedError
from fedslot.valuation import Valuation

Excuse = Callable[[str, Exception], None]
"""Is told which step failed, `values` or `aggregate`, and why; the round then goes on without it."""


class Step(NamedTuple):
    """A round that is done: its record, the snapshot after it, and the trace of its frame."""

    round: Round
    now: Snapshot
    frame: list[Event]


@dataclass
class PS:
    """The parameter server of a scenario.

    network: the network whose parameters are trained. held_out: the PS's samples.
    """

    scenario: Scenario
    network: Model
    held_out: HeldOut
    strategy: Strategy[Any]
    aggregation: Aggregation[Any]

    def start(self, model: Tensor) -> Snapshot:
        """Return the snapshot before the first round, whose broadcast is `model` (P,)."""
        scenario = self.scenario
        state, aggregation = self.strategy.init(), self.aggregation.init(model, scenario.data.ues)
        check_state(f"strategy {scenario.strategy.name}", "init", state)
        check_state(f"aggregation {scenario.aggregation.name}", "init", aggregation)
        return Snapshot(0, 0, first_waiting(scenario), model, model, state, aggregation)

    def ask(self, now: Snapshot, losses: Losses) -> Snapshot:
        """Return the snapshot after the strategy asked UEs for their losses; unchanged if it asks none."""
        return replace(now, state=ask(self.strategy, self.scenario, now.state, now.round, losses))

    def grant(self, now: Snapshot) -> Grant | None:
        """Return the grant of the next frame; None if the rounds or the budget of the scenario are used up."""
        if now.round >= self.scenario.most_rounds:
            return None
        grant = schedule(self.strategy, self.scenario, now.state, now.round)
        return grant if frame_fits(self.scenario, now.slots_spent, grant) else None

    def close(
        self, now: Snapshot, receipt: Receipt, trained: Trained, began: float, excuse: Excuse | None = None
    ) -> Step:
        """Close a round: value and aggregate the received models, let the strategy learn from the frame, record all.

        now: the snapshot before the round. began: the `time.perf_counter` at its beginning.
        excuse: is told what failed, and the model stays as it is, or values are 0; None: such errors are raised.
        """
        scenario, round = self.scenario, now.round
        valuation = self._value(now, receipt, trained, excuse)
        updates = self._gather(now, trained, valuation)
        new = self._aggregate(now, updates, excuse)
        receipt = replace(receipt, measured=measure(self.strategy, updates))
        state = observe(self.strategy, scenario, now.state, receipt, valuation.values, round)

        spent = now.slots_spent + spend(scenario, receipt)
        waiting = still_waiting(scenario, now.waiting, receipt.received, now.slots_spent, spent)
        after = Snapshot(round + 1, spent, waiting, new.broadcast, new.report, state, new.state, trained.links)
        values = valuation.values if self.strategy.needs_values else None
        frame = trace(scenario, round, receipt, state, new.state, values)
        return Step(record(self.held_out, round, receipt, valuation, after, began, new.val_loss), after, frame)

    def _value(self, now: Snapshot, receipt: Receipt, trained: Trained, excuse: Excuse | None) -> Valuation:
        """Value the received updates on the PS's validation samples; zeros if the strategy needs no values."""
        if self.strategy.needs_values:
            try:
                return self.held_out.value(now.model, trained.models, trained.sizes, now.round)
            except RefusedError as error:  # each update has a finite loss, but an average of some may not
                if excuse is None:
                    raise
                excuse("values", error)
        return no_values(len(receipt.received))

    def _gather(self, now: Snapshot, trained: Trained, valuation: Valuation) -> Updates:
        """Return the updates of a round for the aggregation; a model that the PS trained itself has no value."""
        held_out, by_ps = self.held_out, bool((trained.ues < 0).any())
        return Updates(
            self.network,
            now.model,
            trained.models,
            trained.ues,
            trained.sizes,
            no_values(len(trained.models)).values if by_ps else valuation.values,
            held_out.inputs,
            held_out.statistics,
            held_out.validation.losses,
            trained.metrics,
        )

    def _aggregate(self, now: Snapshot, updates: Updates, excuse: Excuse | None) -> Aggregate[Any]:
        """Aggregate the received models into the next model; the present one stays if there are none or that fails."""
        present = Aggregate(now.model, now.report, now.aggregation)
        if not len(updates.local):
            return present
        part = f"round {now.round}: aggregation {self.scenario.aggregation.name}"
        try:
            new = check_aggregate(part, self.aggregation.apply(now.aggregation, updates), now.model, now.aggregation)
            return self._sound(new) if excuse else new
        except Exception as error:  # the updates of devices are to blame, and must not end the training
            if excuse is None:
                raise
            excuse("aggregate", error)
        return present

    def _sound(self, new: Aggregate[Any]) -> Aggregate[Any]:
        """Return an aggregate with its validation loss; raise `ArithmeticError` if a loss or a state is not finite."""
        measured = new.val_loss
        loss = self.held_out.validation.evaluate(new.report)[0] if measured is None else measured
        other = loss if new.broadcast is new.report else self.held_out.validation.evaluate(new.broadcast)[0]
        if not math.isfinite(loss) or not math.isfinite(other):
            raise ArithmeticError("the new model has no finite loss")
        if not all(np.isfinite(array).all() for array in state_arrays(new.state).values()):
            raise ArithmeticError("the aggregation's state is not finite")
        return replace(new, val_loss=loss)
