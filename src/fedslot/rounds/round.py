"""The record of a round, the state between rounds, what strategies know of the cell, and which UEs are backlogged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.clock import NO_RADIO, Radio
from fedslot.access.controller import Contention
from fedslot.access.frame import draw_backlogged
from fedslot.access.order import Forecast
from fedslot.messages import Grant, Receipt, Time, UEs
from fedslot.planning.cell import Barring
from fedslot.planning.planner import plan
from fedslot.rounds.devices import Work
from fedslot.scenario import Scenario
from fedslot.strategies import Asking, Cell, Split, Strategy
from fedslot.support.checks import check_whole
from fedslot.support.rng import ARRIVALS, BACKLOGGED, stream
from fedslot.updates import Memory

ROUNDING = 1e-9  # by which a sum of seconds may exceed a budget


@dataclass(frozen=True)
class Round:
    """One row of `rounds.csv`. Costs are in slots."""

    round: int
    """The round, from 0."""
    test_accuracy: float | None
    """Accuracy of the global model on the test set; empty if `training.task` has another score."""
    test_loss: float
    """Loss of the global model on the test set."""
    val_loss: float
    """Loss of the global model on the PS's labelled validation samples."""
    slots: int
    """Number of uplink slots that were announced."""
    pulled: int
    """Number of pulled updates that were received."""
    wasted: int
    """Number of pulled UEs that were not ready."""
    backlogged: int
    """Number of UEs with an update to push, ready in time: those that pushed, and those that were kept from it."""
    contenders: int
    """Number of UEs that pushed."""
    push_received: int
    """Number of pushed updates that were received."""
    collided: int
    """Number of UEs that pushed and were not received."""
    lost: int
    """Number of UEs that were pulled, and whose transmission was lost on their link."""
    bits: int
    """Bits of the received updates, as they are on the wire."""
    staleness: float
    """Mean age of the received updates: frames since the broadcast from which they were trained; 0 without any."""
    trainings: int
    """Number of UEs that trained: in asynchronous mode, those that began at this broadcast."""
    cost_max: Time
    """Overhead, downlink and uplink slots up to the last received one: the time of the frame by the clock. A slot is
    the time of an update in full precision; it is cut into shorter ones if updates are compressed."""
    cost_frame: Time
    """Overhead, downlink and all announced uplink slots."""
    cost_sum: Time
    """Overhead + slot + 1 summed over the received UEs, as in the paper's Fig. 6."""
    slots_spent: Time
    """Slots spent since the first round: the sum of `cost_max`, or of the cost by another `cost_rule`."""
    mean_age: float
    """Age of information, the mean over all UEs: slots spent since the frame in which a UE was last received."""
    air_seconds: float | None
    """Time of the frame on the air: of the slots that it spent; empty if the length of a slot is not given."""
    joules: float | None
    """Energy that all UEs spent in the frame; empty if the scenario's `radio` does not give energies."""
    utilities: int
    """Number of coalition utilities that were evaluated."""
    value_error: float
    """Largest standard error of this round's values."""
    attack_success: float | None = None
    """Share of the test samples on which `fleet.attack` reaches its goal: under `backdoor`, those of other classes that
    are taken for the target once they have the pattern. Empty for attacks without a goal."""
    test_score: float | None = None
    """Score of the global model on the test set by `training.task`, such as the RMSE; empty if that is the accuracy."""
    training: int = 0
    """Number of UEs that still trained at the end of the frame; 0 without computing times."""
    holding: int = 0
    """Number of UEs with a finished update that was not received, which is lost with the frame in synchronous mode; 0
    without computing times."""
    silent: int = 0
    """Number of UEs that could not be heard in the frame: away, out of energy, or silent by their duty cycle."""
    seconds: float = 0.0
    """Computing time of the round; in a deployment, the time that the round took."""

    @property
    def score(self) -> float:
        """The accuracy, or the other score of the task."""
        score = self.test_score if self.test_accuracy is None else self.test_accuracy
        assert score is not None
        return score


@dataclass(frozen=True)
class Snapshot:
    """All that is carried from one round to the next.

    round: the round to come. slots_spent: cost of the frames so far, by the scenario's `cost_rule`.
    waiting: (K,) whether each UE is backlogged; empty where no backlog outlasts a frame.
    failures: (K,) pushes of each UE that were not received since it became backlogged; empty without `push.retries`.
    heard: (K,) slots spent up to the end of the frame in which each UE was last received, 0 before.
    silent: (K,) slots spent until which the duty cycle keeps each UE from sending; empty without one.
    energy: (K,) joules that each UE spent; empty without `radio.joules_per_ue`.
    owed: (K,) UEs that were chosen before they were ever received, but not pulled, since they were away, or since the
        updates of others on slow links left no room; empty where neither happens.
    model: (P,) the global model that is broadcast. report: (P,) the one that is evaluated, the same for most.
    state: the strategy's state. aggregation: the aggregation's state.
    own: the model that the PS trained alone, an `OwnModel`, where that may be the one that is reported.
    contention: what the PS knows of the contention for the push slots.
    forecast: what it knows of the UEs' computing times, and whom it ordered.
    work: what simulated UEs train and hold; without elements in synchronous mode.
    versions: in asynchronous mode, the models in use by the rounds that broadcast them, as UEs heard them.
    links: the states of the UEs' update chains, of those that have one.
    seconds_spent, joules_spent: time on the air and energy of the frames so far; 0 where they are not known.
    """

    round: int
    slots_spent: Time
    waiting: NDArray[np.bool_]
    failures: NDArray[np.int32]
    heard: NDArray[Any]
    silent: NDArray[np.float64]
    energy: NDArray[np.float64]
    owed: NDArray[np.bool_]
    model: Tensor
    report: Tensor
    state: Any
    aggregation: Any
    own: Any
    contention: Contention
    forecast: Forecast
    work: Work = field(default_factory=Work)
    versions: Mapping[int, Tensor] = field(default_factory=dict)
    seconds_spent: float = 0.0
    joules_spent: float = 0.0
    links: Memory = field(default_factory=dict)


def cell(scenario: Scenario, sizes: NDArray[np.int64] | None = None, radio: Radio = NO_RADIO) -> Cell:
    """Return the parts of the scenario that a strategy may know; sizes: (K,) training samples of each UE, if known."""
    options = scenario.strategy
    return Cell(
        ues=scenario.data.ues,
        slots=scenario.frame.slots,
        pull=scenario.frame.pull,
        contenders=scenario.expected_contenders,
        warmup=options.warmup,
        memory=options.memory,
        share=options.share,
        downlink=radio.downlink_length / radio.uplink_length,
        sizes=sizes,
        outlook=partial(splits, scenario),
    )


def splits(scenario: Scenario, limit: float) -> list[Split]:
    """Return for Q = 0, 1, ... pull slots the most push slots with which a frame is expected to cost at most `limit`.

    On the collision channel this is exact, on others it is simulated. With `push.arrivals`, those contend that become
    backlogged in a frame of full length.
    """
    push, ues, slots, expected = scenario.push, scenario.data.ues, scenario.frame.slots, scenario.expected_contenders
    barring: Barring = "best" if push.probability == "auto" else push.probability
    planned = plan(
        slots,
        ues if expected is None else expected,
        pulls=range(min(slots, ues, math.floor(limit) - 1) + 1),
        ues=ues,
        frame_limit=limit,
        barring=barring,
        channel=push.channel.make(),
        frames=1000,
    )
    return [Split(split.pull, split.push, split.probability, split.expected_received_push) for split in planned.splits]


def overhead(strategy: Strategy[Any]) -> int:
    """Return the slots that a strategy spends on asking UEs before each frame."""
    if not isinstance(strategy, Asking):
        return 0
    check_whole(f"overhead of {type(strategy).__name__}", strategy.overhead)
    return int(strategy.overhead)


def staleness(receipt: Receipt, round: int) -> float:
    """Return the mean age of the updates received in a round, in frames; 0 if there are none."""
    versions = receipt.versions
    return 0.0 if versions is None or not len(versions) else float((round - versions).mean())


def first_waiting(scenario: Scenario) -> NDArray[np.bool_]:
    """Return which UEs are backlogged before the first frame: none; an empty array if no backlog outlasts a frame."""
    push = scenario.push
    outlasts = push.arrivals is not None or (push.contenders != "ready" and push.retries)
    return np.zeros(scenario.data.ues if outlasts else 0, dtype=bool)


def backlogged(scenario: Scenario, grant: Grant, waiting: NDArray[np.bool_], round: int) -> UEs:
    """Return the UEs that happen to have an update to push in this frame. waiting: as in `Snapshot`.

    Without `push.arrivals`, others are drawn beside those that wait, up to `push.contenders`.
    """
    before = np.setdiff1d(np.flatnonzero(waiting), grant.pull)
    if scenario.push.arrivals is not None:
        return before
    rng, contenders = stream(scenario.seed, BACKLOGGED, round), scenario.expected_contenders
    if not len(before) or contenders is None:
        return draw_backlogged(contenders, scenario.data.ues, grant.pull, rng)
    others = draw_backlogged(contenders - len(before), scenario.data.ues, np.concatenate([grant.pull, before]), rng)
    return np.concatenate([before, others])


def after_pushes(
    scenario: Scenario, waiting: NDArray[np.bool_], failures: NDArray[np.int32], receipt: Receipt
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Return which UEs are backlogged after the pushes of a frame, and their failures, as in `Snapshot`.

    UEs that collided stay backlogged, until they give up after `push.retries`. The others that wait do so only with
    `push.arrivals`: `push.contenders` are drawn anew in each frame.
    """
    if not len(waiting):
        return waiting, failures
    received, collided = receipt.received, receipt.collided
    after = np.zeros_like(waiting) if scenario.push.arrivals is None else waiting.copy()
    after[collided], after[received] = True, False
    if scenario.push.retries is not None:
        failures = failures.copy()
        failures[collided] += 1
        gave_up = collided[failures[collided] > scenario.push.retries]
        after[gave_up] = False
        failures[~after] = 0
    return after, failures


def still_waiting(
    scenario: Scenario, waiting: NDArray[np.bool_], received: UEs, began: Time, ended: Time
) -> NDArray[np.bool_]:
    """Return which UEs are backlogged at the end of a frame: not those received, but those that arrived meanwhile.

    began, ended: slots that were spent before and after the frame. The arrivals of a slot depend on nothing but the
    slot, so that all strategies see the same; they come at its beginning.
    """
    rate = scenario.push.arrivals
    if rate is None:
        return waiting
    after = waiting.copy()
    after[received] = False
    for slot in range(math.ceil(began), math.ceil(ended)):
        rng = stream(scenario.seed, ARRIVALS, slot)
        after[rng.integers(len(after), size=rng.poisson(rate))] = True
    return after
