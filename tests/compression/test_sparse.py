"""Sparsification: which parameters are sent, with which errors, and how many bits say which."""

from __future__ import annotations

from math import comb, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.compression import Key
from fedslot.compression.indices import Coding, indices_bytes, pack_indices, unpack_indices
from fedslot.compression.noise import median_noise
from fedslot.parts.kinds import CODECS

KEY = Key(seed=0, round=7, ue=2)
CODINGS = st.sampled_from(["none", "range"])


@given(st.integers(1, 3000), st.randoms(use_true_random=False), CODINGS)
def test_indices_come_back(count: int, random: object, coding: Coding) -> None:
    k = random.randint(1, count)  # type: ignore[attr-defined]
    indices = np.sort(np.array(random.sample(range(count), k)))  # type: ignore[attr-defined]
    packed = pack_indices(indices, count, coding)
    assert len(packed) == indices_bytes(k, count, coding)
    assert unpack_indices(packed, k, count, coding).tolist() == indices.tolist()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("count", [1000, 40_785])
def test_their_bits_are_near_the_entropy(count: int, share: float) -> None:
    """That is log2 of the number of subsets; Elias-Fano takes up to 0.65 bits more for each, a bitmap P in all."""
    k = max(round(share * count), 1)
    entropy = log2(comb(count, k))
    assert entropy <= 8 * indices_bytes(k, count, "range") <= 1.002 * entropy + 96
    assert entropy <= 8 * indices_bytes(k, count, "none") <= min(entropy + 0.65 * k + 24, count + 8)


@pytest.mark.parametrize("coding", ["none", "range"])
def test_indices_that_are_none_are_refused(coding: Coding) -> None:
    packed = pack_indices(np.arange(0, 1000, 100), 1000, coding)
    with pytest.raises(ValueError, match="bytes"):
        unpack_indices(packed + b"a", 10, 1000, coding)
    with pytest.raises(ValueError, match=r"indices|words|bits"):
        unpack_indices(b"\xff" * len(packed), 10, 1000, coding)


def test_top_k_keeps_the_largest_as_they_are() -> None:
    change = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    codec = CODECS.make("top-k", {"share": 0.1})
    decoded = codec.decode(codec.encode(change, [(500,)], KEY), [(500,)], KEY)
    largest = np.argsort(-np.abs(change))[:50]
    assert set(np.flatnonzero(decoded)) == set(largest)
    assert (decoded[largest] == change[largest]).all()


def test_rand_k_is_unbiased_with_the_error_of_its_formula() -> None:
    """The mean square error is that of zeros times P / k - 1; without the factor, it is 1 - k / P."""
    change = np.random.default_rng(0).standard_t(3, 200).astype(np.float32)
    runs, results = 4000, {}
    for unbiased in (True, False):
        codec = CODECS.make("rand-k", {"share": 0.2, "unbiased": unbiased})
        keys = [Key(5, round, 1) for round in range(runs)]
        results[unbiased] = np.stack([codec.decode(codec.encode(change, [(200,)], k), [(200,)], k) for k in keys])
        assert codec.most_bytes([(200,)]) == 40 * 4
    spread = 5 * np.abs(change) * np.sqrt(4 / runs) + 1e-6
    assert (np.abs(results[True].mean(axis=0) - change) <= spread).all()
    errors = [np.sum((results[each] - change) ** 2) / np.sum(change**2) / runs for each in (True, False)]
    assert errors == pytest.approx([4.0, 0.8], rel=0.05)


def test_the_scheme_of_the_values_draws_numbers_of_its_own() -> None:
    assert KEY.inner().shared().random() != KEY.shared().random()
    assert KEY.inner().private().random() not in {KEY.shared().random(), KEY.private().random()}


def test_values_may_be_sent_by_any_scheme() -> None:
    change = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    fine = CODECS.make("top-k", {"share": 0.25, "values": {"name": "quantise", "options": {"bits": 8}}})
    full = CODECS.make("top-k", {"share": 0.25})
    decoded = [codec.decode(codec.encode(change, [(2000,)], KEY), [(2000,)], KEY) for codec in (fine, full)]
    assert np.abs(decoded[0] - decoded[1]).max() <= 0.02 * np.abs(change).max()
    assert full.most_bytes([(2000,)]) - fine.most_bytes([(2000,)]) == 500 * 3 - 4


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1])
@pytest.mark.parametrize("name", ["top-k", "rand-k"])
@pytest.mark.parametrize("values", [None, {"name": "quantise", "options": {"bits": 6}}])
def test_the_estimate_of_noise_is_right_where_noise_prevails(name: str, share: float, values: object) -> None:
    change = np.random.default_rng(1).normal(0, 0.05, 40_000).astype(np.float32)
    codec = CODECS.make(name, {"share": share, "values": values})
    decoded = codec.decode(codec.encode(change, [(40_000,)], KEY), [(40_000,)], KEY)
    assert codec.noise(decoded[None])[0] == pytest.approx(np.sqrt(np.mean(decoded**2)), rel=0.1)
    assert median_noise(change[None]) == pytest.approx(0.05, rel=0.02)
