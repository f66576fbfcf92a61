"""Packed bits, against an integer in base two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression.packing import pack, packed_bytes, unpack


@given(st.integers(1, 32).flatmap(lambda b: st.tuples(st.just(b), st.lists(st.integers(0, 2**b - 1), max_size=40))))
def test_numbers_are_written_bit_by_bit(drawn: tuple[int, list[int]]) -> None:
    bits, numbers = drawn
    text = "".join(f"{number:0{bits}b}" for number in numbers)
    text += "0" * (-len(text) % 8)
    packed = pack(np.array(numbers, np.int64), bits)
    assert packed == (int(text, 2).to_bytes(len(text) // 8, "big") if text else b"")
    assert len(packed) == packed_bytes(len(numbers), bits)
    assert unpack(packed, len(numbers), bits).tolist() == numbers


def test_other_lengths_and_set_bits_beyond_the_end_are_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes, not 1"):
        unpack(b"ab", 3, 2)
    with pytest.raises(ValueError, match="bits beyond"):
        unpack(b"\x01", 3, 2)
