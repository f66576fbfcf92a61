"""Rules for stale updates: discounts by hand, and compensation where training is linear in the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedslot.updates.compensation import PSCompensation, SoftCompensation
from fedslot.updates.staleness import Arrived, Discount, FedAsync, Plain, Staleness, discount

CURVATURE = torch.tensor([[0.5, 0.1], [0.1, 0.3]], dtype=torch.float64)


class LinearTraining:
    """Training near an optimum w*: from w it changes the model by A (w* - w)."""

    def __init__(self, optimum: Tensor) -> None:
        self.optimum = optimum

    def train(self, start: Tensor, version: int) -> Tensor:
        return CURVATURE @ (self.optimum - start)

    def imitate(self, start: Tensor, target: Tensor) -> Tensor:
        return CURVATURE @ (target - start)


def arrived(starts: list[list[float]], model: list[float], versions: list[int], round: int = 9) -> Arrived:
    """Updates of UEs with optima of their own, which train linearly."""
    begun = torch.tensor(starts, dtype=torch.float64)
    changes = torch.stack([CURVATURE @ (optimum(ue) - start) for ue, start in enumerate(begun)])
    now = torch.tensor(model, dtype=torch.float64)
    # the PS has another optimum than each of the UEs
    return Arrived(round, now, np.array(versions), begun, changes, LinearTraining(torch.tensor([0.3, -2.0]).double()))


def optimum(ue: int) -> Tensor:
    return torch.tensor([1.0 + ue, -3.0 * ue], dtype=torch.float64)


numbers = st.floats(-5, 5)
models = st.lists(numbers, min_size=2, max_size=2)


@given(models, models, models, st.sampled_from([PSCompensation(), SoftCompensation()]))
def test_a_compensated_update_is_what_the_ue_would_have_sent_from_the_present_model(
    first: list[float], second: list[float], now: list[float], rule: Staleness
) -> None:
    late = arrived([first, second, now, first], now, [2, 7, 9, 2])
    fresh = torch.stack([CURVATURE @ (optimum(ue) - late.model) for ue in range(4)])
    torch.testing.assert_close(rule.apply(late), fresh)


@pytest.mark.parametrize("rule", [Plain(), PSCompensation(), SoftCompensation(), Discount(), Discount(law="hinge")])
def test_fresh_updates_stay_as_they_are(rule: Staleness) -> None:
    fresh = arrived([[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0], [9, 9])
    assert torch.equal(rule.apply(fresh), fresh.changes)


def test_discounts_by_hand() -> None:
    late = arrived([[0.0, 0.0]] * 3, [4.0, 4.0], [9, 6, 1])
    ratios = Discount(a=0.5).apply(late) / late.changes
    assert ratios[:, 0].tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    ratios = Discount(law="hinge", a=0.5, b=2).apply(late) / late.changes
    assert ratios[:, 0].tolist() == pytest.approx([1, 1 / 1.5, 1 / 4])


def test_fedasync_mixes_local_models() -> None:
    """The paper's x <- (1 - alpha) x + alpha x_new, alpha = weight (1 + s)^-a."""
    late = arrived([[0.0, 0.0], [1.0, 1.0]], [4.0, 4.0], [9, 5])
    local = late.starts + late.changes
    mixed = late.model + FedAsync(weight=0.5, a=1.0).apply(late)
    for ue, alpha in enumerate([0.5, 0.5 / 5]):
        torch.testing.assert_close(mixed[ue], (1 - alpha) * late.model + alpha * local[ue])


@given(st.integers(0, 100), st.floats(0.01, 3), st.floats(0, 50), st.sampled_from(["constant", "hinge", "polynomial"]))
def test_discounts_fall_from_one(age: int, a: float, b: float, law: str) -> None:
    factors = discount(np.array([0, age, age + 1]), law, a, b)  # type: ignore[arg-type]
    assert factors[0] == 1
    assert 0 < factors[2] <= factors[1] <= 1
