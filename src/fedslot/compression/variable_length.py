"""Uniform quantisation with entropy coding: the finest step whose message has the bits that it may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters
from fedslot.compression.entropy_coding import LARGEST_NUMBER, Integers, Numbers, decode_numbers
from fedslot.compression.noise import dithered_noise, rounded_noise
from fedslot.compression.packing import read_scales
from fedslot.compression.rounding import LARGEST, SMALLEST, Rounding, offsets

LEAST_BYTES = 96  # for the tables of small models
WORDS = 64  # bits that the coder needs at the end
CONTEXTS = 4  # classes of dithers: which numbers are likely depends on the dither


class VariableLength(Codec):
    """Whole multiples of one step for all parameters, entropy coded; an empty message stands for no change."""

    def __init__(self, bits: float, rounding: Rounding) -> None:
        self.bits, self.rounding = bits, rounding

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        largest = min(float(np.abs(change).max(initial=0)), LARGEST / 4)
        if largest < SMALLEST:
            return b""
        plan = _plan(self.rounding, len(change), key)
        change = np.clip(change, -largest, largest)[plan.order]

        def numbers(step: float) -> Numbers:
            levels = np.floor(change / np.float32(step) + plan.added).astype(np.int32)
            return Numbers.of(levels * plan.sides, plan.lengths)

        most = self.most_bytes(shapes)
        limits = max(2 * largest / LARGEST_NUMBER, SMALLEST), 4 * largest
        step = finest(lambda step: numbers(step).bits, 8 * (most - 4) - WORDS, change, limits)
        while step <= limits[1]:
            message: bytes = np.float32(step).astype("<f4").tobytes() + numbers(step).encode()
            if len(message) <= most:
                return message
            step *= 1.005
        return b""  # so few bits that zeros have the least error

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        count, most = parameters(shapes), self.most_bytes(shapes)
        if not message:
            return np.zeros(count, np.float32)
        if not 4 < len(message) <= most:
            raise ValueError(f"{len(message)} bytes, not 0 or from 5 to {most}")
        plan, change = _plan(self.rounding, count, key), np.empty(count, np.float32)
        levels = (decode_numbers(message[4:], plan.lengths) * plan.sides).astype(np.float32)
        if self.rounding == "dither":
            levels += np.float32(0.5) - plan.added
        change[plan.order] = levels * read_scales(message[:4])
        return change

    def most_bytes(self, shapes: Shapes) -> int:
        return max(int(self.bits * parameters(shapes) / 8), LEAST_BYTES)

    def noise(self, changes: Floats) -> NDArray[np.float64]:
        return dithered_noise(changes) if self.rounding == "dither" else rounded_noise(changes)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The order in which numbers are coded: one context after the other.

    order: (P,) indices of the numbers. added: (P,) in this order, what is added before rounding. sides: (P,) in this
    order, the signs of dithers: a change is as likely as its negative. lengths: of the contexts.
    """

    order: NDArray[np.intp]
    added: Floats
    sides: Integers
    lengths: list[int]


@lru_cache(maxsize=1)  # the simulator decodes at once what it encodes
def _plan(rounding: Rounding, count: int, key: Key) -> _Plan:
    added = offsets(rounding, count, key)
    if rounding != "dither":
        return _Plan(np.arange(count), added, np.ones(count, np.int32), [count, *[0] * (CONTEXTS - 1)])
    centred = 2 * added - 1
    contexts = np.minimum((np.abs(centred) * CONTEXTS).astype(np.uint8), CONTEXTS - 1)
    order = np.argsort(contexts, kind="stable")
    sides = np.where(centred[order] < 0, np.int32(-1), np.int32(1))
    return _Plan(order, added[order], sides, np.bincount(contexts, minlength=CONTEXTS).tolist())


def finest(size: Callable[[float], float], most: float, change: Floats, limits: tuple[float, float]) -> float:
    """Return the step within limits for which the size of a change (P,) is just below the most, by secants.

    Of normal numbers with b bits, a fine step is 2^(2 - b) of their standard deviation, and a coarse one about 2.6 / b:
    few numbers are not 0 then, and half of the step doubles their number.
    """
    count, wanted, ends = len(change), 0.9995 * most, np.log2(limits)
    root_mean_square = float(np.linalg.norm(change.astype(np.float64))) / np.sqrt(count)
    bits = most / count
    first = 2 - bits if bits > 1.5 else np.log2(2.6 / bits)
    step = float(np.clip(np.log2(root_mean_square) + first, *ends))
    slope, before = -count * min(1.0, 0.7 * bits), None
    for _ in range(10):
        here = (step, size(2.0**step))
        if 0 <= most - here[1] < 1e-3 * most:
            break
        if before is not None and here[0] != before[0]:
            slope = float(np.clip((here[1] - before[1]) / (here[0] - before[0]), -1.2 * count, -0.05 * count))
        before, step = here, float(np.clip(step + (wanted - here[1]) / slope, *ends))
    return float(np.float32(2.0**step))
