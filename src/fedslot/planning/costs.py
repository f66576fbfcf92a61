"""Expected cost of a frame by its last received slot, exact and as the paper approximates it (eq. 5)."""

from __future__ import annotations

import numpy as np

from fedslot.planning.contenders import Floats


def expected_cost_max(pull: int, last_slot_mean: float, nothing: float, last_pull_mean: float) -> float:
    """Return the expected `cost_max`: 1 + Q + X if a push was received, else 1 + the last used pull slot.

    last_slot_mean: E[X], X being the last received push slot, 0 if there is none.
    nothing: probability that no push is received.
    last_pull_mean: expected last pull slot whose UE is ready, 0 if there is none.
    """
    # if no push is received, the last pull slot whose UE was ready ends the frame
    return 1 + pull * (1 - nothing) + last_slot_mean + nothing * last_pull_mean


def last_success_mean(trials: Floats | float, p: Floats | float) -> Floats:
    """Return the expected index of the last success of n independent trials, 0 if there is none.

    It is the sum of z p (1-p)^(n-z) over z = 1..n, which is n - (1-p) (1 - (1-p)^n) / p. If n p is small these two
    terms cancel, and the power series in p, with coefficients (-1)^(j+1) C(n+1,j+1), is used instead.

    >>> last_success_mean(3, 0.5).tolist(), last_success_mean(3, 1).tolist(), last_success_mean(3, 0).tolist()
    (2.125, 3.0, 0.0)
    """
    n, chance = np.asarray(trials, dtype=float), np.asarray(p, dtype=float)
    several = n * chance > 0.01
    usual, few = np.where(several & (chance < 1), chance, 0.5), np.where(several, 0.0, chance)
    closed = np.where(chance < 1, n + (1 - usual) / usual * np.expm1(n * np.log1p(-usual)), n)
    series, term = np.zeros_like(n * few), n * (n + 1) / 2 * few
    for j in range(1, 9):
        series = series + term
        term = -term * few * (n - j) / (j + 2)
    return np.where(several, closed, series)


def paper_push_costs(slots: Floats, pmf: Floats) -> Floats:
    """Return the push part of the paper's expected cost (eq. 5) for several numbers of push slots, (S,).

    It takes successes as independent and slots as continuous. The printed success probability is undefined without
    push slots and above 1 without contenders; nothing can be received then, and the cost is 0.

    pmf: entry n is the probability of n contenders, over which the cost is averaged.
    """
    numbers = np.flatnonzero(pmf[1:]) + 1
    n: Floats = numbers.astype(float)
    costs = np.zeros(len(slots))
    count = slots[slots > 0, None]
    if n.size and count.size:
        p = (1 - 1 / count) ** (n - 1)
        # The factors of Q add up to 1. With l_i = (L+1)(N-i+1)/(N+1), the rest is (L+1)/(N+1) times the expected last
        # of N independent successes.
        costs[slots > 0] = ((count + 1) / (n + 1) * last_success_mean(n, p)) @ pmf[numbers]
    return costs
