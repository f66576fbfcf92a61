"""Uniform quantisation with a scale for each tensor or row."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.compression.codec import Codec, Floats, Key, Shapes
from fedslot.compression.packing import LARGEST, check_length, pack, packed_bytes, read_scales, unpack

SMALLEST = 2.0**-100  # of a step: smaller changes are zeros


class Quantise(Codec):
    """Rounds each parameter to one of 2^b levels of equal distance, from the least to the largest of its tensor.

    bits: b. rounding: `dither` adds random numbers that the PS knows and subtracts again, so that the error is
    uniform, of variance step^2 / 12, and does not depend on the change; `stochastic` rounds up or down at random, with
    a mean error of 0; `nearest` has the least error, but a bias. per: what has a scale of its own, 32 bits each.
    """

    def __init__(
        self,
        *,
        bits: Annotated[int, Field(ge=1, le=16)] = 2,
        rounding: Literal["dither", "stochastic", "nearest"] = "dither",
        per: Literal["tensor", "row"] = "tensor",
    ) -> None:
        self.bits, self.rounding, self.per = bits, rounding, per
        self.levels = 2**bits

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        lengths = segments(shapes, self.per)
        if not len(change):
            return b""
        starts = np.cumsum(lengths) - lengths
        largest = np.maximum.reduceat(np.abs(change), starts)
        steps = np.minimum(largest * (2 / (self.levels - 1)), LARGEST).astype("<f4")
        steps[steps < SMALLEST] = 0
        per_step = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
        moved = change * np.repeat(per_step, lengths) + np.float32((self.levels - 1) / 2)
        moved += self._offsets(len(change), key)
        header: bytes = steps.tobytes()
        return header + pack(np.clip(np.floor(moved), 0, self.levels - 1), self.bits)

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        check_length(message, self.most_bytes(shapes))
        lengths = segments(shapes, self.per)
        count, header = int(lengths.sum()), 4 * len(lengths)
        steps = read_scales(message[:header])
        levels = unpack(message[header:], count, self.bits).astype(np.float32)
        if self.rounding == "dither":
            levels += np.float32(0.5) - self._offsets(count, key)
        levels -= np.float32((self.levels - 1) / 2)
        levels *= np.repeat(steps, lengths)
        return levels

    def most_bytes(self, shapes: Shapes) -> int:
        lengths = segments(shapes, self.per)
        return 4 * len(lengths) + packed_bytes(int(lengths.sum()), self.bits)

    def _offsets(self, count: int, key: Key) -> Floats | np.float32:
        """Return what is added before rounding down, in steps."""
        if self.rounding == "nearest":
            return np.float32(0.5)
        rng = key.shared() if self.rounding == "dither" else key.private()
        return rng.random(count, dtype=np.float32)


def segments(shapes: Shapes, per: str) -> NDArray[np.int64]:
    """Return the number of parameters of each tensor or row; a vector is one row.

    >>> segments([(50, 784), (50,)], "row").tolist() == [784] * 50 + [50]
    True
    """
    lengths = []
    for shape in shapes:
        rows = shape[0] if per == "row" and len(shape) > 1 else 1
        size = int(np.prod(shape))
        lengths += [size // rows] * rows if size else []
    return np.array(lengths, np.int64)
