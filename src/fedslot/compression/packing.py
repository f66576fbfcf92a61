"""Whole numbers of a few bits as bytes, and the checks of what comes back from the air."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Floats

LARGEST = 2.0**100  # of a scale: what is decoded with it stays finite


def pack(numbers: NDArray[np.integer], bits: int) -> bytes:
    """Return whole numbers (n,) of at most 16 bits each as ceil(n bits / 8) bytes.

    >>> pack(np.array([1, 0, 3, 2]), bits=2).hex()
    '4e'
    """
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint16)
    ones = (numbers.astype(np.uint16)[:, None] >> shifts) & np.uint16(1)
    return np.packbits(ones.astype(np.uint8)).tobytes()


def unpack(message: bytes, count: int, bits: int) -> NDArray[np.uint16]:
    """Return the whole numbers (count,) that `pack` wrote; refuse a message of another length.

    >>> unpack(bytes.fromhex("4e"), count=4, bits=2).tolist()
    [1, 0, 3, 2]
    """
    check_length(message, packed_bytes(count, bits))
    ones = np.unpackbits(np.frombuffer(message, np.uint8))
    if ones[count * bits :].any():
        raise ValueError("bits beyond the last number")
    numbers = np.zeros(count, np.uint16)
    for digit in ones[: count * bits].reshape(count, bits).T:
        numbers <<= np.uint16(1)
        numbers |= digit
    return numbers


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of packed whole numbers."""
    return -(-count * bits // 8)


def check_length(message: bytes, length: int) -> None:
    """Refuse a message of another length."""
    if len(message) != length:
        raise ValueError(f"{len(message)} bytes, not {length}")


def read_scales(message: bytes) -> Floats:
    """Return the scales (n,) at the beginning of a message, 4 bytes each; refuse those out of range."""
    scales = np.frombuffer(message, "<f4").astype(np.float32)
    if not ((scales >= 0) & (scales <= LARGEST)).all():  # NaN neither
        raise ValueError("a scale is out of range")
    return scales
