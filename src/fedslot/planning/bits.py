"""The size of updates: with how many bits per parameter they make the most progress per slot.

The error of an update is its deviation from the progress that all UEs have in common, its noise, and the error of its
quantisation. With b bits, the last is d(b) times what is quantised, which is hardly more than the noise. So an error
has the mean square 1 + s d(b), relative to that without quantisation, where s is the share of the noise in it.

A frame with Y updates of error r relative to the progress makes progress in proportion to Y / (Y + r), and takes
D + Y b / 32 slots, D for the downlink. The best Y makes 1 / (sqrt(D) + sqrt(r b / 32))^2 of it per slot: the most where
r b is least. So the best b has the least b (1 + s d(b)), whatever D, the progress, and the rate of the UE's link: on a
link of half the rate, an update of any size takes twice the slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedslot.support.checks import check_number

FEWEST, MOST = 0.3, 16.0  # bits: fewer hold no noisy update of a small model
ALMOST = 1.1  # of the least cost, up to which a size is as good
FARTHEST = 9.0  # standard deviations

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BestBits:
    """Bits per parameter of updates that are quantised with a dither and entropy coded.

    noise_share: of an update's error, the mean square that is noise. best: with the most progress per uplink slot.
    low, high: with at least 10 / 11 of it.
    """

    noise_share: float
    best: float
    low: float
    high: float


def best_bits(noise_share: float) -> BestBits:
    """Return the bits per parameter with which updates make the most progress per slot.

    >>> for share in (1.0, 0.4, 0.2):
    ...     size = best_bits(share)
    ...     print(f"{size.best:.2f} bits, almost as good from {size.low:.2f} to {size.high:.2f}")
    0.76 bits, almost as good from 0.49 to 1.21
    0.47 bits, almost as good from 0.31 to 0.74
    0.34 bits, almost as good from 0.30 to 0.52
    """
    check_number("noise_share", noise_share, 0, 1)
    bits = np.geomspace(FEWEST, MOST, 500)
    costs = update_cost(bits, noise_share)
    almost = bits[costs <= ALMOST * costs.min()]
    return BestBits(noise_share, *map(float, (bits[costs.argmin()], almost[0], almost[-1])))


def update_cost(bits: Floats | float, noise_share: float) -> Floats:
    """Return b (1 + s d(b)), to which the uplink slots that an amount of progress takes are in proportion.

    >>> [round(float(update_cost(bits, 0.4)), 2) for bits in (0.25, 0.5, 1, 2, 4, 32)]
    [1.16, 0.95, 1.22, 2.08, 4.01, 32.0]
    """
    b = np.asarray(bits, dtype=np.float64)
    return b * (1 + noise_share * quantisation_error(b))


def quantisation_error(bits: Floats | float) -> Floats:
    """Return d(b), the mean square error of dithered and entropy coded normal numbers of variance 1.

    It is step^2 / 12, and takes the information between the numbers and their sums with uniform numbers (Ziv, 1985).

    >>> [round(float(quantisation_error(bits)), 4) for bits in (0.5, 1, 2, 4)]
    [2.2644, 0.5514, 0.0976, 0.0056]
    """
    rates, errors = _curve()
    return np.exp(np.interp(np.asarray(bits, dtype=np.float64), rates, errors))


@lru_cache
def _curve() -> tuple[Floats, Floats]:
    """Return rates in bits, in increasing order, and logarithms of the errors that go with them."""
    steps = np.geomspace(2.0**6, 2.0**-15, 400)
    grid = np.linspace(0, 1, 4001)
    rates = []
    for step in steps:
        sums = grid * (FARTHEST + step / 2)
        density = (ndtr(sums + step / 2) - ndtr(sums - step / 2)) / step
        entropy = -np.trapezoid(density * np.log2(np.maximum(density, 1e-300)), 2 * sums)
        rates.append(entropy - np.log2(step))
    return np.array(rates), np.log(steps**2 / 12)
