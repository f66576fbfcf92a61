"""Compare every split of a frame into pull and push slots by expected yield and cost, without any training.

>>> best = plan(slots=20, contenders=10, value_ratio=4.0).best
>>> best.pull, round(best.expected_received_push, 2), round(best.expected_value, 2)
(6, 5.13, 26.53)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel
from fedslot.planning.backlog_frames import senders
from fedslot.planning.cell import Barring, Progress, PushCell, progress_after
from fedslot.planning.contenders import Contenders
from fedslot.planning.costs import expected_cost_max
from fedslot.planning.limits import chance_within, cost_pmf, expected_frames, within
from fedslot.planning.pushes import Pushes, PushYield
from fedslot.planning.readiness import Readiness, ReadinessBySlot, Ready, make_readiness
from fedslot.support import display
from fedslot.support.checks import check_number, check_probability, check_whole
from fedslot.support.errors import InputError

MOST_SLOTS, MOST_SPLITS = 10**9, 200_000
MOST_WORK, MOST_STATES = 2 * 10**9, 10**8
"""The largest numbers of UEs to simulate, or of points to compute: some ten minutes of one processor; and of states of
the recursion over slots, for UEs that are ready late."""
MOST_VALUE, MOST_BUDGET = 10**12, 10**15


@dataclass(frozen=True)
class FrameSplit:
    """A frame of `pull` reserved and `push` open slots: its expected yield, and its expected cost in slots.

    probability: with which each contender sends (access barring). success_probability: of a UE that sends.
    expected_sent: transmissions in the push slots, received or not; on coded channels each copy is one.
    expected_value: pulled updates count 1, pushed ones `value_ratio`. value_per_slot: by expected_cost_max.
    expected_cost_exact: last slot, without the downlink slot, if every pull is received. The paper's eq. (5)
        approximates it by expected_cost_paper (None on other channels than the paper's).
    expected_cost_max, expected_cost_sum: of a whole frame, with the downlink slot and with UEs that are not ready.
    nothing_pushed: probability that no push is received.
    expected_frames, value_in_budget: number of frames in the budget, and their value; None without a budget.
    within_limit: probability that the frame costs at most the limit per frame; None without a limit.
    backlog: number of backlogged UEs when a frame begins; None without arrivals.
    standard_errors: of the fields that were simulated; empty if all are computed.
    """

    pull: int
    push: int
    probability: float
    success_probability: float
    expected_sent: float
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
    backlog: float | None = None
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

    @property
    def break_even(self) -> float | None:
        """The value ratio from which it pays to leave pull slots open; None if no compared split gets more pushes.

        At this ratio a split with more pushes is worth as much as the best one if pushes were worth nothing.
        """
        frames = [1.0 if split.expected_frames is None else split.expected_frames for split in self.splits]
        worths = [
            (count * (split.expected_received - split.expected_received_push), count * split.expected_received_push)
            for split, count in zip(self.splits, frames, strict=True)
        ]  # the value of a split is the first of these, and the value ratio times the second
        pulls, pushes = max(worths, key=lambda worth: (float(f"{worth[0]:.12g}"), -worth[1]))
        ratios = [(pulls - fewer) / (more - pushes) for fewer, more in worths if more > pushes]
        return max(0.0, min(ratios)) if ratios else None

    def plot(self) -> NDArray[Any]:
        """Draw yield and cost of every split, and return both axes."""
        axes: NDArray[Any] = display.plot(self)
        return axes

    def __repr__(self) -> str:
        best, sizes = self.best, f"{self.slots} slots, {len(self.splits)} splits"
        yields = f"{best.expected_received:.2f} received in {best.expected_cost_max:.2f} slots"
        return f"Plan({sizes}; best: pull {best.pull}, push {best.push}, {yields})"

    def _repr_html_(self) -> str:
        return display.html(self)


@dataclass(frozen=True)
class Objective:
    """What the splits of a frame are compared by, and what a frame may cost; fields as in `plan`."""

    value_ratio: float = 1.0
    budget: float | None = None
    frame_limit: float | None = None
    confidence: float | None = None

    def check(self, slots: int) -> None:
        """Refuse numbers that make no sense for a frame of `slots` uplink slots."""
        if self.budget is not None and not 1 + slots <= self.budget <= MOST_BUDGET:
            allowed = f"a number of slots from {1 + slots}, one frame, to {MOST_BUDGET:,}"
            raise InputError("budget", self.budget, allowed)
        if self.frame_limit is not None:
            check_number("frame_limit", self.frame_limit, 1, MOST_BUDGET)
        if self.confidence is not None:
            check_probability("confidence", self.confidence)
            if self.frame_limit is None:
                raise InputError("confidence", self.confidence, "left out without a frame_limit")
        check_number("value_ratio", self.value_ratio, 0, MOST_VALUE)


MOST_RECEIVED = Objective()
"""All updates are worth the same, and frames may cost any number of slots."""


def plan(
    slots: int,
    contenders: Contenders = 0,
    *,
    pulls: Iterable[int] | None = None,
    value_ratio: float = 1.0,
    ready: Ready = 1.0,
    ues: int | None = None,
    budget: float | None = None,
    frame_limit: float | None = None,
    confidence: float | None = None,
    barring: Barring = 1.0,
    channel: str | Channel = "collision",
    frames: int = 4000,
    precision: float | None = None,
    seed: int = 0,
    arrivals: float | None = None,
    rule: Literal["max", "frame"] = "max",
    progress: Progress | None = None,
) -> Plan:
    """Compare the splits of a frame.

    slots: uplink slots of a frame, M.
    contenders: the number of contenders, or the probability of each number. `Binomial(ues, p)`: each UE that
        is not pulled contends with probability p.
    pulls: numbers of pull slots to compare; by default all, 0..M.
    value_ratio: value of a pushed update relative to a pulled one.
    ready: probability that a pulled UE is ready; one that is not wastes its slot. Or (M,) probabilities that a UE is
        ready when each slot begins: then contenders, too, use only slots that begin after they are ready.
    ues: number of UEs in the cell: a UE is pulled once a frame and does not contend then. None: no limit.
    budget: slots to spend, as in the simulator: a frame spends its `cost_max`, and begins only if all of its slots are
        left.
    frame_limit: the most slots that a frame may cost, T_max of the paper's problem P: E[cost_max] is at most this.
        Each number of pull slots then gets the most push slots that the limit allows, and the frame ends after them;
        numbers of pull slots that alone cost more are left out.
    confidence: the limit holds with this probability instead, P(cost_max <= frame_limit) >= confidence.
    barring: probability with which contenders send; "best" is for each split the one that maximises the number of
        received pushes, which with N contenders on the collision channel is min(1, L/N); "auto" is what a PS does that
        controls it by what it receives, and is simulated. "best" with arrivals is the channel's best load at all times.
    channel: the collision channel is computed exactly, others are simulated.
    frames: frames to simulate for each split; with arrivals on a simulated channel up to a quarter for each backlog.
    precision: stop simulating a split as soon as the standard errors of the received pushes and of their last slot are
        at most this part of their means (of 1, if a mean is below 1), where frames are independent.
    arrivals: mean number of UEs per slot that get an update, instead of contenders: each stays backlogged until it is
        received, and the numbers are those of the long run of a cell that was empty. The same UEs are pulled in every
        frame. rule: slots that a frame takes, `max` to its last received slot, `frame` all.
    progress: called with the number of splits done and of all splits.

    >>> best = plan(20, 10, frame_limit=15).best
    >>> best.pull, best.push, round(best.expected_cost_max, 6)
    (14, 1, 15.0)
    """
    cell = PushCell(contenders, channel, ready, ues, barring, frames, precision, seed, arrivals, rule)
    return compare(cell, slots, pulls, Objective(value_ratio, budget, frame_limit, confidence), progress)


def compare(
    cell: PushCell,
    slots: int,
    pulls: Iterable[int] | None = None,
    objective: Objective = MOST_RECEIVED,
    progress: Progress | None = None,
) -> Plan:
    """Compare the splits of a frame of a cell; pulls and progress as in `plan`."""
    check_whole("slots", slots, least=1, most=MOST_SLOTS)
    objective.check(slots)
    limit, budget = objective.frame_limit, objective.budget
    readiness = make_readiness(cell.ready, slots)
    if isinstance(readiness, ReadinessBySlot) and limit is not None:
        raise InputError("frame_limit", limit, "left out where readiness depends on the slot")
    compared = _pulls_to_compare(pulls, slots, cell.ues)
    groups = [  # numbers of pull slots beside which the same UEs may contend
        (pulls, Pushes(cell, cell.pmf_among(cell.most_beside(pulls[0])), readiness, pulls[0]))
        for pulls in ([*group] for _, group in groupby(compared, int if cell.feeds_back else cell.most_beside))
    ]
    tries = 1
    if limit is not None and len(groups) == len(compared):  # numbers of push slots that are tried for each pull
        tries = slots.bit_length() + 1 if groups[0][1].monotone else slots + 1
    if budget is not None and cell.computed:  # probabilities of all costs
        tries += slots + 1
    _check_work(compared, groups[0][1], slots, tries)
    yields: list[tuple[int, PushYield]] = []
    for group, pushes in groups:
        report = progress_after(progress, len(yields), len(compared))
        if limit is None:
            yields += zip(group, pushes.expect([slots - pull for pull in group], report), strict=True)
        else:
            yields += within(limit, objective.confidence, group, slots, readiness, pushes, report)
    if not yields:
        raise InputError("frame_limit", limit, f"enough for {compared[0]} pull slots and the downlink slot")
    splits = [_split(pull, push, readiness, objective) for pull, push in yields]
    return Plan(slots, "expected_value" if budget is None else "value_in_budget", tuple(splits))


def _pulls_to_compare(pulls: Iterable[int] | None, slots: int, ues: int | None) -> list[int]:
    """Return the numbers of pull slots to compare, by default all that a frame and the cell allow."""
    if pulls is None and slots >= MOST_SPLITS:
        raise InputError("slots", slots, f"below {MOST_SPLITS:,} to compare all splits; give a single pull instead")
    most = slots if ues is None else min(slots, ues)
    compared = sorted({*(range(most + 1) if pulls is None else pulls)})
    for pull in compared:
        check_whole("pull", pull, most=most)
    if not compared:
        raise InputError("pulls", [], "at least one number of pull slots")
    return compared


def _check_work(pulls: Sequence[int], pushes: Pushes, slots: int, tries: int) -> None:
    """Refuse a plan that would take hours.

    pushes: those with the most contenders. tries: numbers of push slots that are looked at for each pull.
    """
    cell, number = pushes.cell, len(pushes.pmf) - 1
    if cell.computed and pushes.late:
        states = min(number, 20 * math.sqrt(number) + 40) ** 2 + 1  # of the recursion over slots
        if states * sum(slots - pull for pull in pulls) > MOST_STATES:
            raise InputError("slots", slots, "fewer, with fewer contenders or a single pull, if UEs are ready late")
        return
    if cell.computed:
        likely = int(np.count_nonzero(pushes.pmf))
        points = tries * likely * (40 + 9 * min(math.sqrt(number), 10))
        if len(pulls) * points > MOST_WORK:
            most = max(1, int(MOST_WORK / points))
            allowed = f"with {likely:,} likely numbers of contenders, at most {most - 1:,}; or give a single pull"
            raise InputError("slots", slots, allowed)
        return
    if cell.arrivals is not None and cell.barring != "auto":
        number = round(senders(cell.ues or 0))
    work = tries * sum(number + slots - pull for pull in pulls) + 1
    if work * cell.frames > MOST_WORK:
        most = int(MOST_WORK / work)
        if most < 2:
            raise InputError("slots", slots, "simulated with fewer slots, fewer contenders or a single pull")
        allowed = f"at most {most:,} with these numbers of splits, slots and contenders; a single pull allows more"
        raise InputError("frames", cell.frames, allowed)


def _split(pull: int, push: PushYield, ready: Readiness, objective: Objective) -> FrameSplit:
    """Return the numbers of a split."""
    budget, limit, ratio = objective.budget, objective.frame_limit, objective.value_ratio
    pulled, last_pull = ready.pulled(pull), ready.last_pull(pull)
    cost_max = expected_cost_max(pull, push.last_slot, push.nothing, last_pull)
    value = pulled + ratio * push.received
    frames = None if budget is None else expected_frames(budget, cost_pmf(pull, push, ready))
    return FrameSplit(
        pull=pull,
        push=push.slots,
        probability=push.probability,
        success_probability=min(1.0, push.received / push.sending) if push.sending > 0 and push.slots else 0.0,
        expected_sent=push.sent,
        expected_received_push=push.received,
        expected_received=pulled + push.received,
        expected_value=value,
        expected_cost_exact=pull + push.last_slot,
        expected_cost_paper=None if push.paper is None else pull + push.paper,
        expected_cost_max=cost_max,
        expected_cost_sum=ready.cost_sum(pull) + (pull + 1) * push.received + push.slot_sum,
        nothing_pushed=push.nothing,
        value_per_slot=value / cost_max,
        expected_frames=frames,
        value_in_budget=None if frames is None else frames * value,
        within_limit=None if limit is None else chance_within(limit, pull, push, ready),
        backlog=push.backlog,
        standard_errors=_standard_errors(push, pull, last_pull, ratio),
    )


def _standard_errors(push: PushYield, pull: int, last_pull: float, value_ratio: float) -> dict[str, float]:
    """Return the standard errors of what was simulated, by field; of runs, those of the means of each run."""
    if push.frames is None:
        return {}
    received, last, slot_sum, sent, nothing = push.frames.T
    samples = {
        "expected_sent": sent,
        "expected_received_push": received,
        "expected_cost_exact": last,
        "expected_cost_max": pull * (1 - nothing) + last + nothing * last_pull,
        "expected_cost_sum": (pull + 1) * received + slot_sum,
        "nothing_pushed": nothing,
    }
    if push.backlogs is not None:
        samples = {name: x.reshape(len(push.backlogs), -1).mean(axis=1) for name, x in samples.items()}
        samples |= {} if push.backlog is None else {"backlog": push.backlogs}
    errors = {name: float(x.std(ddof=1) / math.sqrt(len(x))) for name, x in samples.items()}
    errors["expected_received"] = errors["expected_received_push"]
    errors["expected_value"] = value_ratio * errors["expected_received_push"]
    return errors
