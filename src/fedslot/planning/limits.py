"""Limits in slots: the most push slots within a limit per frame (T_max of problem P), the frames in a time budget."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
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
    """Return the most push slots with which a frame meets the limit, for each number of pull slots that can meet it.

    More push slots may cost less if the best barring leaps to a smaller crowd, so all are tried, from the most down.
    With a given probability on the collision channel they never do (the last received slot grows stochastically with
    their number, as enumeration confirms): a single number of pull slots is then bisected.
    """
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

    largest: list[tuple[int, PushYield]] = []
    most = slots
    for pull in pulls:
        high, fits_beside = min(most, slots - pull), partial(fits, pull)
        if len(pulls) == 1 and pushes.monotone:
            most = bisect_left(range(high + 1), True, key=lambda push: not fits_beside(push)) - 1
        else:
            most = next(filter(fits_beside, range(high, -1, -1)), -1)
        if most < 0:  # more pull slots do not cost less
            break
        largest.append((pull, yields[most]))
    return largest


def chance_within(limit: float, pull: int, push: PushYield, ready: Readiness) -> float:
    """Return P(cost_max <= limit): the last received slot is at most `limit` - 1."""
    last = math.floor(limit * (1 + 1e-12)) - 1
    if last >= pull:
        return float(push.at_most(np.array([last - pull]))[0])
    return push.nothing * ready.none_after(max(last, 0), pull)  # no push, and none of the last pull slots in use


def cost_pmf(pull: int, push: PushYield, ready: Readiness) -> Floats:
    """Return the probabilities (1 + M,) that a frame of M uplink slots costs 1, 2, ..., 1 + M slots."""
    before = [push.nothing * ready.none_after(last, pull) for last in range(pull)]
    costs = np.concatenate([before, push.at_most(np.arange(push.slots + 1))])
    return np.diff(costs, prepend=0.0).clip(min=0.0)


def expected_frames(budget: float, costs: Floats) -> float:
    """Return the expected number of frames in a budget of slots; a frame begins only if all of its slots are left.

    costs: (1 + M,) as of `cost_pmf`. The number f(b) of frames in b slots follows the renewal equation
    f(b) = 1 + sum of P(cost = c) f(b - c), where f(b) = 0 for b < 1 + M. So f(1 + M + t) is the coefficient of z^t in
    1 / ((1 - z) (1 - C(z))) = 1 / ((1 - z)^2 H(z)), where the coefficients of H are P(cost > 0), P(cost > 1), ...
    The pole at 1 gives (1 + t) / H(1) + H'(1) / H(1)^2. What remains is a rational function R / H, of whose expansion
    one coefficient is computed in log2(t) steps: R(z) / H(z) = R(z) H(-z) / G(z^2), whose even or odd part holds it.

    >>> round(expected_frames(22, np.array([0.0, 0.5, 0.5])), 3)  # of 2 or 3 slots each, while at least 3 are left
    8.32
    """
    from scipy.signal import convolve  # slow to import

    t = math.floor(budget) - len(costs)
    if t < 0:
        return 0.0
    h = np.cumsum(costs[::-1])[::-1] / costs.sum()
    mean = h.sum()
    slope = np.arange(len(h)) @ h / mean**2
    frames = (1 + t) / mean + slope
    r = -convolve([1 / mean + slope, -slope], h)
    r[0] += 1
    r = np.cumsum(np.cumsum(r))[:-2]  # divided by (1 - z)^2
    while t and len(r):
        mirrored = h * (1 - 2 * (np.arange(len(h)) % 2))
        r, h = convolve(r, mirrored)[t % 2 :: 2], convolve(h, mirrored)[::2]
        t //= 2
    return float(frames + (r[0] / h[0] if len(r) else 0.0))
