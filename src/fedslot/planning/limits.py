"""Limits in slots: the most push slots within a limit per frame (T_max of problem P), the frames in a time budget."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fedslot.planning.cell import Progress
from fedslot.planning.contenders import Floats
from fedslot.planning.costs import expected_cost_max
from fedslot.planning.pushes import Pushes, PushYield
from fedslot.planning.readiness import Readiness


def within(
    limit: float,
    confidence: float | None,
    pulls: Sequence[int],
    slots: int,
    ready: Readiness,
    pushes: Pushes,
    progress: Progress | None,
) -> list[tuple[int, PushYield]]:
    """Return the most push slots with which a frame meets the limit, for each number of pull slots that can meet it."""
    yields: dict[int, PushYield] = {}
    if len(pulls) > 1:  # each number of push slots serves several numbers of pull slots
        numbers = range(slots - min(pulls) + 1)
        yields = dict(zip(numbers, pushes.expect(numbers, progress), strict=True))

    def fits(pull: int, push: int) -> bool:
        if push not in yields:
            yields[push] = pushes.expect([push])[0]
        if confidence is not None:
            return chance_within(limit, pull, yields[push], ready) >= confidence * (1 - 1e-12)
        cost = expected_cost_max(pull, yields[push].last_slot, yields[push].nothing, ready.last_pull(pull))
        return cost <= limit * (1 + 1e-12)  # rounding does not decide

    # the best barring may change by leaps, and the chance with it
    leaps = confidence is not None and pushes.cell.barring == "best"
    largest: list[tuple[int, PushYield]] = []
    most = slots
    for pull in pulls:
        high, fits_beside = min(most, slots - pull), partial(fits, pull)
        most = next(filter(fits_beside, range(high, -1, -1)), -1) if leaps else _largest(high, fits_beside)
        if most < 0:  # more pull slots do not cost less
            break
        largest.append((pull, yields[most]))
    return largest


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `high` that fits, -1 if none does; all numbers below one that fits do so."""
    low, step = high, 1
    while low >= 0 and not fits(low):  # the result is often near
        high, low, step = low - 1, max(low - step, 0) if low else -1, 2 * step
    return high - bisect_left(range(high, low, -1), True, key=fits)


def chance_within(limit: float, pull: int, push: PushYield, ready: Readiness) -> float:
    """Return P(cost_max <= limit): the last received slot is at most `limit` - 1."""
    last = math.floor(limit * (1 + 1e-12)) - 1
    if last >= pull:
        return push.at_most(last - pull)
    return push.nothing * ready.none_after(max(last, 0), pull)  # no push, and none of the last pull slots in use


def cost_pmf(pull: int, push: PushYield, ready: Readiness) -> Floats:
    """Return the probabilities (1 + M,) that a frame of M uplink slots costs 1, 2, ..., 1 + M slots."""
    costs = [chance_within(cost, pull, push, ready) for cost in range(1, pull + push.slots + 2)]
    return np.diff(costs, prepend=0.0).clip(min=0.0)


def expected_frames(budget: float, costs: Floats) -> float:
    """Return the expected number of frames in a budget of slots; a frame begins only if all of its slots are left.

    costs: (1 + M,) as of `cost_pmf`. The number f(b) of frames in b slots follows the renewal equation
    f(b) = 1 + sum of P(cost = c) f(b - c), where f(b) = 0 for b < 1 + M.

    >>> round(expected_frames(22, np.array([0.0, 0.5, 0.5])), 3)  # of 2 or 3 slots each, while at least 3 are left
    8.32
    """
    from scipy.signal import lfilter  # slow to import

    starts = math.floor(budget) - len(costs) + 1  # numbers of slots left with which a frame may begin
    if starts <= 0:
        return 0.0
    return float(lfilter([1.0], np.concatenate([[1.0], -costs]), np.ones(starts))[-1])
