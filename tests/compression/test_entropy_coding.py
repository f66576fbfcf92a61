"""Entropy coding: round trips, sizes against the entropy, and messages that are none."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression.entropy_coding import (
    LARGEST_CODE,
    LARGEST_COUNT,
    LARGEST_NUMBER,
    Numbers,
    decode_numbers,
    least,
    shorten,
)

LARGE = st.integers(-LARGEST_NUMBER, LARGEST_NUMBER)


@given(st.lists(st.tuples(st.one_of(st.integers(-3, 3), LARGE), st.integers(0, 3)), max_size=60))
def test_numbers_come_back(drawn: list[tuple[int, int]]) -> None:
    numbers, contexts = np.array(sorted(drawn, key=itemgetter(1)), np.int32).reshape(-1, 2).T.copy()
    lengths = np.bincount(contexts, minlength=4).tolist()
    coded = Numbers.of(numbers, lengths)
    message = coded.encode()
    assert decode_numbers(message, lengths).tolist() == numbers.tolist()
    assert 8 * len(message) <= coded.bits + 64


@given(st.integers(0, 2**31 - 1))
def test_shortened_numbers_keep_four_digits(number: int) -> None:
    codes, left = shorten(np.array([number]))
    low, same = least(codes)
    assert int(low[0]) == number >> left[0] << left[0]
    assert int(same[0]) == left[0] == max(number.bit_length() - 4, 0)
    assert codes[0] <= LARGEST_COUNT
    assert number > LARGEST_NUMBER or codes[0] <= LARGEST_CODE


@pytest.mark.parametrize("deviation", [0.2, 0.5, 1.0, 4.0, 30.0, 1000.0])
@pytest.mark.parametrize("size", [4000, 40_000])
def test_the_size_is_the_entropy_and_the_tables(deviation: float, size: int) -> None:
    """Entropy of normal numbers in steps, from the error function; the tables add 8 bits for each symbol."""
    numbers = np.round(np.random.default_rng(3).normal(0, deviation, size)).astype(np.int32)
    _, counts = np.unique(numbers, return_counts=True)
    own = float(counts @ np.log2(size / counts))  # of this sample
    ideal = size * max(np.log2(deviation * np.sqrt(2 * np.pi * np.e)), 0.0)  # of the law, for fine steps
    message = Numbers.of(numbers, [size]).encode()
    payload = 8 * len(message) - 8 * (1 + 4 + message[0]) - 64
    assert payload <= max(own * 1.005, ideal * 1.005 if deviation >= 4 else 0)
    assert deviation > 30 or payload > 0.99 * own - 64


def test_contexts_save_what_they_tell() -> None:
    """Numbers that are known from their contexts cost next to nothing."""
    contexts = np.sort(np.random.default_rng(4).integers(0, 3, 8000)).astype(np.int32)
    assert len(Numbers.of(contexts - 1, np.bincount(contexts).tolist()).encode()) < 40
    assert len(Numbers.of(contexts - 1, [8000]).encode()) > 8000 * np.log2(3) / 8


@given(st.binary(max_size=80), st.integers(0, 50))
def test_random_bytes_are_refused_or_numbers(message: bytes, size: int) -> None:
    try:
        numbers = decode_numbers(message, [size])
    except ValueError:
        return
    assert numbers.shape == (size,)
    assert (np.abs(numbers.astype(int)) <= 2 * LARGEST_NUMBER).all()


def test_other_words_and_tables_are_refused() -> None:
    message = Numbers.of(np.arange(500, dtype=np.int32), [500]).encode()
    with pytest.raises(ValueError, match="not tables and words"):
        decode_numbers(message[:-1], [500])
    with pytest.raises(ValueError, match="not tables and words"):
        decode_numbers(b"", [500])
    with pytest.raises(ValueError, match="beyond the last number"):
        decode_numbers(message + bytes(range(12)), [500])
    for place, byte in ((0, 1), (0, 200), (1, 255), (20, 250)):
        with pytest.raises(ValueError, match=r"a table is out of range|not tables and words"):
            decode_numbers(message[:place] + bytes([byte]) + message[place + 1 :], [500])
