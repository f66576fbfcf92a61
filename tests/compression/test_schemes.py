"""What all schemes promise: round trips, sizes, messages that are none, and random numbers by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Codec, Key, parameters
from fedslot.parts.kinds import CODECS
from fedslot.support.errors import InputError

KEY = Key(seed=3, round=1, ue=4)
SHAPES = [(30, 40), (30,), (), (0, 7), (6, 5, 4)]
RANGE = {"name": "quantise", "options": {"bits": 3, "coding": "range"}}
CHOICES: list[tuple[str, dict[str, Any]]] = [
    ("quantise", {}),
    ("quantise", {"bits": 5, "rounding": "stochastic", "per": "row", "reach": "largest"}),
    ("quantise", {"bits": 2.5, "coding": "range"}),
    ("quantise", {"bits": 0.5, "coding": "range", "rounding": "nearest"}),
    ("eden", {"bits": 3}),
    ("drive", {}),
    ("sign", {}),
    ("sign", {"per": "row"}),
    ("top-k", {}),
    ("top-k", {"share": 1, "values": "eden"}),
    ("top-k", {"share": 0.02, "values": RANGE, "coding": "range"}),
    ("rand-k", {}),
    ("rand-k", {"share": 0.3, "values": RANGE, "unbiased": False}),
    ("rand-k", {"values": {"name": "top-k", "options": {"share": 0.5, "values": "sign"}}}),
]
SCHEMES: list[Codec] = [CODECS.make(name, options) for name, options in CHOICES]
EACH = pytest.mark.parametrize("codec", SCHEMES, ids=[f"{name} {options}" for name, options in CHOICES])
SCALES = st.sampled_from([0.0, 1e-45, 1e-30, 1e-3, 1.0, 1e10, 1e38])


def _change(size: int, scale: float = 1.0, seed: int = 0) -> Any:
    return (scale * np.random.default_rng(seed).standard_t(3, size).clip(-3, 3)).astype(np.float32)


def test_all_built_in_schemes_are_here() -> None:
    assert {name for name, _ in CHOICES} == set(CODECS)


@EACH
@given(size=st.integers(0, 700), scale=SCALES, seed=st.integers(0, 3))
def test_a_message_is_within_its_size_and_decoded_to_finite_numbers(
    codec: Codec, size: int, scale: float, seed: int
) -> None:
    shapes = [(size // 3,), (size - size // 3,)]
    change = _change(size, scale, seed)
    message = codec.encode(change, shapes, KEY)
    assert isinstance(message, bytes)
    assert len(message) <= codec.most_bytes(shapes)
    decoded = codec.decode(message, shapes, KEY)
    assert (decoded.shape, decoded.dtype) == ((size,), np.dtype(np.float32))
    assert np.isfinite(decoded).all()
    assert scale > 0 or (decoded == 0).all()


@EACH
def test_messages_and_what_they_stand_for_are_those_of_the_key(codec: Codec) -> None:
    change, before = _change(parameters(SHAPES)), _change(parameters(SHAPES))
    messages = [codec.encode(change, SHAPES, key) for key in (KEY, KEY, Key(4, 1, 4), Key(3, 2, 4), Key(3, 1, 5))]
    assert (change == before).all()
    assert messages[0] == messages[1]
    decoded = [codec.decode(messages[0], SHAPES, KEY) for _ in range(2)]
    assert (decoded[0] == decoded[1]).all()
    decoded[0][:] = np.nan  # it is the caller's
    assert (codec.decode(messages[0], SHAPES, KEY) == decoded[1]).all()


@EACH
def test_the_decoded_change_is_like_the_change(codec: Codec) -> None:
    """On average over keys: unbiased schemes by the factor 1, others by a positive one."""
    change = _change(parameters(SHAPES))
    agreements = []
    for round in range(30):
        key = Key(0, round, 1)
        decoded = codec.decode(codec.encode(change, SHAPES, key), SHAPES, key)
        agreements.append(float(decoded @ change) / float(change @ change))
    assert 0.04 < np.mean(agreements) < 1.25


@EACH
@given(data=st.data())
def test_damaged_messages_are_refused_or_finite(codec: Codec, data: st.DataObject) -> None:
    message = bytearray(codec.encode(_change(parameters(SHAPES)), SHAPES, KEY))
    kind = data.draw(st.sampled_from(["bytes", "cut", "longer", "noise"]))
    if kind == "bytes":
        for _ in range(data.draw(st.integers(1, 8))):
            place = data.draw(st.integers(0, len(message) - 1))
            message[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255, message[place] ^ 64]))
    elif kind == "cut":
        del message[data.draw(st.integers(0, len(message) - 1)) :]
    elif kind == "longer":
        message += data.draw(st.binary(min_size=1, max_size=9))
    else:
        message = bytearray(data.draw(st.binary(min_size=len(message), max_size=len(message))))
    try:
        decoded = codec.decode(bytes(message), SHAPES, KEY)
    except ValueError:
        return
    assert decoded.shape == (parameters(SHAPES),)
    assert np.isfinite(decoded).all()


@EACH
def test_other_lengths_are_refused(codec: Codec) -> None:
    message = codec.encode(_change(parameters(SHAPES)), SHAPES, KEY)
    for wrong in (message[:3], message + bytes(codec.most_bytes(SHAPES))):
        with pytest.raises(ValueError, match="bytes"):
            codec.decode(wrong, SHAPES, KEY)


@EACH
def test_estimates_of_noise_are_finite(codec: Codec) -> None:
    changes = np.stack([_change(parameters(SHAPES), scale) for scale in (0.0, 1.0, 1e-20)])
    decoded = np.stack([codec.decode(codec.encode(change, SHAPES, KEY), SHAPES, KEY) for change in changes])
    noise = codec.noise(decoded)
    if noise is not None:
        assert (noise.shape, noise.dtype, noise[0]) == ((3,), np.dtype(np.float64), 0.0)
        assert np.isfinite(noise).all()
        assert noise[1] == pytest.approx(1e20 * noise[2], rel=0.2)


def test_schemes_for_values_are_checked() -> None:
    for values, message in (("nonsense", "nonsense"), ({"name": "eden", "options": {"bits": 99}}, "bits")):
        with pytest.raises(InputError, match=message):
            CODECS.make("top-k", {"values": values})
