"""Signs with a scale for each tensor."""

from __future__ import annotations

import numpy as np
import pytest

from fedslot.compression import Key
from fedslot.compression.sign import Sign

KEY = Key(seed=0, round=0, ue=0)


def test_signs_come_with_the_mean_of_each_tensor() -> None:
    change = np.array([1, -3, 2, -0.5, 0.25, 0, 0], np.float32)
    shapes = [(3,), (2, 1), (2,)]
    message = Sign().encode(change, shapes, KEY)
    assert len(message) == 3 * 4 + 1
    assert Sign().decode(message, shapes, KEY).tolist() == [2, -2, 2, -0.375, 0.375, 0, 0]
    assert Sign(per="row").most_bytes(shapes) == 4 * 4 + 1


def test_the_error_of_normal_numbers() -> None:
    """With the mean absolute value as the scale, the error is 1 - 2 / pi of the variance."""
    change = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    decoded = Sign().decode(Sign().encode(change, [(100_000,)], KEY), [(100_000,)], KEY)
    assert np.mean((decoded - change) ** 2) == pytest.approx(1 - 2 / np.pi, rel=0.02)
    assert Sign().noise(decoded[None])[0] == pytest.approx(np.sqrt(2 / np.pi), rel=0.01)
