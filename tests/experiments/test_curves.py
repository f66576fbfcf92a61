"""Curves as tables: the mean over seeds and its band, where every seed has a value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.curves import curves_over
from fedslot.experiments.estimates import ACCURACY, Estimate
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError


def rounds(accuracies: list[float], slots: int = 10) -> pd.DataFrame:
    table = pd.DataFrame({"test_accuracy": accuracies, "cost_max": slots})
    table["slots_spent"] = table["cost_max"].cumsum()
    return table


def comparison(seeds: int) -> Comparison:
    scenario = Scenario.load("quickstart")
    tables = [rounds([0.2, 0.5 + 0.1 * seed, 0.6]) for seed in range(seeds)]
    runs = {"fedavg": tables, "free": [rounds([0.4], slots=0)] * seeds}
    results = {name: [Result(scenario, table, None, None) for table in own] for name, own in runs.items()}
    return Comparison(scenario, list(range(seeds)), results, (0.5,))


def test_mean_and_band_are_those_of_the_estimate() -> None:
    curve = comparison(3).curve("fedavg")
    at_15 = curve[curve["x"].between(20, 29)].iloc[0]
    estimate = Estimate.of([0.5, 0.6, 0.7], ACCURACY)
    assert at_15[["mean", "low", "high"]].tolist() == pytest.approx([estimate.mean, estimate.low, estimate.high])
    assert curve["x"].min() >= 10, "before the first round there is no accuracy"


def test_two_seeds_have_no_band_and_rounds_are_as_long_as_the_shortest() -> None:
    assert comparison(2).curve("fedavg", "rounds")["low"].isna().all()
    curves, levels = curves_over("rounds", {"fedavg": [rounds([0.1, 0.2, 0.3]), rounds([0.3, 0.4])]})
    assert not levels
    assert curves["fedavg"].table()["mean"].tolist() == pytest.approx([0.2, 0.3])
    assert curves["fedavg"].accuracies.shape == (2, 2)
    assert np.array_equal(curves["fedavg"].x, [0, 1])


def test_what_has_no_curve_is_said() -> None:
    with pytest.raises(InputError, match=r"strategy: 'fedavgg' is not allowed.*did you mean fedavg"):
        comparison(1).curve("fedavgg")
    with pytest.raises(InputError, match="strategy: 'free' is not allowed; it must be one that spends slots"):
        comparison(1).curve("free")
