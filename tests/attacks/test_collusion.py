"""Lies of colluders against the formulas of the papers, computed parameter by parameter."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch

from fedslot import Attack, Knowledge
from fedslot.attacks.collusion import Heard, InnerProduct, LittleIsEnough

SENT = [[1.0, 0.0, -2.0], [3.0, 0.0, 2.0], [5.0, 3.0, 3.0], [7.0, 1.0, 5.0]]
TRAINED = [[1.0, 0.5, 1.0], [2.0, 0.5, 2.0], [5.0, 3.0, 3.0], [7.0, 1.0, 5.0]]
KNOWLEDGE = Knowledge(
    torch.tensor(SENT[2:]), np.array([3, 8]), torch.tensor(SENT), torch.tensor(TRAINED), round=0, seed=0
)


@pytest.mark.parametrize(("updates", "known"), [("sent", SENT), ("trained", TRAINED)])
def test_all_liars_send_the_same_of_what_they_know(updates: Heard, known: list[list[float]]) -> None:
    columns = list(zip(*known, strict=True))
    little = [statistics.mean(column) - 1.5 * statistics.pstdev(column) for column in columns]
    against = [-0.5 * statistics.mean(column) for column in columns]
    cases: list[tuple[Attack, list[float]]] = [
        (LittleIsEnough(z=1.5, updates=updates), little),
        (InnerProduct(epsilon=0.5, updates=updates), against),
    ]
    for attack, expected in cases:
        first, second = attack.steps(KNOWLEDGE)
        assert first.tolist() == pytest.approx(expected, abs=1e-6)
        assert torch.equal(first, second)
    assert float(torch.tensor(against) @ torch.tensor(known).mean(0)) < 0
