"""Uniform quantisation to a fixed number of levels, with the same number of bits for each parameter."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Codec, Floats, Key, Shapes
from fedslot.compression.noise import dithered_noise, rounded_noise
from fedslot.compression.packing import check_length, pack, packed_bytes, read_scales, unpack
from fedslot.compression.rounding import LARGEST, SMALLEST, Rounding, offsets, stand_for

Per = Literal["tensor", "row"]
Reach = Literal["fitted", "largest", "mean"]

RARE = 0.05  # levels of tensors that are small: these have scales of their own
FINE = 5  # bits from which the error is too small to matter to the estimate of noise


class FixedLength(Codec):
    """2^b levels of equal distance for each tensor or row, the outermost at plus and minus its reach."""

    def __init__(self, bits: int, rounding: Rounding, per: Per, reach: Reach) -> None:
        self.bits, self.rounding, self.per, self.reach = bits, rounding, per, reach
        self.intervals = 2**bits - 1

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        lengths = segments(shapes, self.per)
        if not len(change):
            return b""
        reaches = reach(np.abs(change), lengths, self.reach, self.intervals)
        steps = np.minimum(reaches * (2 / self.intervals), LARGEST).astype(np.float32)
        steps[steps < SMALLEST] = 0
        inverse = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
        levels = change * np.repeat(inverse, lengths) + np.float32(self.intervals / 2)
        levels = np.floor(levels + offsets(self.rounding, len(change), key))
        header: bytes = steps.astype("<f4").tobytes()
        return header + pack(np.clip(levels, 0, self.intervals), self.bits)

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        check_length(message, self.most_bytes(shapes))
        lengths = segments(shapes, self.per)
        header = 4 * len(lengths)
        steps = read_scales(message[:header])
        levels = unpack(message[header:], int(lengths.sum()), self.bits).astype(np.float32)
        levels -= np.float32(self.intervals / 2)
        return stand_for(levels, self.rounding, key) * np.repeat(steps, lengths)

    def most_bytes(self, shapes: Shapes) -> int:
        lengths = segments(shapes, self.per)
        return 4 * len(lengths) + packed_bytes(int(lengths.sum()), self.bits)

    def noise(self, changes: Floats) -> NDArray[np.float64]:
        if self.rounding == "dither" and (self.reach == "largest" or self.bits >= FINE):
            return dithered_noise(changes)
        return rounded_noise(changes, RARE)


def segments(shapes: Shapes, per: Per) -> NDArray[np.int64]:
    """Return the number of parameters of each tensor or row that has any; a vector is one row.

    >>> segments([(50, 784), (50,)], "row").tolist() == [784] * 50 + [50]
    True
    """
    lengths = []
    for shape in shapes:
        rows = shape[0] if per == "row" and len(shape) > 1 else 1
        size = int(np.prod(shape))
        lengths += [size // rows] * rows if size else []
    return np.array(lengths, np.int64)


def reach(sizes: Floats, lengths: NDArray[np.int64], how: Reach, intervals: int) -> NDArray[np.float64]:
    """Return the reach (n,) of the levels of segments of absolute values (P,).

    `fitted` is that of the least error. With a dither, n intervals from -c to c have the mean square error
    c^2 / 3n^2 + E[(|x| - c)+^2]. It is least where c = 3n^2 E[(|x| - c)+], which is convex in c: Newton's method comes
    there from 0 in few steps.
    """
    starts = np.cumsum(lengths) - lengths
    if how == "largest":
        return np.maximum.reduceat(sizes, starts).astype(np.float64)
    if how == "mean":
        return np.add.reduceat(sizes, starts, dtype=np.float64) / lengths
    weight, found = 3.0 * intervals**2, np.zeros(len(lengths))
    for _ in range(100):
        above = sizes > np.repeat(found.astype(np.float32), lengths)
        sums = np.add.reduceat(np.where(above, sizes, 0), starts, dtype=np.float64)
        counts = np.add.reduceat(above, starts, dtype=np.int64)
        before, found = found, weight * sums / (lengths + weight * counts)
        if (found - before <= 1e-3 * found).all():
            break
    return found
