"""The size of updates, against the codec, and against a search over frames and sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.quantise import Quantise
from fedslot.planning import best_bits
from fedslot.planning.bits import quantisation_error, update_cost
from fedslot.support.errors import InputError

SHARES = st.floats(0.02, 1)
BITS = np.geomspace(0.3, 16, 300)


@pytest.mark.parametrize("bits", [0.5, 1, 2, 4])
def test_the_error_is_that_of_the_codec_on_normal_numbers(bits: float) -> None:
    key, shapes = Key(0, 0, 0), [(50_000,)]
    change = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    codec = Quantise(bits=bits, coding="range")
    error = codec.decode(codec.encode(change, shapes, key), shapes, key) - change
    assert quantisation_error(bits) == pytest.approx(np.mean(error**2), rel=0.1)


@given(share=SHARES, error=st.floats(0.05, 20), downlink=st.floats(0.02, 2), rate=st.floats(0.05, 1))
def test_the_best_size_is_that_of_a_search_over_frames_of_any_length(
    share: float, error: float, downlink: float, rate: float
) -> None:
    updates = np.geomspace(0.01, 1e4, 500)[:, None]
    errors = error * (1 + share * quantisation_error(BITS))
    progress = updates / (updates + errors) / (downlink + updates * BITS / (32 * rate))
    best = BITS[progress.max(axis=0).argmax()]
    size = best_bits(share)
    assert size.best == pytest.approx(best, rel=0.05)
    assert size.low <= size.best <= size.high
    assert progress.max(axis=0)[(size.low <= BITS) & (size.high >= BITS)].min() > progress.max() / 1.11


@given(share=SHARES)
def test_more_noise_asks_for_more_bits(share: float) -> None:
    assert best_bits(share / 2).best <= best_bits(share).best


def test_in_full_precision_an_update_costs_its_bits() -> None:
    assert update_cost(32.0, 0.5) == pytest.approx(32)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "much"])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=r"noise_share: .* a number from 0 to 1"):
        best_bits(share)
