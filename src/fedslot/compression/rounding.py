"""Rounding with a dither, at random, or to the nearest level."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedslot.compression.codec import Floats, Key

Rounding = Literal["dither", "stochastic", "nearest"]

SMALLEST = 2.0**-100  # of a step: changes below it are zeros
LARGEST = 2.0**100  # of a step: with it, all that is decoded is finite


def offsets(rounding: Rounding, count: int, key: Key) -> Floats:
    """Return what is added to numbers (count,) before they are rounded down, from 0 to below 1."""
    if rounding == "nearest":
        return np.full(count, 0.5, np.float32)
    rng = key.shared() if rounding == "dither" else key.private()
    return rng.random(count, dtype=np.float32)


def stand_for(levels: Floats, rounding: Rounding, key: Key) -> Floats:
    """Return the numbers that levels (n,) stand for: a dither is known, and is subtracted again."""
    if rounding != "dither":
        return levels
    return levels + (np.float32(0.5) - offsets(rounding, len(levels), key))
