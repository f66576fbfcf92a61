"""A limit on the cost of a frame, T_max of the paper's problem P: the most push slots that it allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from fedslot.access.costs import expected_cost_max
from fedslot.access.pushes import Progress, Pushes, PushYield
from fedslot.access.readiness import Readiness


def within(
    limit: float,
    confidence: float | None,
    pulls: Sequence[int],
    slots: int,
    ready: Readiness,
    pushes: Pushes,
    progress: Progress | None,
) -> list[tuple[int, PushYield]]:
    """Return for each number of pull slots the most push slots with which a frame meets the limit.

    The numbers of pull slots, in ascending order, that alone exceed the limit are left out.
    """
    known: dict[int, PushYield] = {}
    if len(pulls) > 1:  # each number of push slots serves several numbers of pull slots
        numbers = range(slots - min(pulls, default=0) + 1)
        known = dict(zip(numbers, pushes.expect(numbers, progress), strict=True))

    def fits(pull: int, push: int) -> bool:
        if push not in known:
            known[push] = pushes.expect([push])[0]
        if confidence is not None:
            return chance_within(limit, pull, known[push], ready) >= confidence * (1 - 1e-12)
        cost = expected_cost_max(pull, known[push].last_slot, known[push].nothing, ready.last_pull(pull))
        return cost <= limit * (1 + 1e-12)  # rounding does not decide

    # the best barring may change by leaps, and the chance with it
    find = _largest_of_all if confidence is not None and pushes.barring == "best" else largest
    found: list[tuple[int, PushYield]] = []
    most = slots
    for pull in pulls:
        most = find(min(most, slots - pull), partial(fits, pull))
        if most < 0:  # more pull slots do not cost less
            break
        found.append((pull, known[most]))
    return found


def largest(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `high` that fits, -1 if none does; all numbers below one that fits do so."""
    low, step = high, 1
    while low >= 0 and not fits(low):  # the result is often near
        high, low, step = low - 1, max(low - step, 0) if low else -1, 2 * step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _largest_of_all(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `high` that fits, -1 if none does."""
    return next((number for number in range(high, -1, -1) if fits(number)), -1)


def chance_within(limit: float, pull: int, push: PushYield, ready: Readiness) -> float:
    """Return P(cost_max <= limit): the last received slot is at most `limit` - 1."""
    last = math.floor(limit * (1 + 1e-12)) - 1
    if last >= pull:
        return push.at_most(last - pull)
    return push.nothing * ready.none_after(max(last, 0), pull)  # no push, and none of the last pull slots in use
