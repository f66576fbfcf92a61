"""The noise on decoded changes, if their median alone does not tell it: dithered, rounded or limited, or with zeros."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Floats

NORMAL = NormalDist()
FARTHEST = 4.0  # standard deviations, up to which values may be noise
NORMAL_RATIO = NORMAL.inv_cdf(0.875) / NORMAL.inv_cdf(0.75)  # of the quartile 3/4 of absolute values to their median
UNIFORM_RATIO = 1.5


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
        deviation = edge / NORMAL.inv_cdf((1 + float((sizes <= edge).mean())) / 2)
        limit = max(FARTHEST * deviation, levels[at + 1])
    else:
        limit = FARTHEST * levels[-1]
    return float(np.sqrt(np.mean(np.minimum(sizes, limit) ** 2, dtype=np.float64)))


def median_noise(changes: Floats) -> NDArray[np.float64]:
    """Return the standard deviation (Y,) of noise on changes (Y, P) most of which are small."""
    medians: NDArray[np.float64] = np.median(np.abs(changes), axis=1).astype(np.float64)
    return medians / NORMAL.inv_cdf(0.75)


def dithered_noise(changes: Floats) -> NDArray[np.float64]:
    """Return the standard deviation (Y,) of noise and a uniform error on changes (Y, P) most of which are small.

    The ratio of the quartiles of absolute values is 1.50 if the error prevails, and 1.71 if normal noise does. Their
    standard deviations are 1.15 and 1.48 times the median; interpolated between, that of a mixture is right within 3%.
    """
    count = changes.shape[1]
    places = [count // 2, 3 * count // 4]
    medians, quartiles = np.partition(np.abs(changes), places, axis=1)[:, places].T.astype(np.float64)
    ratios = np.divide(quartiles, medians, out=np.full(len(changes), np.inf), where=medians > 0)
    share = np.clip((NORMAL_RATIO - ratios) / (NORMAL_RATIO - UNIFORM_RATIO), 0, 1)
    noise: NDArray[np.float64] = medians * ((1 - share) / NORMAL.inv_cdf(0.75) + share * 2 / 3**0.5)
    return noise


def tail_noise(changes: Floats, kept: int) -> NDArray[np.float64]:
    """Return the standard deviation (Y,) of noise and error on changes (Y, P) of which the `kept` largest remain.

    Noise is normal, and such that as many values are larger than the lower quartile of those that remain.
    """
    count = changes.shape[1]
    larger = kept - kept // 4
    quartiles = np.partition(np.abs(changes), count - larger, axis=1)[:, count - larger]
    threshold = NORMAL.inv_cdf(1 - kept / count / 2)
    energy = kept / count + 2 * threshold * NORMAL.pdf(threshold)
    noise: NDArray[np.float64] = quartiles.astype(np.float64) * energy**0.5
    return noise / NORMAL.inv_cdf(1 - (larger - 0.5) / count / 2)
