"""Compare every split of a frame into pull and push slots by expected yield and cost, without any training.

>>> best = plan(slots=20, contenders=10, value_ratio=4.0).best
>>> best.pull, round(best.expected_received_push, 2), round(best.expected_value, 2)
(6, 5.13, 26.53)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel, make_channel
from fedslot.access.checks import check_probability, check_whole
from fedslot.access.contenders import Contenders, Floats, contender_pmf
from fedslot.access.costs import expected_cost_max, last_success_mean
from fedslot.access.pushes import Barring, Progress, Pushes, PushYield
from fedslot.errors import InputError

MOST_SLOTS = 10**9
MOST_SPLITS = 200_000
"""The largest number of splits in one plan."""
MOST_WORK = 2 * 10**9
"""The largest number of UEs to simulate, or of points to compute: some ten minutes of one processor."""
MOST_VALUE, MOST_BUDGET = 10**12, 10**15
NEAR = 7
"""Number of splits in the table of a plan."""


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
    within_limit: probability that the frame costs at most the limit per frame; None without a limit.
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
    within_limit: float | None = None
    standard_errors: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)


@dataclass(frozen=True, repr=False)
class Plan:
    """The splits of a frame, in order of `pull`, and the best of them; with a limit per frame, those that meet it.

    by: the field that the best split maximises, `value_in_budget` if there is a time budget.
    """

    slots: int
    by: Literal["expected_value", "value_in_budget"]
    splits: tuple[FrameSplit, ...]

    @cached_property
    def best(self) -> FrameSplit:
        """The best split; among equals the one with the most pull slots, whose yield is certain."""
        # Rounded, so that rounding errors do not decide between equals.
        return max(self.splits, key=lambda split: (float(f"{getattr(split, self.by):.12g}"), split.pull))

    def plot(self) -> NDArray[Any]:
        """Draw yield and cost of every split, and return both axes."""
        from fedslot.views.plan import show_plan  # slow to import

        return show_plan(self)

    def __repr__(self) -> str:
        best = self.best
        yields = f"{best.expected_received:.2f} received in {best.expected_cost_max:.2f} slots"
        return (
            f"Plan({self.slots} slots, {len(self.splits)} splits; best: pull {best.pull}, push {best.push}, {yields})"
        )

    def _repr_html_(self) -> str:
        from fedslot.views.html import table

        ranked = sorted(self.splits, key=lambda split: -getattr(split, self.by))[:NEAR]
        header = ["", "pull", "push", "probability of sending", "received", "of them pushed", "value", "cost in slots"]
        rows = [
            [
                "best" if split is self.best else "",
                f"{split.pull}",
                f"{split.push}",
                f"{split.probability:.3g}",
                f"{split.expected_received:.2f}",
                f"{split.expected_received_push:.2f}",
                f"{split.expected_value:.2f}",
                f"{split.expected_cost_max:.2f}",
            ]
            for split in sorted(ranked, key=lambda split: split.pull)
        ]
        note = f"The best {len(rows)} of {len(self.splits)} splits, by {self.by.replace('_', ' ')}."
        return table(header, rows, f"Plan of a frame of {self.slots} slots", note)


def plan(
    slots: int,
    contenders: Contenders,
    *,
    pulls: Iterable[int] | None = None,
    value_ratio: float = 1.0,
    ready: float = 1.0,
    budget: float | None = None,
    frame_limit: float | None = None,
    confidence: float | None = None,
    barring: Barring = 1.0,
    channel: str | Channel = "collision",
    frames: int = 4000,
    precision: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Compare the splits of a frame.

    slots: uplink slots of a frame, M.
    contenders: the number of contenders, or the probability of each number.
    pulls: numbers of pull slots to compare; by default all, 0..M.
    value_ratio: value of a pushed update relative to a pulled one.
    ready: probability that a pulled UE is ready; one that is not wastes its slot.
    budget: slots to spend. A frame spends its `cost_max`, as in the simulator, so the budget lasts for
        budget / E[cost_max] frames (in the long run, by the renewal theorem).
    frame_limit: the most slots that a frame may cost, T_max of the paper's problem P: E[cost_max] is at most this.
        Each number of pull slots then gets as many push slots as the limit allows, and the frame ends after them;
        numbers of pull slots that alone cost more are left out.
    confidence: the limit holds with this probability instead, P(cost_max <= frame_limit) >= confidence.
    barring: probability with which contenders send; "best" is for each split the one that maximises the number of
        received pushes, which with N contenders on the collision channel is min(1, L/N).
    channel: the collision channel is computed exactly, others are simulated.
    frames: frames to simulate for each split.
    precision: stop simulating a split as soon as the standard errors of the received pushes and of their last slot are
        at most this part of their means (of 1, if a mean is below 1).
    progress: called with the number of splits done and of all splits.

    >>> best = plan(20, 10, frame_limit=15).best
    >>> best.pull, best.push, round(best.expected_cost_max, 6)
    (14, 1, 15.0)
    """
    pmf = contender_pmf(contenders)
    check_whole("slots", slots, least=1, most=MOST_SLOTS)
    check_probability("ready", ready)
    if barring != "best":
        check_probability("barring", barring)
    _check_number("value_ratio", value_ratio, 0, MOST_VALUE)
    if budget is not None and not 0 < budget <= MOST_BUDGET:
        raise InputError("budget", budget, f"a number of slots above 0 and up to {MOST_BUDGET:,}")
    if frame_limit is not None:
        _check_number("frame_limit", frame_limit, 1, MOST_BUDGET)
    if confidence is not None:
        check_probability("confidence", confidence)
        if frame_limit is None:
            raise InputError("confidence", confidence, "left out without a frame_limit")
    if precision is not None:
        _check_number("precision", precision, 0, 1)
    check_whole("seed", seed)
    if pulls is None and slots >= MOST_SPLITS:
        raise InputError("slots", slots, f"below {MOST_SPLITS:,} to compare all splits; give a single pull instead")
    wanted = sorted({*(range(slots + 1) if pulls is None else pulls)})
    for pull in wanted:
        check_whole("pull", pull, most=slots)
    medium = make_channel(channel) if isinstance(channel, str) else channel
    pushes = Pushes(medium, pmf, barring, frames, precision, seed)
    if not pushes.computed:
        check_whole("frames", frames, least=2, most=10**7)
    _check_work(pushes, wanted, slots)
    if frame_limit is None:
        yields = pushes.expect([slots - pull for pull in wanted], progress)
        pairs = list(zip(wanted, yields, strict=True))
    else:
        pairs = _within(frame_limit, confidence, wanted, slots, ready, pushes, progress)
    splits = [_split(pull, push, ready, value_ratio, budget, frame_limit) for pull, push in pairs]
    return Plan(slots, "expected_value" if budget is None else "value_in_budget", tuple(splits))


def _check_number(field: str, value: object, least: float, most: float) -> None:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not least <= value <= most:  # type: ignore[operator]
        raise InputError(field, value, f"a number from {least:,} to {most:,}")


def _check_work(pushes: Pushes, pulls: list[int], slots: int) -> None:
    """Refuse a plan that would take hours."""
    number = len(pushes.pmf) - 1
    if pushes.computed:
        likely = int(np.count_nonzero(pushes.pmf))
        points = likely * (40 + 9 * min(math.sqrt(number), 10))
        if len(pulls) * points > MOST_WORK:
            most = max(1, int(MOST_WORK / points))
            allowed = f"with {likely:,} likely numbers of contenders, at most {most - 1:,}; or give a single pull"
            raise InputError("slots", slots, allowed)
        return
    work = sum(number + slots - pull for pull in pulls) + 1
    trials = 3 if pushes.barring == "best" else 1  # the search takes twice as many frames as the result
    if work * trials * pushes.frames > MOST_WORK:
        most = int(MOST_WORK / work / trials)
        if most < 2:
            raise InputError("slots", slots, "simulated with fewer slots, fewer contenders or a single pull")
        allowed = f"at most {most:,} with so many splits, slots and contenders; a single pull allows more"
        raise InputError("frames", pushes.frames, allowed)


def _split(
    pull: int, push: PushYield, ready: float, value_ratio: float, budget: float | None, frame_limit: float | None
) -> FrameSplit:
    cost_max = expected_cost_max(pull, push.last_slot, push.nothing, ready)
    value = ready * pull + value_ratio * push.received
    return FrameSplit(
        pull=pull,
        push=push.slots,
        probability=push.probability,
        success_probability=min(1.0, push.received / push.sending) if push.sending > 0 and push.slots else 0.0,
        expected_received_push=push.received,
        expected_received=ready * pull + push.received,
        expected_value=value,
        expected_cost_exact=pull + push.last_slot,
        expected_cost_paper=None if push.paper is None else pull + push.paper,
        expected_cost_max=cost_max,
        expected_cost_sum=ready * pull * (pull + 3) / 2 + (pull + 1) * push.received + push.slot_sum,
        nothing_pushed=push.nothing,
        value_per_slot=value / cost_max,
        expected_frames=None if budget is None else budget / cost_max,
        value_in_budget=None if budget is None else budget * value / cost_max,
        within_limit=None if frame_limit is None else _chance_within(frame_limit, pull, push, ready),
        standard_errors={} if push.frames is None else _standard_errors(push.frames, pull, ready, value_ratio),
    )


def _standard_errors(frames: Floats, pull: int, ready: float, value_ratio: float) -> dict[str, float]:
    received, last, slot_sum = frames.T
    samples = {
        "expected_received_push": received,
        "expected_cost_exact": last,
        "expected_cost_max": np.where(received > 0, pull + last, last_success_mean(pull, ready)),
        "expected_cost_sum": (pull + 1) * received + slot_sum,
        "nothing_pushed": (received == 0).astype(float),
    }
    errors = {name: float(x.std(ddof=1) / math.sqrt(len(x))) for name, x in samples.items()}
    errors["expected_received"] = errors["expected_received_push"]
    errors["expected_value"] = value_ratio * errors["expected_received_push"]
    return errors


# A limit per frame -------------------------------------------------------------------------------------


def _within(
    limit: float,
    confidence: float | None,
    pulls: list[int],
    slots: int,
    ready: float,
    pushes: Pushes,
    progress: Progress | None,
) -> list[tuple[int, PushYield]]:
    """Return for each number of pull slots the most push slots with which a frame meets the limit."""
    known: dict[int, PushYield] = {}
    if len(pulls) > 1:  # each number of push slots serves several numbers of pull slots
        numbers = range(slots - min(pulls, default=0) + 1)
        known = dict(zip(numbers, pushes.expect(numbers, progress), strict=True))

    def fits(pull: int, push: int) -> bool:
        if push not in known:
            known[push] = pushes.expect([push])[0]
        if confidence is not None:
            return _chance_within(limit, pull, known[push], ready) >= confidence
        cost = expected_cost_max(pull, known[push].last_slot, known[push].nothing, ready)
        return cost <= limit * (1 + 1e-12)  # rounding does not decide

    found: list[tuple[int, PushYield]] = []
    most = slots
    for pull in pulls:
        most = _largest(min(most, slots - pull), lambda push, pull=pull: fits(pull, push))  # type: ignore[misc]
        if most < 0:  # more pull slots do not cost less
            break
        found.append((pull, known[most]))
    if not found:
        raise InputError(
            "frame_limit", limit, f"enough for {pulls[0] if pulls else 0} pull slots and the downlink slot"
        )
    return found


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `high` that fits, -1 if none does; all numbers below one that fits do so."""
    low, step = high, 1
    while low >= 0 and not fits(low):  # the result is often near
        high, low, step = low - 1, max(low - step, 0) if low else -1, 2 * step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _chance_within(limit: float, pull: int, push: PushYield, ready: float) -> float:
    """Return P(cost_max <= limit): the last received slot is at most `limit` - 1."""
    last = math.floor(limit * (1 + 1e-12)) - 1
    if last >= pull:
        return push.at_most(last - pull)
    return push.nothing * (1 - ready) ** (pull - last)  # no push, and none of the last pull slots in use
