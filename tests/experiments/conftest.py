"""Fixtures of the tests of experiments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fedslot.runs.results import Result
from fedslot.scenario import Scenario


@pytest.fixture
def scenario() -> Scenario:
    """A scenario that runs in a moment."""
    return Scenario.load("quickstart", {"rounds": 3, "data.ues": 20, "strategy.warmup": 1, "training.epochs": 1})


@pytest.fixture
def result() -> Callable[..., Result]:
    """Makes the result of a run from its accuracies and the slots that each round cost."""

    def make(accuracies: list[float], *costs: int, **overrides: object) -> Result:
        rounds = {"test_accuracy": accuracies, "slots_spent": np.cumsum(costs)}
        by_rule = {"cost_max": costs, "cost_frame": costs, "cost_sum": [5 * cost for cost in costs]}
        return Result(Scenario().replace(overrides), pd.DataFrame({**rounds, **by_rule}))

    return make
