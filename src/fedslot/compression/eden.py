"""EDEN and DRIVE: quantisation after a random rotation (Vargaftik et al., 2021 and 2022).

Rotated, any change has nearly normal numbers, for which the best levels are known. Decoding rotates back, so that the
error is spread over all parameters, whatever the change was.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import exp, pi, sqrt
from statistics import NormalDist
from typing import Annotated

import numpy as np
from pydantic import Field

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters
from fedslot.compression.packing import check_length, pack, packed_bytes, read_scales, unpack
from fedslot.compression.rounding import LARGEST, SMALLEST

LEAST_BLOCK = 128  # fewer numbers are far from normal after a rotation
FACTOR = 6  # binary digits of the index that a matrix product transforms at once


class Eden(Codec):
    """Rotates a change at random, and writes the nearest of 2^b levels for normal numbers.

    The scale makes decoded changes right on average over rotations. The rotation is a Hadamard transform with random
    signs, which the PS knows, of blocks whose lengths are powers of two; each block has a scale of 32 bits.
    bits: b.
    """

    def __init__(self, *, bits: Annotated[int, Field(ge=1, le=8)] = 2) -> None:
        self.bits = bits

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        signs = self._signs(len(change), key)
        padded = np.zeros(len(signs), np.float32)
        padded[: len(change)] = np.clip(change, -LARGEST, LARGEST)
        padded *= signs
        levels, edges = lloyd_max(self.bits)
        chosen, scales = np.empty(len(signs), np.uint8), []
        for block in _slices(len(change)):
            rotated = hadamard(padded[block])
            norm = float(np.linalg.norm(rotated.astype(np.float64)))
            if norm < SMALLEST:
                chosen[block] = 0
                scales.append(0.0)
                continue
            rotated *= np.float32(sqrt(len(rotated)) / norm)
            chosen[block] = np.searchsorted(edges, rotated)
            agreement = float(rotated @ levels[chosen[block]]) / len(rotated)
            scales.append(min(norm / sqrt(len(rotated)) / agreement, LARGEST))
        header: bytes = np.array(scales, "<f4").tobytes()
        return header + pack(chosen, self.bits)

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        check_length(message, self.most_bytes(shapes))
        count = parameters(shapes)
        signs, blocks = self._signs(count, key), _slices(count)
        scales = read_scales(message[: 4 * len(blocks)])
        change = lloyd_max(self.bits)[0][unpack(message[4 * len(blocks) :], len(signs), self.bits)]
        for block, scale in zip(blocks, scales, strict=True):
            change[block] = hadamard(change[block]) * scale
        change *= signs
        return change[:count]

    def most_bytes(self, shapes: Shapes) -> int:
        lengths = blocks(parameters(shapes))
        return 4 * len(lengths) + packed_bytes(sum(lengths), self.bits)

    def _signs(self, count: int, key: Key) -> Floats:
        size = sum(blocks(count))
        return (2 * key.shared().integers(0, 2, size, dtype=np.int8) - 1).astype(np.float32)


class Drive(Eden):
    """EDEN with one bit: the signs after a random rotation."""

    def __init__(self) -> None:
        super().__init__(bits=1)


def blocks(count: int) -> list[int]:
    """Return the lengths of the blocks that are rotated: powers of two, the last one with zeros at the end.

    >>> blocks(40785)
    [32768, 4096, 2048, 1024, 512, 256, 128]
    """
    lengths = []
    while count > 0:
        lengths.append(max(2 ** (count.bit_length() - 1), LEAST_BLOCK))
        count -= lengths[-1]
    return lengths


def _slices(count: int) -> list[slice]:
    ends = np.cumsum([0, *blocks(count)])
    return [slice(*each) for each in pairwise(ends)]


def hadamard(vector: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of a vector of 2^k numbers, which keeps its norm and is its own inverse.

    >>> hadamard(np.array([3, 1, 0, 0], np.float32)).tolist()
    [2.0, 1.0, 2.0, 1.0]
    """
    digits = len(vector).bit_length() - 1
    while digits:
        factor = _matrix(min(digits, FACTOR))
        vector = (factor @ vector.reshape(-1, len(factor)).T).ravel()  # the next digits of the index come last
        digits -= min(digits, FACTOR)
    return vector


@lru_cache
def _matrix(digits: int) -> Floats:
    rows = np.arange(2**digits)
    odd = np.bitwise_count(rows[:, None] & rows) % 2
    return ((1 - 2.0 * odd) / 2 ** (digits / 2)).astype(np.float32)


@lru_cache
def lloyd_max(bits: int) -> tuple[Floats, Floats]:
    """Return the 2^b levels for normal numbers of variance 1 that have the least error, and the edges between them.

    >>> [f"{level:.3f}" for level in lloyd_max(2)[0]]
    ['-1.510', '-0.453', '0.453', '1.510']
    """
    normal, count = NormalDist(), 2**bits
    levels = np.array([sqrt(3) * normal.inv_cdf((i + 0.5) / count) for i in range(count)])
    for _ in range(300):  # each level becomes the mean of its cell
        edges = (levels[1:] + levels[:-1]) / 2
        density = [0.0, *(exp(-(edge**2) / 2) / sqrt(2 * pi) for edge in edges), 0.0]
        mass = [0.0, *(normal.cdf(edge) for edge in edges), 1.0]
        levels = -np.diff(density) / np.diff(mass)
    edges = (levels[1:] + levels[:-1]) / 2
    return levels.astype(np.float32), edges.astype(np.float32)
