"""Which k of P parameters are sent, as bytes: a bitmap, Elias-Fano coding, or entropy coding.

Elias-Fano coding writes the low digits of each index as they are, and the high digits of all as one bitmap in which
each index is a one, and each step to the next value of the high digits a zero. Its length depends on k and P alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.entropy_coding import decode_subset, encode_subset, subset_bytes
from fedslot.compression.packing import check_length, pack, packed_bytes, unpack

Indices = NDArray[np.int64]
Coding = Literal["none", "range"]


def pack_indices(indices: Indices, count: int, coding: Coding) -> bytes:
    """Return increasing indices (k,) below `count` as bytes.

    >>> len(pack_indices(np.array([3, 500, 70000]), 100_000, "none"))
    8
    """
    if coding == "range":
        return encode_subset(_ones(indices, count))
    low = _low_digits(len(indices), count)
    if low is None:
        return pack(_ones(indices, count), 1)
    steps = _ones((indices >> low) + np.arange(len(indices)), _steps(len(indices), count, low))
    return pack(steps, 1) + pack(indices & (2**low - 1), low)


def unpack_indices(message: bytes, k: int, count: int, coding: Coding) -> Indices:
    """Return the indices (k,) that `pack_indices` wrote; refuse what it never writes."""
    check_length(message, indices_bytes(k, count, coding))
    low = None if coding == "range" else _low_digits(k, count)
    length = count if low is None else _steps(k, count, low)
    start = packed_bytes(length, 1)
    ones = decode_subset(message, k, count) if coding == "range" else unpack(message[:start], length, 1)
    indices = np.flatnonzero(ones)
    if len(indices) != k:
        raise ValueError(f"{len(indices)} indices, not {k}")
    if low is not None:
        indices = ((indices - np.arange(k)) << low) + unpack(message[start:], k, low)
    if (np.diff(indices) <= 0).any() or (indices >= count).any():
        raise ValueError("indices that do not increase or are too large")
    return indices


def indices_bytes(k: int, count: int, coding: Coding) -> int:
    """Return the length of packed indices."""
    if coding == "range":
        return subset_bytes(k, count)
    low = _low_digits(k, count)
    return packed_bytes(count, 1) if low is None else packed_bytes(_steps(k, count, low), 1) + packed_bytes(k, low)


def _ones(places: Indices, length: int) -> NDArray[np.uint8]:
    bitmap = np.zeros(length, np.uint8)
    bitmap[places] = 1
    return bitmap


def _steps(k: int, count: int, low: int) -> int:
    """Return the length of the bitmap of the high digits."""
    return k + (max(count - 1, 0) >> low)


def _low_digits(k: int, count: int) -> int | None:
    """Return the number of low digits in the shortest Elias-Fano coding; None if a bitmap is shorter."""
    bits, low = min((_steps(k, count, low) + k * low, low) for low in range(1, 32))
    return low if bits < count else None
