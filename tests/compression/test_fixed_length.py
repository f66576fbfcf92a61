"""Quantisation to a fixed number of levels: its errors against closed forms, its sizes, and messages that are none."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.fixed_length import FixedLength, reach

KEY = Key(seed=5, round=2, ue=9)
SHAPES = [(20, 30), (20,), (), (0, 4), (3, 5, 2)]
SIZE = 651
CHOICES = st.builds(
    FixedLength,
    st.integers(1, 16),
    st.sampled_from(["dither", "stochastic", "nearest"]),
    st.sampled_from(["tensor", "row"]),
    st.just("largest"),
)


def _change(scale: float = 1.0, seed: int = 0) -> Any:
    return (scale * np.random.default_rng(seed).standard_normal(SIZE)).astype(np.float32)


def _bounds(change: Any, rows: bool) -> Any:
    """Return the largest absolute value of each parameter's tensor or row."""
    start, parts = 0, []
    for shape in SHAPES:
        size = int(np.prod(shape))
        tensor = np.abs(change[start : start + size]).reshape(shape)
        axes = tuple(range(1, tensor.ndim)) if rows and tensor.ndim > 1 else None
        largest = tensor.max(axis=axes, keepdims=True) if size else tensor
        parts.append(np.broadcast_to(largest, shape).ravel())
        start += size
    return np.concatenate(parts)


@given(CHOICES, st.sampled_from([0.0, 1e-42, 1e-6, 1.0, 1e6, 1e28]), st.integers(0, 9))
def test_a_round_trip_is_within_a_step(codec: FixedLength, scale: float, seed: int) -> None:
    change = _change(scale, seed)
    message = codec.encode(change, SHAPES, KEY)
    decoded = codec.decode(message, SHAPES, KEY)
    steps = _bounds(change, codec.per == "row") * 2 / codec.intervals
    most = steps if codec.rounding == "stochastic" else steps / 2
    rounding = 1e-6 * codec.intervals * steps  # of float32
    assert decoded.dtype == np.float32
    assert (np.abs(decoded - change) <= most + rounding + 1e-25).all()
    assert len(message) == codec.most_bytes(SHAPES)


@pytest.mark.parametrize(("per", "scales"), [("tensor", 4), ("row", 25)])
@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_the_size_is_that_of_the_levels_and_scales(per: Any, scales: int, bits: int) -> None:
    assert FixedLength(bits, "dither", per, "fitted").most_bytes(SHAPES) == 4 * scales + -(-bits * SIZE // 8)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize(("rounding", "variance"), [("dither", 1 / 12), ("stochastic", None), ("nearest", None)])
def test_the_error_has_the_moments_of_the_closed_forms(bits: int, rounding: Any, variance: float | None) -> None:
    """Variances in squares of a step: 1/12, f (1 - f) at the fraction f between two levels, or a fixed error."""
    values = np.linspace(-1, 1, 7).astype(np.float32)
    repeats, step = 40_000, 2 / (2**bits - 1)
    codec, shapes, change = (
        FixedLength(bits, rounding, "tensor", "largest"),
        [(7 * repeats,)],
        np.repeat(values, repeats),
    )
    errors = (codec.decode(codec.encode(change, shapes, KEY), shapes, KEY) - change).reshape(7, repeats) / step
    fractions = ((values.astype(float) + 1) / step) % 1
    if rounding == "nearest":
        assert np.abs(np.abs(errors) - np.minimum(fractions, 1 - fractions)[:, None]).max() < 1e-5
        return
    expected = variance if variance is not None else fractions * (1 - fractions)
    assert np.abs(errors.mean(axis=1)).max() < 5 * 0.5 / np.sqrt(repeats)
    assert errors.var(axis=1) == pytest.approx(np.broadcast_to(expected, 7), abs=5 / np.sqrt(repeats))


def test_dither_is_uniform_and_independent_of_the_change() -> None:
    size = 100_000
    change = np.random.default_rng(1).laplace(size=size).astype(np.float32)
    codec = FixedLength(3, "dither", "tensor", "largest")
    error = codec.decode(codec.encode(change, [(size,)], KEY), [(size,)], KEY) - change
    uniform = error / (2 * np.abs(change).max() / 7) + 0.5
    counts = np.histogram(uniform, bins=50, range=(0, 1))[0]
    assert ((counts - size / 50) ** 2 / (size / 50)).sum() < 49 + 5 * np.sqrt(2 * 49)  # chi-square
    for moment in (change, np.abs(change), change**2):
        assert abs(np.corrcoef(error, moment)[0, 1]) < 5 / np.sqrt(size)


def test_a_dither_is_that_of_its_seed_round_and_ue() -> None:
    change, codec = _change(), FixedLength(2, "dither", "tensor", "largest")
    message = codec.encode(change, SHAPES, KEY)
    assert message == codec.encode(change, SHAPES, KEY)
    right = np.abs(codec.decode(message, SHAPES, KEY) - change).max()
    for other in (Key(6, 2, 9), Key(5, 3, 9), Key(5, 2, 8)):
        assert np.abs(codec.decode(message, SHAPES, other) - change).max() > 1.5 * right


def test_messages_of_other_lengths_and_scales_are_refused() -> None:
    codec = FixedLength(2, "dither", "tensor", "largest")
    message = codec.encode(_change(), SHAPES, KEY)
    for wrong in (b"", message[:-1], message + b"\0"):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes, not {len(message)}"):
            codec.decode(wrong, SHAPES, KEY)
    for scale in (np.nan, np.inf, -1.0, 1e38):
        with pytest.raises(ValueError, match="a scale is out of range"):
            codec.decode(np.float32(scale).tobytes() + message[4:], SHAPES, KEY)
    with pytest.raises(ValueError, match="bits beyond the last number"):
        codec.decode(message[:-1] + b"\xff", SHAPES, KEY)


def test_one_parameter_and_none() -> None:
    for size, bits in itertools.product((0, 1), (1, 2, 16)):
        codec, change = FixedLength(bits, "dither", "tensor", "largest"), np.full(size, 0.25, np.float32)
        decoded = codec.decode(codec.encode(change, [(size,)], KEY), [(size,)], KEY)
        assert np.abs(decoded - change).max(initial=0) <= 0.2500001 / (2**bits - 1)


@pytest.mark.parametrize("bits", [1, 2, 3, 8])
def test_the_fitted_reach_has_the_least_error(bits: int) -> None:
    """Against the best of a grid, for a tensor of normal numbers, one of heavy tails, and one of zeros."""
    rng, size, intervals = np.random.default_rng(0), 3000, 2**bits - 1
    tensors = np.stack([rng.standard_normal(size), rng.standard_t(2, size), np.zeros(size)])
    lengths = np.full(3, size)
    fitted = reach(np.abs(tensors).ravel().astype(np.float32), lengths, intervals)
    for sizes, found in zip(np.abs(tensors), fitted, strict=True):
        grid = np.append(np.linspace(0, sizes.max(), 400), found)[:, None]
        errors = grid[:, 0] ** 2 / (3 * intervals**2) + (np.maximum(sizes - grid, 0) ** 2).mean(axis=1)
        assert errors[-1] <= errors.min() * 1.0001
    assert fitted[2] == 0
    largest = reach(np.abs(tensors).ravel().astype(np.float32), lengths)
    assert largest == pytest.approx(np.abs(tensors).max(axis=1))


def test_the_error_of_a_fitted_reach_is_that_of_its_formula() -> None:
    """At one bit, normal numbers: 0.440 of the variance at the best reach, c = 0.78."""
    change = np.random.default_rng(2).standard_normal(200_000).astype(np.float32)
    codec, shapes = FixedLength(1, "dither", "tensor", "fitted"), [(len(change),)]
    decoded = codec.decode(codec.encode(change, shapes, KEY), shapes, KEY)
    assert np.mean((decoded - change) ** 2) == pytest.approx(0.440, abs=0.005)
    assert np.abs(decoded).max() <= 2 * 0.78 * 1.02
