"""Quantisation: its errors against closed forms, its sizes, and messages that are none."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.quantise import Quantise

KEY = Key(seed=5, round=2, ue=9)
SHAPES = [(20, 30), (20,), (), (0, 4), (3, 5, 2)]
SIZE = 651
CHOICES = st.fixed_dictionaries(
    {
        "bits": st.integers(1, 16),
        "rounding": st.sampled_from(["dither", "stochastic", "nearest"]),
        "per": st.sampled_from(["tensor", "row"]),
    }
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
def test_a_round_trip_is_within_a_step(options: dict[str, Any], scale: float, seed: int) -> None:
    codec, change = Quantise(**options), _change(scale, seed)
    message = codec.encode(change, SHAPES, KEY)
    decoded = codec.decode(message, SHAPES, KEY)
    steps = _bounds(change, options["per"] == "row") * 2 / (2 ** options["bits"] - 1)
    most = steps if options["rounding"] == "stochastic" else steps / 2
    rounding = 1e-6 * 2 ** options["bits"] * steps  # of float32
    assert decoded.dtype == np.float32
    assert (np.abs(decoded - change) <= most + rounding + 1e-25).all()
    assert len(message) == codec.most_bytes(SHAPES)


@pytest.mark.parametrize(("per", "scales"), [("tensor", 4), ("row", 25)])
@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_the_size_is_that_of_the_levels_and_scales(per: Any, scales: int, bits: int) -> None:
    assert Quantise(bits=bits, per=per).most_bytes(SHAPES) == 4 * scales + -(-bits * SIZE // 8)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize(("rounding", "variance"), [("dither", 1 / 12), ("stochastic", None), ("nearest", None)])
def test_the_error_has_the_moments_of_the_closed_forms(bits: int, rounding: Any, variance: float | None) -> None:
    """Variances in squares of a step: 1/12, f (1 - f) at the fraction f between two levels, or a fixed error."""
    values = np.linspace(-1, 1, 7).astype(np.float32)
    repeats, step = 40_000, 2 / (2**bits - 1)
    codec, shapes, change = Quantise(bits=bits, rounding=rounding), [(7 * repeats,)], np.repeat(values, repeats)
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
    codec = Quantise(bits=3)
    error = codec.decode(codec.encode(change, [(size,)], KEY), [(size,)], KEY) - change
    uniform = error / (2 * np.abs(change).max() / 7) + 0.5
    counts = np.histogram(uniform, bins=50, range=(0, 1))[0]
    assert ((counts - size / 50) ** 2 / (size / 50)).sum() < 49 + 5 * np.sqrt(2 * 49)  # chi-square
    for moment in (change, np.abs(change), change**2):
        assert abs(np.corrcoef(error, moment)[0, 1]) < 5 / np.sqrt(size)


def test_a_dither_is_that_of_its_seed_round_and_ue() -> None:
    change, codec = _change(), Quantise(bits=2)
    message = codec.encode(change, SHAPES, KEY)
    assert message == codec.encode(change, SHAPES, KEY)
    right = np.abs(codec.decode(message, SHAPES, KEY) - change).max()
    for other in (Key(6, 2, 9), Key(5, 3, 9), Key(5, 2, 8)):
        assert np.abs(codec.decode(message, SHAPES, other) - change).max() > 1.5 * right


@given(CHOICES, st.data())
def test_a_damaged_message_is_refused_or_finite(options: dict[str, Any], data: st.DataObject) -> None:
    codec = Quantise(**options)
    message = bytearray(codec.encode(_change(), SHAPES, KEY))
    for _ in range(data.draw(st.integers(1, 6))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = codec.decode(bytes(message), SHAPES, KEY)
    except ValueError:
        return
    assert decoded.shape == (SIZE,)
    assert np.isfinite(decoded).all()


def test_messages_of_other_lengths_and_scales_are_refused() -> None:
    codec = Quantise(bits=2)
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
        codec, change = Quantise(bits=bits), np.full(size, 0.25, np.float32)
        decoded = codec.decode(codec.encode(change, [(size,)], KEY), [(size,)], KEY)
        assert np.abs(decoded - change).max(initial=0) <= 0.2500001 / (2**bits - 1)
