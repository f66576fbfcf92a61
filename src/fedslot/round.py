"""The steps of a round that the simulator and every deployment share, and what is carried from round to round."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedslot.access.frame import draw_backlogged
from fedslot.errors import RefusedError
from fedslot.fleet import Fleet
from fedslot.held_out import HeldOut
from fedslot.learning.jobs import Job
from fedslot.messages import Grant, Receipt, UEs
from fedslot.rng import BACKLOGGED, DROPOUT, NOISE, SCHEDULE, SHUFFLE, stream, torch_seed
from fedslot.scenario import Scenario
from fedslot.strategies import Cell, Strategy
from fedslot.valuation import Valuation


@dataclass(frozen=True)
class Round:
    """One row of `rounds.csv`.

    Costs are in slots; `slots_spent` is the sum of `cost_max` since the first round. `utilities` counts coalition
    utilities, `value_error` is the largest standard error of this round's values.
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
    model: (P,) the global model that is broadcast. report: (P,) the one that is evaluated, the same for most.
    state: the strategy's state. aggregation: the aggregation's state.
    """

    round: int
    slots_spent: int
    model: Tensor
    report: Tensor
    state: Any
    aggregation: Any


def cell(scenario: Scenario) -> Cell:
    """Return what the scenario tells its strategy."""
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


def frame_fits(scenario: Scenario, slots_spent: int) -> bool:
    """Tell whether the time budget leaves room for another frame."""
    return scenario.time_budget is None or slots_spent + 1 + scenario.frame.slots <= scenario.time_budget


def schedule(strategy: Strategy[Any], scenario: Scenario, state: Any, round: int) -> Grant:
    """Return the strategy's grant; one that no frame can hold is refused."""
    grant = strategy.schedule(state, round, stream(scenario.seed, SCHEDULE, round))
    slots, ues, pull = scenario.frame.slots, scenario.data.ues, set(grant.pull.tolist())
    if len(grant.pull) > slots or len(pull) < len(grant.pull) or any(not 0 <= ue < ues for ue in pull):
        raise RefusedError(
            f"round {round}: strategy {scenario.strategy.name} granted {len(grant.pull)} pull slots; it may "
            f"grant {slots} at most, each to another UE from 0 to {ues - 1}"
        )
    return grant


def backlogged(scenario: Scenario, grant: Grant, round: int) -> UEs:
    """Return the UEs that happen to have an update to push in this frame."""
    contenders = scenario.push.contenders
    number = None if contenders == "ready" else contenders
    return draw_backlogged(number, scenario.data.ues, grant.pull, stream(scenario.seed, BACKLOGGED, round))


def local_job(scenario: Scenario, fleet: Fleet, ue: int, round: int) -> Job:
    """Return the local training of one UE in one round."""
    seed = scenario.seed
    shuffle, dropout = stream(seed, SHUFFLE, round, ue), torch_seed(seed, DROPOUT, round, ue)
    return Job(fleet.shares.share(ue), int(fleet.epochs[ue]), shuffle, dropout)


def add_noise(update: Tensor, scenario: Scenario, fleet: Fleet, ue: int, round: int) -> None:
    """Add a UE's noise to its update (P,), in place."""
    if fleet.noise[ue] > 0:
        noise = stream(scenario.seed, NOISE, round, ue).standard_normal(len(update), dtype=np.float32)
        update.add_(torch.from_numpy(noise).to(update), alpha=float(fleet.noise[ue]))


def record(held_out: HeldOut, round: int, receipt: Receipt, valuation: Valuation, now: Snapshot, began: float) -> Round:
    """Return the row of a round; `began` is what `time.perf_counter` returned at its beginning."""
    test_loss, test_accuracy = held_out.test.evaluate(now.report)
    val_loss, _ = held_out.validation.evaluate(now.report)
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
