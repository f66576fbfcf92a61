"""The number of frames that a time budget lasts: a frame begins only if all of its slots are left."""

from __future__ import annotations

import math

import numpy as np

from fedslot.access.contenders import Floats


def expected_frames(budget: float, costs: Floats) -> float:
    """Return the expected number of frames in a budget of slots.

    costs: (1 + M,) probabilities that a frame of M uplink slots costs 1, 2, ..., 1 + M slots.

    The number f(b) of frames in b slots follows the renewal equation f(b) = 1 + sum of P(cost = c) f(b - c), where
    f(b) = 0 for b < 1 + M.

    >>> round(expected_frames(22, np.array([0.0, 0.5, 0.5])), 3)  # of 2 or 3 slots each, while at least 3 are left
    8.32
    """
    from scipy.signal import lfilter  # slow to import

    starts = math.floor(budget) - len(costs) + 1  # numbers of slots left with which a frame may begin
    if starts <= 0:
        return 0.0
    return float(lfilter([1.0], np.concatenate([[1.0], -costs]), np.ones(starts))[-1])
