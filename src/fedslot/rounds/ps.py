"""The parameter server's side of a round: the same code in the simulator and in every deployment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.clock import Clock, Cost
from fedslot.access.controller import Contention, Controller
from fedslot.access.order import Forecast
from fedslot.aggregation import Aggregate, Aggregation, Updates
from fedslot.compression import Compression, Key, compression_of
from fedslot.learning.models import Model
from fedslot.learning.tasks import ACCURACY
from fedslot.messages import Grant, Measured, NoState, Receipt, Time, UEs, tidy
from fedslot.rounds.checks import check_aggregate, check_grant, check_state, check_traced, distinct_ues
from fedslot.rounds.held_out import HeldOut, finite, no_values
from fedslot.rounds.links import GOOD_LINKS, Links
from fedslot.rounds.local_training import Trained
from fedslot.rounds.own_labels import OwnLabels, OwnModel
from fedslot.rounds.ps_training import PSTraining
from fedslot.rounds.round import (
    ROUNDING,
    Round,
    Snapshot,
    after_pushes,
    first_waiting,
    overhead,
    staleness,
    still_waiting,
)
from fedslot.rounds.states import state_arrays
from fedslot.rounds.trace import Event, trace_frame
from fedslot.scenario import Scenario
from fedslot.strategies import Asking, Strategy
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.rng import ASK, SCHEDULE, stream
from fedslot.updates import Arrived, Staleness
from fedslot.valuation import Valuation

Losses = Callable[[UEs], NDArray[np.float64]]
"""Maps UEs (n,) to their local losses (n,) of the global model."""
Excuse = Callable[[str, Exception], None]
"""Is told which step failed, `staleness`, `values` or `aggregate`, and why; the round then goes on without it."""


MOST_REPORT = 1e12  # magnitude of a number that a UE reports


class Step(NamedTuple):
    """A round that is done: its record, the snapshot after it, and the trace of its frame."""

    round: Round
    now: Snapshot
    frame: list[Event]


@dataclass
class PS:
    """The parameter server of a scenario.

    network: the network whose parameters are trained. held_out: the PS's samples. clock: computes what frames cost.
    links: the links of the UEs, where they are simulated.
    controller: controls the access barring, where the scenario or the strategy wants that.
    compression, broadcast: how updates and the model are written as bytes; None: in full precision.
    staleness: what it makes of updates of older models, and training: its own, which that may need.
    takes_time: whether training takes a time that nobody knows before, beside `fleet.computing`.
    """

    scenario: Scenario
    network: Model
    held_out: HeldOut
    strategy: Strategy[Any]
    aggregation: Aggregation[Any]
    links: Links = GOOD_LINKS
    takes_time: bool = False
    clock: Clock = field(init=False)
    compression: Compression | None = field(init=False)
    broadcast: Compression | None = field(init=False)
    controller: Controller = field(init=False)
    labels: OwnLabels | None = field(init=False)
    staleness: Staleness = field(init=False)
    training: PSTraining = field(init=False)
    _said: tuple[Tensor, Key, bytes, Tensor] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        shapes = self.network.tensor_shapes
        self.clock = Clock.of(self.scenario, shapes)
        self.compression = compression_of(self.scenario.compression, shapes)
        self.broadcast = compression_of(self.scenario.broadcast_compression, shapes)
        self.controller = Controller(self.scenario.push.channel.make(), self.scenario.data.ues)
        self.labels = OwnLabels(self.scenario, self.network, self.held_out) if self.scenario.ps_trains else None
        self.staleness = self.scenario.staleness.make()
        self.training = PSTraining(self.scenario, self.network, self.held_out)

    def start(self, model: Tensor) -> Snapshot:
        """Return the snapshot before the first round, whose broadcast is `model` (P,), or trained from it by the PS."""
        scenario = self.scenario
        own: OwnModel | NoState = NoState()
        if self.labels:
            own = self.labels.alone(model)
            model = self.labels.warm(model) if scenario.ps_starts else model
        state, aggregation = self.strategy.init(), self.aggregation.init(model, scenario.data.ues)
        check_state(f"strategy {scenario.strategy.name}", "init", state)
        check_state(f"aggregation {scenario.aggregation.name}", "init", aggregation)
        report = own.model if isinstance(own, OwnModel) else model
        contenders = scenario.expected_contenders
        contention = Contention(float(scenario.data.ues if contenders is None else contenders))
        waiting, ues, spent = first_waiting(scenario), scenario.data.ues, self.clock.radio.time(0)
        takes_time = self.takes_time or scenario.fleet.computing is not None
        forecast = Forecast.blank(ues if scenario.orders else 0, takes_time, scenario.is_asynchronous)
        return Snapshot(
            round=0,
            slots_spent=spent,
            waiting=waiting,
            failures=np.zeros(0 if scenario.push.retries is None else len(waiting), dtype=np.int32),
            heard=np.full(ues, spent),
            silent=np.zeros(0 if self.links.duty_cycle is None else ues),
            energy=np.zeros(0 if self.links.joules is None else ues),
            owed=np.zeros(0 if self.links.bursts is None and not self.links.limits else ues, dtype=bool),
            model=model,
            report=report,
            state=state,
            aggregation=aggregation,
            own=own,
            contention=contention,
            forecast=forecast,
        )

    def begins(self, now: Snapshot, overhead: int) -> Time:
        """Return the slots spent when the next broadcast has been heard; overhead: slots of asking before it."""
        return tidy(now.slots_spent + overhead + self.clock.radio.downlink_length)

    def heard(self, now: Snapshot) -> Tensor:
        """Return the model (P,) as UEs hear it: what the broadcast is decoded to, if it is compressed."""
        return now.model if self.broadcast is None else self.say(now)[1]

    def say(self, now: Snapshot) -> tuple[bytes, Tensor]:
        """Return the broadcast as bytes, and the model (P,) as UEs hear it."""
        model = now.model.cpu().numpy()
        if self.broadcast is None:
            return model.astype("<f4", copy=False).tobytes(), now.model
        key = Key(self.scenario.seed, now.round, self.scenario.data.ues)  # the PS counts as one more UE
        # asked for at the beginning of a round, and at its end
        if self._said is None or self._said[0] is not now.model or self._said[1] != key:
            message, heard = self.broadcast.transmit(model, key)
            self._said = now.model, key, message, torch.from_numpy(heard).to(now.model)
        return self._said[2:]

    def ask(self, now: Snapshot, losses: Losses) -> Snapshot:
        """Return the snapshot after the strategy asked UEs for their losses; unchanged if it asks none."""
        if not isinstance(self.strategy, Asking):
            return now
        part, ues = self._strategy_in(now), self.scenario.data.ues
        asked = distinct_ues(self.strategy.ask(now.state, now.round, stream(self.scenario.seed, ASK, now.round)), ues)
        if asked is None:
            raise RefusedError(f"{part} may ask each UE from 0 to {ues - 1} once")
        if (absent := self.absent(now)) is not None:
            asked = asked[~absent[asked]]
        answers = finite(torch.from_numpy(losses(asked)), self.scenario, now.round)
        state = self.strategy.hear(now.state, asked, answers.numpy())
        check_state(part, "hear", state, now.state)
        return replace(now, state=state)

    def grant(self, now: Snapshot, start: Time | None = None) -> Grant | None:
        """Return the grant of the next frame; None if the rounds or a budget of the scenario are used up.

        start: slots when the broadcast will have been heard, where they are counted by a clock; None: `begins`.
        """
        if now.round >= self.scenario.most_rounds:
            return None
        grant = self.schedule(now, start)
        return grant if self._fits(now, grant) else None

    def schedule(self, now: Snapshot, start: Time | None = None) -> Grant:
        """Return the strategy's grant, with the overhead of asking and the probability of contending as a number.

        A grant that no frame can hold is refused. start: as for `grant`.
        """
        part = self._strategy_in(now)
        grant = self.strategy.schedule(now.state, now.round, stream(self.scenario.seed, SCHEDULE, now.round))
        grant = replace(check_grant(part, grant, self.scenario), overhead=overhead(self.strategy))
        if grant.probability == "auto" and not self._controls:
            raise RefusedError(f"{part} must have needs_load = True to announce the probability auto")
        probability = self.scenario.push.probability if grant.probability is None else grant.probability
        most = self.scenario.frame.slots
        grant = self.links.pull_heard(grant, now, most)
        if self.scenario.orders:
            radio, before = self.clock.radio, grant.overhead + self.clock.radio.downlink_length
            start = self.begins(now, grant.overhead) if start is None else start
            silent = self.links.silenced(now)
            grant = now.forecast.arrange(grant, start, most, radio.uplink_length, before, silent)
        grant = self.links.fit(grant, now, most)
        if probability == "auto":
            slots = grant.uplink_slots(most) - grant.pull_slots if grant.push else 0
            probability = self.controller.probability(now.contention, slots)
        return replace(grant, probability=probability)

    def absent(self, now: Snapshot) -> NDArray[np.bool_] | None:
        """Return which UEs (K,) are away or out of energy in the next frame, and hear nothing; None: none ever is."""
        return self.links.absent(now.slots_spent, now.energy)

    @property
    def _controls(self) -> bool:
        """Whether the contention is estimated: for access barring, or for the strategy."""
        return self.scenario.push.probability == "auto" or getattr(self.strategy, "needs_load", False)

    def close(
        self,
        now: Snapshot,
        receipt: Receipt,
        trained: Trained,
        began: float,
        ready: NDArray[np.float64] | None = None,
        excuse: Excuse | None = None,
        start: Time | None = None,
    ) -> Step:
        """Close a round: value and aggregate the received models, let the strategy learn from the frame, record all.

        now: the snapshot before the round. began: the `time.perf_counter` at its beginning.
        ready: (K,) computing time of each UE in slots, if it is known.
        excuse: is told what failed, and the model stays as it is, or values are 0; None: such errors are raised.
        start: as for `grant`.
        """
        receipt = self.clock.timed(receipt)
        trained, changes = self._from_present(now, receipt, trained, excuse)
        valuation = self._value(now, receipt, trained, excuse)
        updates = self._gather(now, receipt, trained, valuation, changes)
        own, new = self._choose_report(now, self._aggregate(now, updates, excuse))
        contention, excess = self._estimate(now, receipt)
        measured = self._measure(updates, new.accepted)
        forecast, absent, silent = now.forecast, self.absent(now), self.links.silenced(now)
        if self.scenario.orders:
            at = self.begins(now, receipt.overhead) if start is None else start
            forecast = forecast.learn(receipt, at, absent)
        reports = self._reports(trained)
        receipt = replace(receipt, measured=measured, excess=excess, reports=reports, away=forecast.away)
        state = self.strategy.observe(now.state, self.links.seen(receipt), valuation.values)
        check_state(self._strategy_in(now), "observe", state, now.state)

        cost = self.clock.cost(receipt, ready, absent)
        spent = now.slots_spent + cost.spent
        waiting, failures = after_pushes(self.scenario, now.waiting, now.failures, receipt)
        heard = now.heard.copy()
        heard[receipt.received] = spent
        after = Snapshot(
            round=now.round + 1,
            slots_spent=spent,
            waiting=still_waiting(self.scenario, waiting, receipt.received, now.slots_spent, spent),
            failures=failures,
            heard=heard,
            silent=self.links.silence(now.silent, receipt, spent),
            energy=now.energy if cost.joules_by_ue is None or not len(now.energy) else now.energy + cost.joules_by_ue,
            owed=self.links.owed(now, receipt),
            model=new.broadcast,
            report=new.report,
            state=state,
            aggregation=new.state,
            own=own,
            contention=contention,
            forecast=forecast,
            work=now.work,
            versions=self.versions(now),
            seconds_spent=now.seconds_spent + (cost.seconds or 0.0),
            joules_spent=now.joules_spent + (cost.joules or 0.0),
            links=trained.links,
        )
        row = self._record(after, receipt, trained, valuation, cost, new.val_loss, began)
        row = replace(row, silent=0 if silent is None else int(silent.sum()))
        return Step(row, after, self._trace(now.round, receipt, after, valuation))

    def _strategy_in(self, now: Snapshot) -> str:
        return f"round {now.round}: strategy {self.scenario.strategy.name}"

    def _fits(self, now: Snapshot, grant: Grant) -> bool:
        """Return whether a frame may begin: all of its slots, and the asking before it, fit into the budgets of time.

        The energy of a frame is not known before it. The first frame that uses up the budget of joules is the last one.
        """
        scenario, uplink = self.scenario, grant.uplink_slots(self.scenario.frame.slots)
        downlinks = 1 if uplink else 0
        longest = grant.overhead + grant.wait + self.clock.radio.time(uplink, downlinks)
        longest_seconds = self.clock.seconds(longest, downlinks) or 0.0
        for name, budget, spent, needed in (
            ("time_budget", scenario.time_budget, now.slots_spent, longest),
            ("seconds_budget", scenario.seconds_budget, now.seconds_spent, longest_seconds),
        ):
            if budget is not None and spent + needed > budget * (1 + ROUNDING):
                if now.round == 0:
                    raise InputError(name, budget, f"at least that of the first frame, {needed:g}")
                return False
        return scenario.joules_budget is None or now.joules_spent < scenario.joules_budget

    def versions(self, now: Snapshot) -> dict[int, Tensor]:
        """Return the models (P,) from which UEs may have trained in a frame, by version; none in synchronous mode."""
        if not self.scenario.is_asynchronous:
            return {}
        oldest = now.round - self.scenario.staleness.most
        return {version: model for version, model in now.versions.items() if version >= oldest} | {
            now.round: self.heard(now)
        }

    def _from_present(
        self, now: Snapshot, receipt: Receipt, trained: Trained, excuse: Excuse | None
    ) -> tuple[Trained, Tensor | None]:
        """Return local models as if trained from the PS's present model, and their changes (Y, P) as they arrived.

        UEs send changes of the model that they heard, which may be compressed, and may be an older one; then changes
        are passed through the rule for stale updates. None: they are what local models say.
        """
        if (trained.ues < 0).any() or not len(trained.models):
            return trained, None
        heard = self.heard(now)
        if receipt.versions is not None and self.scenario.is_asynchronous:
            known, versions = self.versions(now), receipt.versions
            starts = torch.stack([known[version] for version in versions.tolist()])
            arrived = Arrived(now.round, heard, versions, starts, trained.models - starts, self.training)
            try:
                passed = self._compensate(arrived)
            except RefusedError as error:
                if excuse is None:
                    raise
                excuse("staleness", error)
                passed = arrived.changes
            if passed is not arrived.changes or arrived.ages.any():
                return replace(trained, models=now.model + passed), arrived.changes
        if self.broadcast is None:
            return trained, None
        return replace(trained, models=trained.models + (now.model - heard)), None

    def _compensate(self, arrived: Arrived) -> Tensor:
        """Return the changes (Y, P) that the rule for stale updates makes of those that arrived."""
        part = f"round {arrived.round}: staleness {self.scenario.staleness.name}"
        changes = self.staleness.apply(arrived)
        right = isinstance(changes, Tensor) and changes.shape == arrived.changes.shape
        if not right or changes.dtype != arrived.changes.dtype:
            raise RefusedError(f"{part} must return a tensor {tuple(arrived.changes.shape)} from apply()")
        return finite(changes, self.scenario, arrived.round)

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

    def _gather(
        self, now: Snapshot, receipt: Receipt, trained: Trained, valuation: Valuation, changes: Tensor | None
    ) -> Updates:
        """Return the updates of a round for the aggregation; a model that the PS trained itself has no value."""
        held_out, labels, by_ps = self.held_out, self.labels, bool((trained.ues < 0).any())
        own = labels.join(now.model, now.round) if labels and len(trained.models) else None
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
            own,
            len(labels.share) if labels else 0,
            held_out.validation.gradient,
            None if self.compression is None else self.compression.codec.noise,
            changes,
            1 / (1 + staleness(receipt, now.round)) if self.staleness.damps else 1.0,
        )

    def _aggregate(self, now: Snapshot, updates: Updates, excuse: Excuse | None) -> Aggregate[Any]:
        """Aggregate the received models into the next model; the present one stays if there are none or that fails."""
        present = Aggregate(now.model, now.report, now.aggregation)
        if not len(updates.local):
            return present
        part = f"round {now.round}: aggregation {self.scenario.aggregation.name}"
        try:
            new = check_aggregate(part, self.aggregation.apply(now.aggregation, updates), now.model, now.aggregation)
            if new.accepted is not None and not new.accepted.any():
                new = replace(present, state=new.state, accepted=new.accepted)
            return self._sound(new, now.aggregation) if excuse else new
        except Exception as error:  # the updates of devices are to blame, and must not end the training
            if excuse is None:
                raise
            excuse("aggregate", error)
        return present

    def _choose_report(self, now: Snapshot, new: Aggregate[Any]) -> tuple[OwnModel | NoState, Aggregate[Any]]:
        """Let the PS's own model be the reported one until that of the aggregation is better."""
        own = now.own
        if isinstance(own, OwnModel) and own.reported:
            if new.report is not now.report:  # something was received
                own = own.compare(new.report, self.held_out.validation)
            if own.reported:
                new = replace(new, report=now.report, val_loss=own.loss)
        return own, new

    def _sound(self, new: Aggregate[Any], before: Any) -> Aggregate[Any]:
        """Return an aggregate with its validation loss; raise `ArithmeticError` if a loss or a state is not finite.

        before: the aggregation's state before; what was not finite there may stay so, such as a least loss of none.
        """
        measured = new.val_loss
        loss = self.held_out.validation.evaluate(new.report)[0] if measured is None else measured
        other = loss if new.broadcast is new.report else self.held_out.validation.evaluate(new.broadcast)[0]
        if not math.isfinite(loss) or not math.isfinite(other):
            raise ArithmeticError("the new model has no finite loss")
        old = state_arrays(before)
        if any((np.isfinite(old[name]) & ~np.isfinite(now)).any() for name, now in state_arrays(new.state).items()):
            raise ArithmeticError("the aggregation's state is not finite")
        return replace(new, val_loss=loss)

    def _measure(self, updates: Updates, accepted: NDArray[np.bool_] | None) -> Measured | None:
        """Return the measurements of a round's updates, if the strategy needs them and they can be measured."""
        if not getattr(self.strategy, "needs_measurements", False) or not len(updates.local):
            return None
        gain = updates.statistics.noise_gain(updates.start)
        changes = updates.steps if updates.changes is None else updates.changes
        responses = updates.statistics.responses(changes, updates.start).double()
        products = (responses @ responses.mT).cpu().numpy()
        measured = Measured(updates.noise, products, gain, accepted)
        return measured if np.isfinite([gain, *products.flat]).all() else None

    def _estimate(self, now: Snapshot, receipt: Receipt) -> tuple[Contention, float]:
        """Return what the PS knows of the contention after a frame, and the number of UEs above the best one."""
        slots = receipt.open_slots
        if not slots or not self._controls:
            return now.contention, 0.0
        received, collided = len(receipt.pushed), receipt.collided_slots
        after = self.controller.observe(now.contention, slots, receipt.probability, received, collided)
        return after, after.backlog - self.controller.best(slots).load * slots

    @property
    def needs_reports(self) -> tuple[str, ...]:
        """Names of the numbers that UEs shall report with their updates, for the strategy."""
        names = getattr(self.strategy, "needs_reports", ())
        if isinstance(names, str) or not all(isinstance(name, str) and name.isidentifier() for name in names):
            part = f"strategy {self.scenario.strategy.name}"
            raise RefusedError(f"{part} must name numbers in needs_reports, such as ('loss', 'seconds')")
        return tuple(names)

    def _reports(self, trained: Trained) -> dict[str, NDArray[np.float64]]:
        """Return the numbers that the received UEs report, by name; one that is out of all bounds counts as none."""
        reports = {}
        for name in self.needs_reports:
            numbers = np.array([metrics.get(name, math.nan) for metrics in trained.metrics], dtype=np.float64)
            reports[name] = np.where(np.abs(numbers) <= MOST_REPORT, numbers, math.nan)
        return reports

    def _trace(self, round: int, receipt: Receipt, after: Snapshot, valuation: Valuation) -> list[Event]:
        """Return the rows of a frame in `frames.csv`.

        The states of the strategy and of the aggregation may have a method `traced`, which returns by name (`value`,
        `noise`) what the PS knows of each UE, (K,); the strategy goes first.
        """
        scenario = self.scenario
        estimates: dict[str, NDArray[np.float64]] = {}
        for kind, name, state in (
            ("aggregation", scenario.aggregation.name, after.aggregation),
            ("strategy", scenario.strategy.name, after.state),
        ):
            if callable(traced := getattr(state, "traced", None)):
                estimates |= check_traced(f"round {round}: the state of {kind} {name}", traced(), scenario.data.ues)
        values = valuation.values if self.strategy.needs_values else None
        return trace_frame(round, receipt, **estimates, update_values=values)

    def _record(
        self,
        after: Snapshot,
        receipt: Receipt,
        trained: Trained,
        valuation: Valuation,
        cost: Cost,
        val_loss: float | None,
        began: float,
    ) -> Round:
        """Return the record of a round. val_loss: of the reported model, if the aggregation measured it."""
        test_loss, score = self.held_out.test.evaluate(after.report)
        is_accuracy = self.network.task.score == ACCURACY
        return Round(
            round=after.round - 1,
            test_accuracy=score if is_accuracy else None,
            test_score=None if is_accuracy else score,
            test_loss=test_loss,
            val_loss=self.held_out.validation.evaluate(after.report)[0] if val_loss is None else val_loss,
            slots=receipt.slots,
            pulled=len(receipt.pulled),
            wasted=len(receipt.wasted),
            backlogged=receipt.contenders + (0 if receipt.attempts is None else len(receipt.attempts.barred)),
            contenders=receipt.contenders,
            push_received=len(receipt.pushed),
            collided=len(receipt.collided),
            lost=len(receipt.lost),
            bits=0 if trained.bits is None else int(trained.bits.sum()),
            staleness=staleness(receipt, after.round - 1),
            trainings=len(receipt.training),
            cost_max=cost.max,
            cost_frame=cost.frame,
            cost_sum=cost.sum,
            slots_spent=after.slots_spent,
            mean_age=after.slots_spent - after.heard.sum().item() / len(after.heard),
            air_seconds=cost.seconds,
            joules=cost.joules,
            utilities=valuation.utilities,
            value_error=float(max(valuation.errors, default=0.0)),
            seconds=time.perf_counter() - began,
        )
