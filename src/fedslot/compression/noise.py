"""The noise on decoded changes whose median does not tell it: rounded or limited ones, and those with zeros."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Floats

FARTHEST = 4.0  # standard deviations, up to which values may be noise


def rounded_noise(changes: Floats, rare: float = 0.0) -> NDArray[np.float64]:
    """Return the standard deviation (Y,) of noise and error on changes (Y, P) that were rounded to levels.

    rare: levels of a lower count are left out, in shares of the highest count: those of small tensors.
    """
    return np.array([_rounded_noise(np.abs(change), rare) for change in changes])


def _rounded_noise(sizes: Floats, rare: float) -> float:
    """Return the root mean square of those absolute values (P,) that may be noise, the others limited.

    Noise before rounding is normal, and as small as the share of values up to the middle between two levels says: the
    level of the median, and the next one. Without levels, this is the usual estimate from the median.
    """
    levels, counts = np.unique(sizes, return_counts=True)
    levels = levels[counts >= rare * counts.max()]
    middle = (len(sizes) - 1) // 2
    at = int(np.searchsorted(levels, np.partition(sizes, middle)[middle]))
    if at + 1 < len(levels):
        edge = float(levels[at] + levels[at + 1]) / 2
        deviation = edge / NormalDist().inv_cdf((1 + float((sizes <= edge).mean())) / 2)
        limit = max(FARTHEST * deviation, levels[at + 1])
    else:
        limit = FARTHEST * levels[-1]
    return float(np.sqrt(np.mean(np.minimum(sizes, limit) ** 2, dtype=np.float64)))
