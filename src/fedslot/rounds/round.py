"""The steps of a round that the simulator and every deployment share, and the state between rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.clock import Clock, Cost
from fedslot.access.frame import draw_backlogged
from fedslot.aggregation import Updates
from fedslot.messages import Grant, Measured, Receipt, UEs
from fedslot.planning.cell import Barring
from fedslot.planning.planner import plan
from fedslot.rounds.checks import check_grant, check_state, check_traced, distinct_ues
from fedslot.rounds.held_out import HeldOut, finite
from fedslot.rounds.trace import Event, trace_frame
from fedslot.scenario import Scenario
from fedslot.strategies import Asking, Cell, Split, Strategy
from fedslot.support.checks import check_whole
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.rng import ARRIVALS, ASK, BACKLOGGED, SCHEDULE, stream
from fedslot.updates import Memory
from fedslot.valuation import Valuation

ROUNDING = 1e-9  # by which a sum of seconds may exceed a budget
Losses = Callable[[UEs], NDArray[np.float64]]
"""Maps UEs (n,) to their local losses (n,) of the global model."""


@dataclass(frozen=True)
class Round:
    """One row of `rounds.csv`. Costs are in slots."""

    round: int
    """The round, from 0."""
    test_accuracy: float
    """Accuracy of the global model on the test set."""
    test_loss: float
    """Loss of the global model on the test set."""
    val_loss: float
    """Loss of the global model on the PS's labelled validation samples."""
    slots: int
    """Number of uplink slots that were announced."""
    pulled: int
    """Number of pulled updates that were received."""
    wasted: int
    """Number of pull slots whose UE was not ready."""
    contenders: int
    """Number of UEs that pushed."""
    push_received: int
    """Number of pushed updates that were received."""
    collided: int
    """Number of UEs that pushed and were not received."""
    cost_max: int
    """Overhead, downlink slot and uplink slots up to the last received one: the time of the frame by the clock."""
    cost_frame: int
    """Overhead, downlink slot and all announced uplink slots."""
    cost_sum: int
    """Overhead + slot + 1 summed over the received UEs, as in the paper's Fig. 6."""
    slots_spent: int
    """Slots spent since the first round: the sum of `cost_max`, or of the cost by another `cost_rule`."""
    air_seconds: float | None
    """Time of the frame on the air: of the slots that it spent; empty if the length of a slot is not given."""
    joules: float | None
    """Energy that all UEs spent in the frame; empty if the scenario's `radio` does not give energies."""
    utilities: int
    """Number of coalition utilities that were evaluated."""
    value_error: float
    """Largest standard error of this round's values."""
    seconds: float
    """Computing time of the round; in a deployment, the time that the round took."""


@dataclass(frozen=True)
class Snapshot:
    """All that is carried from one round to the next.

    round: the round to come. slots_spent: cost of the frames so far, by the scenario's `cost_rule`.
    waiting: (K,) whether each UE is backlogged; empty without `push.arrivals`.
    model: (P,) the global model that is broadcast. report: (P,) the one that is evaluated, the same for most.
    state: the strategy's state. aggregation: the aggregation's state.
    links: the states of the UEs' update chains, of those that have one.
    seconds_spent, joules_spent: time on the air and energy of the frames so far; 0 where they are not known.
    """

    round: int
    slots_spent: int
    waiting: NDArray[np.bool_]
    model: Tensor
    report: Tensor
    state: Any
    aggregation: Any
    seconds_spent: float = 0.0
    joules_spent: float = 0.0
    links: Memory = field(default_factory=dict)


def cell(scenario: Scenario, sizes: NDArray[np.int64] | None = None) -> Cell:
    """Return the parts of the scenario that a strategy may know; sizes: (K,) training samples of each UE, if known."""
    options = scenario.strategy
    return Cell(
        ues=scenario.data.ues,
        slots=scenario.frame.slots,
        pull=scenario.frame.pull,
        contenders=scenario.expected_contenders,
        probability=scenario.push.probability,
        warmup=options.warmup,
        memory=options.memory,
        share=options.share,
        sizes=sizes,
        outlook=partial(splits, scenario),
    )


def splits(scenario: Scenario, limit: float) -> list[Split]:
    """Return for Q = 0, 1, ... pull slots the most push slots with which a frame is expected to cost at most `limit`.

    On the collision channel this is exact, on others it is simulated. With `push.arrivals`, those contend that become
    backlogged in a frame of full length.
    """
    push, ues, slots = scenario.push, scenario.data.ues, scenario.frame.slots
    expected = scenario.expected_contenders
    contenders = ues if expected is None else expected
    channel = push.channel.make()
    barring: Barring = "best" if push.probability == "auto" else push.probability
    pulls = range(min(slots, ues, math.floor(limit) - 1) + 1)
    found = plan(
        slots, contenders, pulls=pulls, ues=ues, frame_limit=limit, barring=barring, channel=channel, frames=1000
    )
    return [Split(split.pull, split.push, split.probability, split.expected_received_push) for split in found.splits]


def overhead(strategy: Strategy[Any]) -> int:
    """Return the slots that a strategy spends on asking UEs before each frame."""
    if not isinstance(strategy, Asking):
        return 0
    check_whole(f"overhead of {type(strategy).__name__}", strategy.overhead)
    return int(strategy.overhead)


def frame_fits(scenario: Scenario, clock: Clock, now: Snapshot, grant: Grant) -> bool:
    """Return whether a frame may begin: all of its slots, and the asking before it, fit into the budgets of time.

    The energy of a frame is not known before it. The first frame that uses up the budget of joules is the last one.
    """
    uplink, seconds, joules = grant.uplink_slots(scenario.frame.slots), scenario.seconds_budget, scenario.joules_budget
    downlinks = 1 if uplink else 0
    slots, budget = now.slots_spent + grant.overhead + downlinks + uplink, scenario.time_budget
    longest = clock.radio.seconds(grant.overhead + uplink, downlinks) or 0.0
    return (
        (budget is None or slots <= budget)
        and (seconds is None or now.seconds_spent + longest <= seconds * (1 + ROUNDING))
        and (joules is None or now.joules_spent < joules)
    )


def add(now: Snapshot, cost: Cost) -> tuple[int, float, float]:
    """Return slots, seconds and joules spent after a frame, from those before it and its cost."""
    seconds, joules = cost.seconds or 0.0, cost.joules or 0.0
    return now.slots_spent + cost.spent, now.seconds_spent + seconds, now.joules_spent + joules


def ask(strategy: Strategy[Any], scenario: Scenario, state: Any, round: int, losses: Losses) -> Any:
    """Return the state of a strategy after it asked UEs for their losses; unchanged if it asks none."""
    if not isinstance(strategy, Asking):
        return state
    part, ues = f"round {round}: strategy {scenario.strategy.name}", scenario.data.ues
    asked = distinct_ues(strategy.ask(state, round, stream(scenario.seed, ASK, round)), ues)
    if asked is None:
        raise RefusedError(f"{part} may ask each UE from 0 to {ues - 1} once")
    answers = finite(torch.from_numpy(losses(asked)), scenario, round)
    heard = strategy.hear(state, asked, answers.numpy())
    check_state(part, "hear", heard, state)
    return heard


def observe(
    strategy: Strategy[Any],
    scenario: Scenario,
    state: Any,
    receipt: Receipt,
    values: NDArray[np.float64],
    round: int,
) -> Any:
    """Return the state of a strategy after a frame; values: (Y,) in the order of `receipt.received`."""
    new = strategy.observe(state, replace(receipt, attempts=None), values)
    check_state(f"round {round}: strategy {scenario.strategy.name}", "observe", new, state)
    return new


def refuse_asking(strategy: Strategy[Any], scenario: Scenario) -> None:
    """Refuse a strategy that asks UEs for their losses: deployments have no message for it."""
    if isinstance(strategy, Asking):
        raise InputError("strategy.name", scenario.strategy.name, "a strategy that asks UEs nothing, in a deployment")


def schedule(strategy: Strategy[Any], scenario: Scenario, state: Any, round: int) -> Grant:
    """Return the strategy's grant, with the overhead of asking; one that no frame can hold is refused."""
    grant = strategy.schedule(state, round, stream(scenario.seed, SCHEDULE, round))
    grant = check_grant(f"round {round}: strategy {scenario.strategy.name}", grant, scenario)
    return replace(grant, overhead=overhead(strategy))


def first_waiting(scenario: Scenario) -> NDArray[np.bool_]:
    """Return which UEs are backlogged before the first frame: none; an empty array without `push.arrivals`."""
    return np.zeros(0 if scenario.push.arrivals is None else scenario.data.ues, dtype=bool)


def backlogged(scenario: Scenario, grant: Grant, waiting: NDArray[np.bool_], round: int) -> UEs:
    """Return the UEs that happen to have an update to push in this frame. waiting: as in `Snapshot`."""
    if scenario.push.arrivals is not None:
        return np.setdiff1d(np.flatnonzero(waiting), grant.pull)
    contenders = scenario.push.contenders
    number = None if contenders == "ready" else contenders
    return draw_backlogged(number, scenario.data.ues, grant.pull, stream(scenario.seed, BACKLOGGED, round))


def still_waiting(
    scenario: Scenario, waiting: NDArray[np.bool_], received: UEs, began: int, ended: int
) -> NDArray[np.bool_]:
    """Return which UEs are backlogged after a frame: not those received, but those that arrived meanwhile.

    began, ended: slots that were spent before and after the frame. The arrivals of a slot depend on nothing but the
    slot, so that all strategies see the same.
    """
    rate = scenario.push.arrivals
    if rate is None:
        return waiting
    after = waiting.copy()
    after[received] = False
    for slot in range(began, ended):
        rng = stream(scenario.seed, ARRIVALS, slot)
        after[rng.integers(len(after), size=rng.poisson(rate))] = True
    return after


def measure(strategy: Strategy[Any], updates: Updates) -> Measured | None:
    """Return the measurements of a round's updates, if there are any and the strategy needs them."""
    if not getattr(strategy, "needs_measurements", False) or not len(updates.local):
        return None
    responses, gain = updates.responses.double(), updates.statistics.noise_gain(updates.start)
    return Measured(updates.noise, (responses @ responses.mT).cpu().numpy(), gain)


def trace(
    scenario: Scenario,
    round: int,
    receipt: Receipt,
    state: Any,
    aggregation: Any,
    values: NDArray[np.float64] | None,
) -> list[Event]:
    """Return the rows of a frame in `frames.csv`.

    values: (Y,) of this round's updates, in the order of `receipt.received`; None if they were not valued.

    state, aggregation: the states of the strategy and of the aggregation after the round. Each may have a method
    `traced`, which returns by name (`value`, `noise`) what the PS knows of each UE, (K,); the strategy goes first.
    """
    known: dict[str, NDArray[np.float64]] = {}
    for kind, name, part in (
        ("aggregation", scenario.aggregation.name, aggregation),
        ("strategy", scenario.strategy.name, state),
    ):
        if callable(traced := getattr(part, "traced", None)):
            known |= check_traced(f"round {round}: the state of {kind} {name}", traced(), scenario.data.ues)
    return trace_frame(round, receipt, **known, update_values=values)


def record(
    held_out: HeldOut,
    round: int,
    receipt: Receipt,
    valuation: Valuation,
    now: Snapshot,
    began: float,
    cost: Cost,
    val_loss: float | None = None,
) -> Round:
    """Return the record of a round.

    now: the snapshot after it. cost: of its frame. began: the `time.perf_counter` at its beginning.
    val_loss: of the reported model, if the aggregation measured it.
    """
    test_loss, test_accuracy = held_out.test.evaluate(now.report)
    return Round(
        round=round,
        test_accuracy=test_accuracy,
        test_loss=test_loss,
        val_loss=held_out.validation.evaluate(now.report)[0] if val_loss is None else val_loss,
        slots=receipt.slots,
        pulled=len(receipt.pulled),
        wasted=len(receipt.wasted),
        contenders=receipt.contenders,
        push_received=len(receipt.pushed),
        collided=len(receipt.collided),
        cost_max=cost.max,
        cost_frame=cost.frame,
        cost_sum=cost.sum,
        slots_spent=now.slots_spent,
        air_seconds=cost.seconds,
        joules=cost.joules,
        utilities=valuation.utilities,
        value_error=float(max(valuation.errors, default=0.0)),
        seconds=time.perf_counter() - began,
    )
