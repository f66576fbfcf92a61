"""EDEN: its rotation, levels and errors against definitions, tables and published figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.eden import Drive, Eden, blocks, hadamard, lloyd_max

SIZE = 40_785


@pytest.mark.parametrize("digits", [0, 1, 3, 6, 7, 13])
def test_the_transform_is_that_of_the_hadamard_matrix(digits: int) -> None:
    """Sylvester's construction; H is symmetric and orthogonal, so that it is its own inverse."""
    vector = np.random.default_rng(0).standard_normal(2**digits).astype(np.float32)
    expected = vector.astype(float)[None]
    for _ in range(digits):  # (a, b) -> (a + b, a - b), half by half
        halves = expected.reshape(len(expected), 2, -1)
        expected = np.stack([halves[:, 0] + halves[:, 1], halves[:, 0] - halves[:, 1]], 1).reshape(-1, halves.shape[2])
    assert hadamard(vector) == pytest.approx(expected.ravel() / 2 ** (digits / 2), abs=1e-5)
    assert hadamard(hadamard(vector)) == pytest.approx(vector, abs=1e-5)


@given(st.integers(0, 10**7))
def test_blocks_cover_all_parameters_with_few_zeros(count: int) -> None:
    lengths = blocks(count)
    assert 0 <= sum(lengths) - count < 128
    assert all(length & (length - 1) == 0 and length >= 128 for length in lengths)
    assert lengths == sorted(lengths, reverse=True)


# Max (1960), table I: the mean square error of the best quantiser of a normal variable
MAX = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497, 5: 0.002499}


@pytest.mark.parametrize("bits", MAX)
def test_the_levels_have_the_error_of_the_table(bits: int) -> None:
    levels, edges = lloyd_max(bits)
    x, width = np.linspace(-9, 9, 1_000_001, retstep=True)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    error = np.sum((levels[np.searchsorted(edges, x)] - x) ** 2 * density) * width
    assert error == pytest.approx(MAX[bits], rel=0.01)
    assert levels == pytest.approx(-levels[::-1], abs=1e-5)


@pytest.mark.parametrize("law", ["normal", "tails"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_error_is_that_of_the_paper_for_any_change(bits: int, law: str) -> None:
    """An unbiased scale turns the error e of the levels into 1 / (1 - e) - 1: 0.571, 0.133, 0.036, 0.0096."""
    rng = np.random.default_rng(0)
    change = (rng.standard_normal(SIZE) if law == "normal" else rng.standard_t(3, SIZE)).astype(np.float32)
    codec, key, shapes = Eden(bits=bits), Key(1, 2, 3), [(SIZE,)]
    decoded = codec.decode(codec.encode(change, shapes, key), shapes, key)
    error = np.sum((decoded - change) ** 2) / np.sum(change**2)
    assert error == pytest.approx(1 / (1 - MAX[bits]) - 1, rel=0.05)
    assert decoded @ change == pytest.approx(change @ change, rel=1e-4)  # by the scale, in each block


def test_decoded_changes_are_right_on_average_over_rotations() -> None:
    change = np.zeros(600, np.float32)
    change[:20] = np.linspace(-2, 3, 20)
    codec, runs = Eden(bits=1), 3000
    total = np.zeros(600)
    for round in range(runs):
        key = Key(0, round, 0)
        total += codec.decode(codec.encode(change, [(600,)], key), [(600,)], key)
    spread = np.linalg.norm(change) * np.sqrt(0.571 / 512 / runs)
    assert np.abs(total / runs - change).max() < 0.02 * np.abs(change).max() + 5 * spread


def test_drive_is_eden_with_one_bit() -> None:
    change, key = np.random.default_rng(1).standard_normal(300).astype(np.float32), Key(0, 0, 0)
    assert Drive().encode(change, [(300,)], key) == Eden(bits=1).encode(change, [(300,)], key)
    assert Drive().most_bytes([(300,)]) == 4 * 2 + (256 + 128) // 8
