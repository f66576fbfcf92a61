"""Compare every split of a frame into pull and push slots by expected yield and cost, without any training.

>>> best = plan(slots=20, contenders=10, value_ratio=4.0).best
>>> best.pull, round(best.expected_received_push, 2), round(best.expected_value, 2)
(6, 5.13, 26.53)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedslot.access.channels import Channel, Collision, make_channel
from fedslot.access.checks import check_probability, check_whole
from fedslot.access.contenders import Contenders, Floats, contender_pmf, sending_pmf, thinning
from fedslot.access.costs import expected_cost_max, last_pull_mean, paper_push_cost
from fedslot.errors import InputError
from fedslot.rng import PLAN, PLAN_BARRING, stream

BATCH = 200_000
"""Number of contenders that are simulated at once, which bounds the memory."""


@dataclass(frozen=True)
class FrameSplit:
    """A frame of `pull` reserved and `push` open slots: its expected yield, and its expected cost in slots.

    probability: access barring, the probability with which each contender sends.
    success_probability: of a UE that sends.
    expected_value: pulled updates count 1, pushed ones `value_ratio`.
    expected_cost_exact: last slot, without the downlink slot, if every pull is received. The paper's eq. (5)
        approximates it by expected_cost_paper (None on other channels than the paper's).
    expected_cost_max, expected_cost_sum: of a whole frame, with the downlink slot and with UEs that are not ready.
    nothing_pushed: probability that no push is received.
    value_per_slot: expected_value / expected_cost_max.
    expected_frames, value_in_budget: number of frames in the budget, and their value; None without a budget.
    standard_errors: of the fields that were simulated; empty if all are computed.
    """

    pull: int
    push: int
    probability: float
    success_probability: float
    expected_received_push: float
    expected_received: float
    expected_value: float
    expected_cost_exact: float
    expected_cost_paper: float | None
    expected_cost_max: float
    expected_cost_sum: float
    nothing_pushed: float
    value_per_slot: float
    expected_frames: float | None = None
    value_in_budget: float | None = None
    standard_errors: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """The splits of a frame, in order of `pull`, and the best of them.

    by: the field that the best split maximises, `value_in_budget` if there is a time budget.
    """

    slots: int
    by: Literal["expected_value", "value_in_budget"]
    splits: tuple[FrameSplit, ...]

    @property
    def best(self) -> FrameSplit:
        """The best split; among equals the one with the most pull slots, whose yield is certain."""
        # Rounded, so that rounding errors do not decide between equals.
        return max(self.splits, key=lambda split: (float(f"{getattr(split, self.by):.12g}"), split.pull))


def plan(
    slots: int,
    contenders: Contenders,
    *,
    pulls: Iterable[int] | None = None,
    value_ratio: float = 1.0,
    ready: float = 1.0,
    budget: float | None = None,
    barring: float | Literal["best"] = 1.0,
    channel: str | Channel = "collision",
    frames: int = 4000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Compare the splits of a frame.

    slots: uplink slots of a frame, M.
    contenders: the number of contenders, or the probability of each number.
    pulls: numbers of pull slots to compare; by default all, 0..M.
    value_ratio: value of a pushed update relative to a pulled one.
    ready: probability that a pulled UE is ready; one that is not wastes its slot.
    budget: slots to spend. A frame spends its `cost_max`, as in the simulator, so the budget lasts for
        budget / E[cost_max] frames (in the long run, by the renewal theorem).
    barring: probability with which contenders send; "best" is for each split the one that maximises the number of
        received pushes, which with N contenders on the collision channel is min(1, L/N).
    channel: the collision channel is computed exactly, others are simulated with `frames` frames per split.
    progress: called with the number of splits done and of all splits while simulating.
    """
    pmf = contender_pmf(contenders)
    check_whole("slots", slots, least=1)
    check_probability("ready", ready)
    if barring != "best":
        check_probability("barring", barring)
    if not 0 <= value_ratio < math.inf:
        raise InputError("value_ratio", value_ratio, "a finite number of at least 0")
    if budget is not None and not 0 < budget < math.inf:
        raise InputError("budget", budget, "a number of slots above 0")
    wanted = sorted({*range(slots + 1)} if pulls is None else {*pulls})
    for pull in wanted:
        check_whole("pull", pull, most=slots)
    medium = make_channel(channel) if isinstance(channel, str) else channel
    if type(medium) is Collision:
        pushes = _computed([slots - pull for pull in wanted], pmf, barring)
    else:
        check_whole("frames", frames, least=2)
        pushes = _simulated(medium, [slots - pull for pull in wanted], pmf, barring, frames, seed, progress)
    splits = [_split(pull, push, ready, value_ratio, budget) for pull, push in zip(wanted, pushes, strict=True)]
    return Plan(slots, "expected_value" if budget is None else "value_in_budget", tuple(splits))


@dataclass(frozen=True)
class _Push:
    """Expected yield of the push slots of one split."""

    slots: int
    probability: float
    sending: float
    received: float
    last_slot: float
    nothing: float
    slot_sum: float
    """Sum of the push slots that were received."""
    paper: float | None
    errors: Callable[[int, float], dict[str, float]] | None = None
    """If simulated: standard errors by field of `FrameSplit`, from the pull slots and the last of them in use."""


def _split(pull: int, push: _Push, ready: float, value_ratio: float, budget: float | None) -> FrameSplit:
    cost_max = expected_cost_max(pull, push.last_slot, push.nothing, ready)
    value = ready * pull + value_ratio * push.received
    split = FrameSplit(
        pull=pull,
        push=push.slots,
        probability=push.probability,
        success_probability=push.received / push.sending if push.sending > 0 and push.slots else 0.0,
        expected_received_push=push.received,
        expected_received=ready * pull + push.received,
        expected_value=value,
        expected_cost_exact=pull + push.last_slot,
        expected_cost_paper=None if push.paper is None else pull + push.paper,
        expected_cost_max=cost_max,
        expected_cost_sum=ready * pull * (pull + 3) / 2 + (pull + 1) * push.received + push.slot_sum,
        nothing_pushed=push.nothing,
        value_per_slot=value / cost_max,
    )
    if budget is not None:
        split = replace(split, expected_frames=budget / cost_max, value_in_budget=budget * value / cost_max)
    if push.errors is not None:
        errors = push.errors(pull, last_pull_mean(pull, ready))
        errors["expected_received"] = errors["expected_received_push"]
        errors["expected_value"] = value_ratio * errors["expected_received_push"]
        split = replace(split, standard_errors=errors)
    return split


# The collision channel, exactly ------------------------------------------------------------------------


def push_table(slots: int, contenders: int) -> tuple[Floats, Floats]:
    """Return E[X] and P(nothing received) for all of 0..`slots` push slots and 0..`contenders` contenders.

    Recursion over the number of slots j: m of n contenders pick the last slot. If m = 1 it is received and X = j,
    else j - 1 slots and n - m contenders remain. All terms are positive.

    returns: two arrays (slots + 1, contenders + 1).

    >>> last, nothing = push_table(4, 3)
    >>> last[4, 3].round(12), nothing[4, 3].round(12)
    (np.float64(2.8125), np.float64(0.0625))
    """
    last = np.zeros((slots + 1, contenders + 1))
    nothing = np.ones((slots + 1, contenders + 1))
    for j in range(1, slots + 1):
        crowd = min(contenders, 60 * (j + 1))  # with more, a push is received with probability below 1e-20
        n, m, chance = thinning(0, crowd, 1 / j)
        left = np.maximum(n - m, 0)  # where m > n the chance is 0
        onward = np.where(m == 1, 0.0, chance)
        last[j, : crowd + 1] = (onward * last[j - 1][left]).sum(axis=1) + j * chance[:, m[0] == 1].sum(axis=1)
        nothing[j, : crowd + 1] = (onward * nothing[j - 1][left]).sum(axis=1)
    return last, nothing


def _computed(pushes: list[int], pmf: Floats, barring: float | Literal["best"]) -> list[_Push]:
    last, nothing = push_table(max(pushes, default=0), len(pmf) - 1)
    n = np.arange(len(pmf))
    results = []
    for slots in pushes:
        probability = best_barring(slots, pmf) if barring == "best" else barring
        sending = sending_pmf(pmf, probability)
        received = float(sending @ (n * (1 - 1 / slots) ** np.maximum(n - 1, 0))) if slots else 0.0
        results.append(
            _Push(
                slots=slots,
                probability=probability,
                sending=float(n @ sending),
                received=received,
                last_slot=float(sending @ last[slots]),
                nothing=float(sending @ nothing[slots]),
                slot_sum=received * (slots + 1) / 2,  # by symmetry of the slots
                paper=paper_push_cost(slots, sending),
            )
        )
    return results


def best_barring(slots: int, pmf: Floats) -> float:
    """Return the sending probability that maximises the received pushes on the collision channel.

    pmf: entry n is the probability of n contenders. For a known number N the result is min(1, L/N).

    >>> best_barring(10, contender_pmf(25)), best_barring(10, contender_pmf(5))
    (0.4, 1.0)
    """
    numbers = np.flatnonzero(pmf)
    if slots == 0 or numbers[-1] <= slots:  # up to L contenders, one more never lowers the yield
        return 1.0
    if len(numbers) == 1:
        return slots / int(numbers[0])

    def received(p: Floats) -> Floats:
        alone = (1 - p[:, None] / slots) ** np.maximum(numbers - 1, 0)
        yields: Floats = p * (alone @ (numbers * pmf[numbers]))
        return yields

    low, high = 0.0, 1.0
    for _ in range(6):  # there may be several maxima: scan, then refine around the highest
        grid = np.linspace(low, high, 33)
        peak = int(np.argmax(received(grid)))
        low, high = float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, 32)])
    return float(grid[peak])


# Any other channel, by simulation ----------------------------------------------------------------------


def _simulated(
    channel: Channel,
    pushes: list[int],
    pmf: Floats,
    barring: float | Literal["best"],
    frames: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> list[_Push]:
    results = []
    for done, slots in enumerate(pushes):
        if progress is not None:
            progress(done, len(pushes))
        probability = barring if barring != "best" else _search_barring(channel, slots, pmf, frames, seed)
        # Another stream than that of the search, whose maximum is biased upwards.
        received = _play(channel, slots, pmf, probability, frames, seed, PLAN)
        results.append(_measure(slots, probability, float(np.arange(len(pmf)) @ pmf) * probability, received))
    if progress is not None:
        progress(len(pushes), len(pushes))
    return results


def _search_barring(channel: Channel, slots: int, pmf: Floats, frames: int, seed: int) -> float:
    """Return the best of 20 probabilities by simulation with common random numbers."""
    if slots == 0 or len(pmf) == 1:
        return 1.0
    trials = [k / 20 for k in range(20, 0, -1)]
    yields = [(_play(channel, slots, pmf, p, max(2, frames // 10), seed, PLAN_BARRING)[:, 0]).sum() for p in trials]
    return trials[int(np.argmax(yields))]


def _play(
    channel: Channel, slots: int, pmf: Floats, probability: float, frames: int, seed: int, purpose: str
) -> Floats:
    """Play frames on a channel. Returns (frames, 3): number of received pushes, their last slot, sum of their slots."""
    most = len(pmf) - 1
    rng = stream(seed, purpose, slots)
    batch = max(1, BATCH // max(1, most))
    rows = []
    for start in range(0, frames, batch):
        count = min(batch, frames - start)
        number = rng.choice(len(pmf), size=count, p=pmf)
        contends = (np.arange(most) < number[:, None]) & (rng.random((count, most)) < probability)
        slot = channel.play(np.where(contends, 1, slots + 1).astype(np.int64), slots, rng)
        rows.append(np.stack([(slot > 0).sum(axis=1), slot.max(axis=1, initial=0), slot.sum(axis=1)], axis=1))
    return np.concatenate(rows).astype(float)


def _measure(slots: int, probability: float, sending: float, frames: Floats) -> _Push:
    received, last, slot_sum = frames.T
    nothing = (received == 0).astype(float)

    def errors(pull: int, last_pull: float) -> dict[str, float]:
        samples = {
            "expected_received_push": received,
            "expected_cost_exact": last,
            "expected_cost_max": np.where(received > 0, pull + last, last_pull),
            "expected_cost_sum": (pull + 1) * received + slot_sum,
            "nothing_pushed": nothing,
        }
        return {name: float(x.std(ddof=1) / math.sqrt(len(x))) for name, x in samples.items()}

    return _Push(
        slots=slots,
        probability=probability,
        sending=sending,
        received=float(received.mean()),
        last_slot=float(last.mean()),
        nothing=float(nothing.mean()),
        slot_sum=float(slot_sum.mean()),
        paper=None,
        errors=errors,
    )
