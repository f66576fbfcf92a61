"""Whole numbers of a few bits as bytes, and the checks of what comes back from the air."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.compression.codec import Floats

LARGEST = 2.0**100  # of a number or scale: what is decoded with it stays finite


def pack(numbers: NDArray[np.integer], bits: int) -> bytes:
    """Return whole numbers (n,) of at most 32 bits each as ceil(n bits / 8) bytes.

    >>> pack(np.array([1, 0, 3, 2]), bits=2).hex()
    '4e'
    """
    kind = np.dtype(np.uint16 if bits <= 16 else np.uint32)
    shifts = np.arange(bits)[::-1].astype(kind)
    ones = np.right_shift.outer(numbers.astype(kind), shifts) & 1
    return np.packbits(ones.astype(np.uint8)).tobytes()


def unpack(message: bytes, count: int, bits: int) -> NDArray[np.uint32]:
    """Return the whole numbers (count,) that `pack` wrote; refuse a message of another length.

    >>> unpack(bytes.fromhex("4e"), count=4, bits=2).tolist()
    [1, 0, 3, 2]
    """
    check_length(message, packed_bytes(count, bits))
    ones = np.unpackbits(np.frombuffer(message, np.uint8))
    if ones[count * bits :].any():
        raise ValueError("bits beyond the last number")
    numbers = np.zeros(count, np.uint32)
    for digit in ones[: count * bits].reshape(count, bits).T:
        numbers <<= np.uint32(1)
        numbers |= digit
    return numbers


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of packed whole numbers."""
    return -(-count * bits // 8)


def check_length(message: bytes, length: int) -> None:
    """Refuse a message of another length."""
    if len(message) != length:
        raise ValueError(f"{len(message)} bytes, not {length}")


def read_values(message: bytes) -> Floats:
    """Return numbers (n,) of 4 bytes each; refuse those out of range."""
    values = np.frombuffer(message, "<f4").astype(np.float32)
    if not (np.abs(values) <= LARGEST).all():  # NaN neither
        raise ValueError("a scale or number is out of range")
    return values


def read_scales(message: bytes) -> Floats:
    """Return the scales (n,) at the beginning of a message, 4 bytes each; refuse those out of range."""
    scales = read_values(message)
    if (scales < 0).any():
        raise ValueError("a scale below 0")
    return scales
