"""Quantisation with entropy coding: it has the bits that it may have, and the error that goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.variable_length import LEAST_BYTES, VariableLength

KEY = Key(seed=1, round=4, ue=3)
SIZE = 40_000
SHAPES = [(SIZE // 2,), (100, SIZE // 200)]


def _changes() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(SIZE)
    return {name: x.astype(np.float32) for name, x in {"normal": normal, "tails": 1e-3 * normal**5}.items()}


CHANGES = _changes()


@pytest.mark.parametrize("bits", [0.25, 0.5, 1, 1.5, 2, 4, 8, 12])
@pytest.mark.parametrize("rounding", ["dither", "nearest", "stochastic"])
@pytest.mark.parametrize("law", CHANGES)
def test_a_message_has_the_bits_that_it_may_have(law: str, rounding: Any, bits: float) -> None:
    codec = VariableLength(bits, rounding)
    size, most = len(codec.encode(CHANGES[law], SHAPES, KEY)), codec.most_bytes(SHAPES)
    assert most == bits * SIZE / 8
    assert 0.985 * most <= size <= most or (size == 0 and bits < 0.5 and rounding != "nearest")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_dithered_normal_numbers_have_the_error_of_the_rate(bits: float) -> None:
    """The rate of a dithered quantiser is the information between x and x + u, u uniform over a step (Ziv, 1985)."""
    codec, change = VariableLength(bits, "dither"), CHANGES["normal"]
    error = codec.decode(codec.encode(change, SHAPES, KEY), SHAPES, KEY) - change
    step = np.sqrt(12 * np.mean(error**2))
    x, width = np.linspace(-12 - step, 12 + step, 400_001, retstep=True)
    within = np.cumsum(np.exp(-(x**2) / 2)) * width / np.sqrt(2 * np.pi)
    half = round(step / 2 / width)
    padded = np.pad(within, half, "edge")
    density = (padded[2 * half :] - padded[: -2 * half]) / (2 * half * width)
    density = density[density > 1e-300]
    rate = -np.sum(density * np.log2(density)) * width - np.log2(step)
    assert rate == pytest.approx(bits, rel=0.03)
    assert abs(np.corrcoef(error, change)[0, 1]) < 5 / np.sqrt(SIZE)
    assert error.mean() == pytest.approx(0, abs=5 * step / np.sqrt(12 * SIZE))


@pytest.mark.parametrize("bits", [0.1, 0.5, 1, 3])
@pytest.mark.parametrize("law", CHANGES)
def test_rounding_to_the_nearest_has_less_error_than_zeros(law: str, bits: float) -> None:
    """So that error feedback converges: each number changes by at most itself, and by half a step."""
    codec, change = VariableLength(bits, "nearest"), CHANGES[law]
    decoded = codec.decode(codec.encode(change, SHAPES, KEY), SHAPES, KEY)
    assert (np.abs(decoded - change) <= np.abs(change) * (1 + 1e-6)).all()
    levels = np.unique(np.abs(decoded))
    assert np.abs(decoded - change).max() <= levels[1] / 2 * (1 + 1e-5)


@given(
    st.integers(0, 300),
    st.sampled_from([0.0, 1e-44, 1e-20, 1.0, 1e20, 1e38]),
    st.sampled_from([0.1, 0.5, 2, 16]),
    st.sampled_from(["dither", "nearest", "stochastic"]),
    st.integers(0, 3),
)
def test_small_models_and_all_scales(size: int, scale: float, bits: float, rounding: Any, seed: int) -> None:
    change = (scale * np.random.default_rng(seed).uniform(-1, 1, size)).astype(np.float32)
    codec = VariableLength(bits, rounding)
    message = codec.encode(change, [(size,)], KEY)
    decoded = codec.decode(message, [(size,)], KEY)
    assert len(message) <= codec.most_bytes([(size,)]) == max(int(bits * size / 8), LEAST_BYTES)
    assert np.isfinite(decoded).all()
    exact, decoded = change.astype(float), decoded.astype(float)
    assert np.abs(decoded).max(initial=0) <= 9 * np.abs(exact).max(initial=0) + 1e-30
    if bits == 2 and 1e-20 <= scale <= 1e20 and 0 < size <= 150:
        limit = 0.4 if rounding == "stochastic" else 0.2
        assert np.linalg.norm(decoded - exact) <= limit * np.sqrt(size) * scale


def test_no_change_is_an_empty_message() -> None:
    codec, zeros = VariableLength(2, "dither"), np.zeros(SIZE, np.float32)
    assert codec.encode(zeros, SHAPES, KEY) == b""
    assert (codec.decode(b"", SHAPES, KEY) == 0).all()


def test_messages_that_are_none_are_refused() -> None:
    codec = VariableLength(1, "dither")
    message = codec.encode(CHANGES["normal"], SHAPES, KEY)
    for wrong in (b"abcd", message + bytes(codec.most_bytes(SHAPES))):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes"):
            codec.decode(wrong, SHAPES, KEY)
    with pytest.raises(ValueError, match="a scale is out of range"):
        codec.decode(np.float32(np.nan).tobytes() + message[4:], SHAPES, KEY)
    with pytest.raises(ValueError, match="not 0 or from 5 to 2500"):
        codec.decode(message, SHAPES[:1], KEY)
