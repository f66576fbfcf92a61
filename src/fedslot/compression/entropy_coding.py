"""Entropy coding of whole numbers, most of which are small, by a range coder with its tables in the message.

-1, 0 and 1 are symbols of their own, with a table for each context. Other numbers are written as floats are: a symbol
for the size to 4 binary digits, then the other digits and the sign as they are. Tables hold the counts of symbols,
to 4 digits as well: whole numbers, from which both ends compute the same model on every processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
    ([0, 7, 15, 16, 16, 25], [0, 0, 0, 1, 1, 2])
    """
    left = np.maximum(np.frexp(numbers)[1].astype(np.int32) - DIGITS, 0)
    return OCTAVE * left + (numbers >> left).astype(np.int32), left


def least(codes: Integers) -> tuple[Integers, Integers]:
    """Return the least number of each code, and how many digits it leaves out.

    >>> least(np.array([7, 15, 16, 25]))[0].tolist()
    [7, 15, 16, 36]
    """
    left = np.maximum(codes // OCTAVE - 1, 0)
    return (codes - OCTAVE * left) << left, left


@dataclass(frozen=True, eq=False)
class Numbers:
    """Whole numbers as symbols.

    near: (n,) -1, 0 and 1 as 0, 1 and 2; FAR for others. contexts: (n,) of each number, below `count`.
    codes, left: of the far numbers, less 2. digits: those left out, then the sign.
    """

    near: Integers
    contexts: Integers
    count: int
    codes: Integers
    left: Integers
    digits: Integers

    @classmethod
    def of(cls, numbers: Integers, contexts: Integers, count: int) -> Numbers:
        """Return numbers (n,) in their contexts (n,) as symbols."""
        sizes = np.abs(numbers)
        far = np.flatnonzero(sizes > 1)
        near = numbers + 1
        near[far] = FAR
        codes, left = shorten(sizes[far] - 2)
        digits = 2 * (sizes[far] - 2 - least(codes)[0]) + (numbers[far] < 0)
        return cls(near, contexts, count, codes, left, digits.astype(np.int32))

    @cached_property
    def _counts(self) -> list[NDArray[np.int64]]:
        """Counts of symbols: in each context, then of codes."""
        near = np.bincount(self.contexts * 4 + self.near, minlength=4 * self.count)
        return [*near.reshape(-1, 4), np.bincount(self.codes, minlength=2)]

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
        for context, table in enumerate(tables[:-1]):
            coder.encode(self.near[self.contexts == context], _model(table))
        if len(self.codes):
            coder.encode(self.codes, _model(tables[-1]))
            coder.encode(self.digits, coding.model.Uniform(), 2 << self.left)
        header = np.concatenate([[len(tables[-1])], *tables]).astype(np.uint8)
        words: bytes = coder.get_compressed().astype("<u4").tobytes()
        return header.tobytes() + words


def decode_numbers(message: bytes, contexts: Integers, count: int) -> Integers:
    """Return the numbers (n,) that `Numbers.encode` wrote; refuse what it never writes."""
    header = np.frombuffer(message[: 1 + 4 * count + 255], np.uint8).astype(np.int32)
    start = 1 + 4 * count + (int(header[0]) if len(header) else 0)
    if len(message) < start or (len(message) - start) % 4:
        raise ValueError(f"{len(message)} bytes are not tables and words")
    near, far = header[1 : 1 + 4 * count].reshape(count, 4), header[1 + 4 * count : start]
    if not 2 <= len(far) <= LARGEST_CODE + 1 or header[:start].max() > LARGEST_COUNT:
        raise ValueError("a table is out of range")
    coding = _constriction()
    coder = coding.queue.RangeDecoder(np.frombuffer(message[start:], "<u4").astype(np.uint32))
    numbers = np.empty(len(contexts), np.int32)
    try:
        for context, table in enumerate(near):
            inside = contexts == context
            numbers[inside] = coder.decode(_model(table), int(inside.sum()))
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


def _weights(table: Integers) -> NDArray[np.float64]:
    return least(table)[0].astype(np.float64) + 1


def _model(table: Integers) -> Any:
    return _constriction().model.Categorical(_weights(table), perfect=False)


def _constriction() -> Any:
    require(OPTION, "compression")
    import constriction

    return constriction.stream
