"""Entropy coding of whole numbers, most of which are small, by a range coder with its tables in the message.

-1, 0 and 1 are symbols of their own, with a table for each context. Other numbers are written as floats are: a symbol
for the size to 4 binary digits, then the other digits and the sign as they are. Tables hold the counts of symbols,
to 4 digits as well: whole numbers, from which both ends compute the same model on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.support.extras import require

Integers = NDArray[np.int32]

OPTION = "coding: range"
LARGEST_NUMBER = 2**24  # of an absolute value
LARGEST_CODE = 176  # of such a number
LARGEST_COUNT = 231  # the code of the largest count, 2^31 - 1
FAR = 3  # the symbol of numbers beyond 1
DIGITS = 4
OCTAVE = 2 ** (DIGITS - 1)  # number of codes for each power of two


def shorten(numbers: NDArray[np.integer]) -> tuple[Integers, Integers]:
    """Return the codes of whole numbers >= 0 that keep their first 4 binary digits, and how many digits are left out.

    >>> codes, left = shorten(np.array([0, 7, 15, 16, 17, 35]))
    >>> codes.tolist(), left.tolist()
    ([0, 7, 15, 16, 16, 24], [0, 0, 0, 1, 1, 2])
    """
    left = np.maximum(np.frexp(numbers)[1].astype(np.int32) - DIGITS, 0)
    return OCTAVE * left + (numbers >> left).astype(np.int32), left


def least(codes: Integers) -> tuple[Integers, Integers]:
    """Return the least number of each code, and how many digits it leaves out.

    >>> least(np.array([7, 15, 16, 24]))[0].tolist()
    [7, 15, 16, 32]
    """
    left = np.maximum(codes // OCTAVE - 1, 0)
    return (codes - OCTAVE * left) << left, left


@dataclass(frozen=True, eq=False)
class Numbers:
    """Whole numbers as symbols.

    near: (n,) -1, 0 and 1 as 0, 1 and 2; FAR for others. lengths: the number of symbols in each context, one context
    after the other. codes, left: of the far numbers, less 2. digits: those left out, then the sign.
    """

    near: Integers
    lengths: Sequence[int]
    codes: Integers
    left: Integers
    digits: Integers

    @classmethod
    def of(cls, numbers: Integers, lengths: Sequence[int]) -> Numbers:
        """Return numbers (n,) as symbols; lengths: how many belong to each context, one context after the other."""
        sizes = np.abs(numbers)
        far = np.flatnonzero(sizes > 1)
        near = numbers + 1
        near[far] = FAR
        codes, left = shorten(sizes[far] - 2)
        digits = 2 * (sizes[far] - 2 - least(codes)[0]) + (numbers[far] < 0)
        return cls(near, lengths, codes, left, digits.astype(np.int32))

    @cached_property
    def _counts(self) -> list[NDArray[np.int64]]:
        """Counts of symbols: in each context, then of codes."""
        return [*(np.bincount(near, minlength=4) for near in self._parts), np.bincount(self.codes, minlength=2)]

    @property
    def _parts(self) -> list[Integers]:
        """The near symbols of each context."""
        return np.split(self.near, np.cumsum(self.lengths)[:-1])

    @property
    def bits(self) -> float:
        """The size of `encode`, but for the last word of the coder."""
        size = 8.0 * (1 + sum(map(len, self._counts))) + float((self.left + 1).sum())
        for counts in self._counts:
            weights = _weights(shorten(counts)[0])
            size += float(counts @ np.log2(weights.sum() / weights))
        return size

    def encode(self) -> bytes:
        """Return the tables and the symbols as bytes."""
        tables = [shorten(counts)[0] for counts in self._counts]
        coding = _constriction()
        coder = coding.queue.RangeEncoder()
        for near, table in zip(self._parts, tables[:-1], strict=True):
            coder.encode(near, _model(table))
        if len(self.codes):
            coder.encode(self.codes, _model(tables[-1]))
            coder.encode(self.digits, coding.model.Uniform(), 2 << self.left)
        header = np.concatenate([[len(tables[-1])], *tables]).astype(np.uint8)
        words: bytes = coder.get_compressed().astype("<u4").tobytes()
        return header.tobytes() + words


def decode_numbers(message: bytes, lengths: Sequence[int]) -> Integers:
    """Return the numbers (n,) that `Numbers.encode` wrote; refuse what it never writes."""
    count = len(lengths)
    header = np.frombuffer(message[: 1 + 4 * count + 255], np.uint8).astype(np.int32)
    start = 1 + 4 * count + (int(header[0]) if len(header) else 0)
    if len(message) < start or (len(message) - start) % 4:
        raise ValueError(f"{len(message)} bytes are not tables and words")
    near, far = header[1 : 1 + 4 * count].reshape(count, 4), header[1 + 4 * count : start]
    if not 2 <= len(far) <= LARGEST_CODE + 1 or header[:start].max() > LARGEST_COUNT:
        raise ValueError("a table is out of range")
    coding = _constriction()
    coder = coding.queue.RangeDecoder(np.frombuffer(message[start:], "<u4").astype(np.uint32))
    try:
        parts = [coder.decode(_model(table), length) for table, length in zip(near, lengths, strict=True)]
        numbers: Integers = np.concatenate(parts)
        beyond = np.flatnonzero(numbers == FAR)
        numbers -= 1
        if len(beyond):
            sizes, left = least(coder.decode(_model(far), len(beyond)))
            digits = coder.decode(coding.model.Uniform(), 2 << left)
            numbers[beyond] = (sizes + 2 + digits // 2) * (1 - 2 * (digits % 2))
    except AssertionError as error:
        raise ValueError(f"words do not fit to the tables: {error}") from None
    if not coder.maybe_exhausted():
        raise ValueError("words beyond the last number")
    return numbers


def encode_subset(members: NDArray[np.uint8]) -> bytes:
    """Return which of n elements are members (n,) as bytes, as many as `subset_bytes` says."""
    coder = _constriction().queue.RangeEncoder()
    model = _subset_model(int(members.sum()), len(members))
    coder.encode(members.astype(np.int32), model)
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words.ljust(subset_bytes(int(members.sum()), len(members)), b"\0")


def decode_subset(message: bytes, k: int, count: int) -> Integers:
    """Return which of `count` elements `encode_subset` wrote as members, with ones and zeros."""
    coder = _constriction().queue.RangeDecoder(np.frombuffer(message, "<u4").astype(np.uint32))
    try:
        members: Integers = coder.decode(_subset_model(k, count), count)
    except AssertionError as error:
        raise ValueError(f"words do not fit: {error}") from None
    return members


def subset_bytes(k: int, count: int) -> int:
    """Return the length of a coded subset of k of `count` elements: its entropy, and two words more."""
    entropy = sum(n * log2(count / n) for n in (k, count - k) if n)
    return 4 * ceil(1.001 * entropy / 32 + 2)


def _subset_model(k: int, count: int) -> Any:
    counts = np.array([count - k, k] if count else [1, 1], np.float64)
    return _constriction().model.Categorical(counts, perfect=False)


def _weights(table: Integers) -> NDArray[np.float64]:
    return least(table)[0].astype(np.float64) + 1


def _model(table: Integers) -> Any:
    return _constriction().model.Categorical(_weights(table), perfect=False)


def _constriction() -> Any:
    require(OPTION, "compression")
    import constriction

    return constriction.stream
