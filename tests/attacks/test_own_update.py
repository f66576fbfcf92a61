"""Lies made of the liar's own update: lengths and directions by hand, draws by their distribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedslot import Knowledge
from fedslot.attacks.own_update import Direction, FreeRider, Gaussian, Scaled, SignFlip

OWN = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
KNOWLEDGE = Knowledge(OWN, np.array([5, 9]), OWN, OWN, round=3, seed=7)


def long(parameters: int, **changes: object) -> Knowledge:
    """Two liars with updates of lengths 5 and 2 and many parameters."""
    own = torch.zeros(2, parameters)
    own[0, :2], own[1, 2] = torch.tensor([3.0, 4.0]), 2.0
    return replace(KNOWLEDGE, own=own, sent=own, trained=own, **changes)  # type: ignore[arg-type]


def test_flipped_and_scaled_updates_by_hand() -> None:
    assert SignFlip().steps(KNOWLEDGE).tolist() == [[-3, -4, 0], [0, 0, -2]]
    assert SignFlip(scale=10.0).steps(KNOWLEDGE).tolist() == [[-30, -40, 0], [0, 0, -20]]
    assert Scaled(scale=10.0).steps(KNOWLEDGE).tolist() == [[30, 40, 0], [0, 0, 20]]
    assert FreeRider().steps(KNOWLEDGE).tolist() == [[0, 0, 0], [0, 0, 0]]


@given(st.floats(0.01, 100), st.integers(0, 2**31), st.integers(0, 1000))
def test_noise_and_directions_are_as_long_as_they_should_be(scale: float, seed: int, round: int) -> None:
    for attack in (Gaussian(scale=scale), Direction(scale=scale)):
        steps = attack.steps(replace(KNOWLEDGE, seed=seed, round=round))
        assert torch.linalg.vector_norm(steps, dim=1).tolist() == pytest.approx([5 * scale, 2 * scale], rel=1e-4)


def test_a_direction_is_common_to_liars_and_rounds_and_noise_is_not() -> None:
    knowledge = long(10_000)
    first, second = Direction().steps(knowledge)
    assert torch.allclose(first / 5, second / 2)
    assert torch.equal(first, Direction().steps(replace(knowledge, round=8))[0])
    other = Direction().steps(replace(knowledge, seed=8))[0]
    noise = Gaussian().steps(knowledge)
    later = Gaussian().steps(replace(knowledge, round=8))[0]
    for one, two in ((first, other), (noise[0], noise[1]), (noise[0], later)):
        assert abs(float(torch.cosine_similarity(one, two, dim=0))) < 5 / 100, "five standard errors"
    assert torch.equal(noise, Gaussian().steps(knowledge))


def test_a_free_riders_noise_has_its_standard_deviation() -> None:
    steps = FreeRider(noise=0.03).steps(long(20_000))
    assert steps.std().item() == pytest.approx(0.03, rel=0.05)
    assert abs(float(torch.cosine_similarity(steps[0], steps[1], dim=0))) < 5 / 20_000**0.5
