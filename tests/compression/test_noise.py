"""Estimates of noise on what is decoded, against the true error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedslot import Scenario
from fedslot.aggregation.base import noise_estimates
from fedslot.compression import Codec, Key
from fedslot.compression.noise import dithered_noise, rounded_noise
from fedslot.compression.quantise import Quantise
from fedslot.parts.kinds import CODECS
from fedslot.rounds.simulation import Simulation

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


@pytest.mark.parametrize("normal", [0.0, 0.02, 0.1, 0.3, 1.0, 5.0])
def test_it_is_right_within_3_percent_for_normal_noise_and_a_uniform_error(normal: float) -> None:
    rng = np.random.default_rng(3)
    noise = (rng.normal(0, normal, (2, 200_000)) + rng.uniform(-0.5, 0.5, (2, 200_000))).astype(np.float32)
    noise[:, :2000] *= 20  # parameters that changed
    assert dithered_noise(noise) == pytest.approx([np.sqrt(normal**2 + 1 / 12)] * 2, rel=0.03)


def test_it_is_zero_where_nothing_arrived() -> None:
    assert dithered_noise(np.zeros((2, 9), np.float32)).tolist() == [0.0, 0.0]


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any]:
    """Return changes (Y, P) by training in the tenth round of `quickstart`, and the shapes of the tensors."""
    simulation = Simulation(Scenario.load("quickstart", {"rounds": 10}))
    *_, last = simulation.rounds()
    start = last.now.model
    models = simulation.train(start, np.arange(12), last.now.round).models
    return (models - start).numpy(), simulation.model.tensor_shapes


SCHEMES = [("quantise", {"bits": bits, **more}) for bits in (2, 4, 8) for more in ({}, {"coding": "range"})]
SCHEMES += [("quantise", {"bits": bits, "coding": "range"}) for bits in (0.5, 1)]
SCHEMES += [("eden", {"bits": 2}), ("drive", {}), ("sign", {}), ("top-k", {}), ("rand-k", {"share": 0.3})]


@pytest.mark.parametrize(("name", "options"), SCHEMES, ids=str)
def test_it_is_right_within_6_percent_on_updates_of_a_run(
    trained: tuple[Any, Any], name: str, options: dict[str, Any]
) -> None:
    """Without compression, the estimate is 3% too high: changes by training are taken for noise, too."""
    changes, shapes = trained
    noisy = (changes + np.random.default_rng(4).normal(0, 0.1, changes.shape)).astype(np.float32)
    codec: Codec = CODECS.make(name, options)
    keys = [Key(0, 0, ue) for ue in range(len(noisy))]
    decoded = np.stack(
        [codec.decode(codec.encode(x, shapes, key), shapes, key) for x, key in zip(noisy, keys, strict=True)]
    )
    estimates = codec.noise(decoded)
    if estimates is None:
        estimates = noise_estimates(torch.from_numpy(decoded))
    errors = np.sqrt(np.mean((decoded - changes) ** 2, axis=1))
    plain = noise_estimates(torch.from_numpy(noisy)) / np.sqrt(np.mean((noisy - changes) ** 2, axis=1))
    assert plain.mean() == pytest.approx(1.03, abs=0.02)
    assert np.mean(estimates / errors) == pytest.approx(1, abs=0.06)
