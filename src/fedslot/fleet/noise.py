"""Noise laws: the standard deviation of the noise on each UE's update, by the rank of the UE.

A law of your own is a function like these, `fleet.noise_law: package.module:function`; further parameters are its
options. `fleet.noise_order` says which UE has which rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.float64]


def linear(ues: int, level: float) -> Levels:
    """Return k * sigma / K for UE k of 0..K-1, as in the paper."""
    return np.arange(ues) * level / ues  # sigma_k = (k - 1) sigma / K for k = 1..K


def half(ues: int, level: float) -> Levels:
    """Return 0 for one half of the UEs and sigma for the other."""
    return np.where(np.arange(ues) < ues // 2, 0.0, level)


def equal(ues: int, level: float) -> Levels:
    """Return sigma for all UEs."""
    return np.full(ues, level)
