"""Estimates of noise on what is decoded, against the true error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedslot.compression import Key
from fedslot.compression.noise import rounded_noise
from fedslot.compression.quantise import Quantise

KEY = Key(seed=2, round=0, ue=1)
SHAPES = [(50, 784), (50,), (25, 50), (25,), (10, 25), (10,)]
SIZE = 40_785


def _change() -> Any:
    """Return a change as training makes it: a third of it zeros, most of it tiny, few parameters of heavy tails."""
    rng = np.random.default_rng(0)
    return 2e-3 * rng.standard_t(1.5, SIZE).clip(-40, 40) * rng.binomial(1, 0.15, SIZE)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"rounding": rounding, **how}
        for rounding in ("dither", "nearest", "stochastic")
        for how in ({"coding": "range"}, {"reach": "fitted"}, {"reach": "largest"}, {"per": "row"})
    ],
    ids=str,
)
def test_it_is_right_within_5_percent_where_noise_prevails(options: dict[str, Any], bits: int) -> None:
    change = _change()
    noisy = (change + np.random.default_rng(1).normal(0, 0.05, SIZE)).astype(np.float32)
    codec = Quantise(bits=bits, **options)
    decoded = codec.decode(codec.encode(noisy, SHAPES, KEY), SHAPES, KEY)
    found = codec.noise(decoded[None])
    estimate = np.median(np.abs(decoded)) / 0.6745 if found is None else found[0]
    assert estimate == pytest.approx(np.sqrt(np.mean((decoded - change) ** 2)), rel=0.05)


def test_it_is_that_of_the_median_without_levels() -> None:
    normal = np.random.default_rng(2).normal(0, 0.3, (2, 100_000)).astype(np.float32)
    assert rounded_noise(normal) == pytest.approx([0.3, 0.3], rel=0.01)


def test_it_is_the_level_where_there_is_only_one() -> None:
    assert rounded_noise(np.array([[0.25, -0.25, 0.25], [0, 0, 0]], np.float32)).tolist() == [0.25, 0.0]
