"""The value ratio of a run, against values by hand, and its interval against trial."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedslot
from fedslot.runs.value_ratio import estimate_value_ratio, ratio_interval
from fedslot.support.errors import RefusedError


def trace(pulled: np.ndarray, pushed: np.ndarray) -> pd.DataFrame:
    """A trace with one UE of each kind in each round, whose smoothed values say nothing."""
    rows = []
    for round, pair in enumerate(zip(pulled, pushed, strict=True)):
        for kind, (event, value) in enumerate(zip(("pulled", "pushed"), pair, strict=True)):
            rows.append((round, kind + 1, event, kind, 0.0, None, value))
    return pd.DataFrame(rows, columns=["round", "slot", "event", "ue", "value", "noise", "update_value"])


SCENARIO = fedslot.Scenario.load("quickstart")


def test_rounds_with_both_kinds_count_alike() -> None:
    frames = trace(np.array([4.0, 2, 1, 1, 2]), np.array([8.0, 1, 1, 3, 2]))
    alone = pd.DataFrame([(9, 1, "pulled", 99, 0.0, None, 1000.0)], columns=frames.columns)
    twice = frames.iloc[[1]].assign(slot=7)  # a copy in another slot is the same update
    found = estimate_value_ratio(SCENARIO, pd.concat([frames, twice, alone]).sort_values("round"), "x")
    assert (found.ratio, found.pulled_value, found.pushed_value) == (1.5, 2.0, 3.0)
    assert (found.rounds, found.pulled, found.pushed) == (5, 5, 5)
    assert found.low < 1.5 < found.high


@pytest.mark.parametrize(("ratio", "noise"), [(2.4, 1.0), (0.5, 2.0), (-1.0, 0.5)])
def test_the_interval_covers_the_ratio_as_often_as_it_says(ratio: float, noise: float) -> None:
    rng, trials, covered, bounded = np.random.default_rng(1), 2000, 0, 0
    for _ in range(trials):
        pulled = 1 + rng.normal(size=20)
        pushed = ratio + rng.normal(size=20) * noise + 0.5 * (pulled - 1)
        ends = ratio_interval(pushed, pulled)
        if ends is not None:
            bounded += 1
            covered += ends[0] <= ratio <= ends[1]
    assert bounded > 0.9 * trials
    # without a bounded interval all ratios are possible
    assert abs((covered + trials - bounded) / trials - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials) + 0.005


def test_the_ends_are_where_the_difference_becomes_significant() -> None:
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(2)
    pulled, pushed = rng.normal(3, 1, 15), rng.normal(2, 1, 15)
    for end in ratio_interval(pushed, pulled):
        assert ttest_1samp(pushed - end * pulled, 0).pvalue == pytest.approx(0.05)


def test_values_that_are_not_clearly_above_0_have_no_ratio() -> None:
    rng = np.random.default_rng(0)
    for mean in (0.0, -5.0):
        with pytest.raises(RefusedError, match="not clearly above 0, over 30 rounds; give --value-ratio"):
            estimate_value_ratio(SCENARIO, trace(mean + rng.normal(size=30), rng.normal(size=30)), "x")


def test_what_does_not_tell_a_ratio_is_refused_in_one_line() -> None:
    frames = trace(np.ones(5), np.ones(5))
    for found, scenario, line in [
        (None, SCENARIO, "has no frames.csv"),
        (frames.iloc[:0], SCENARIO, "no update was received"),
        (frames.drop(columns="update_value"), SCENARIO, "an older version wrote frames.csv"),
        (
            frames.assign(update_value=np.nan),
            SCENARIO.replace({"strategy.name": "merit-push"}),
            "merit-push keeps none",
        ),
        (frames[frames["event"] == "pulled"], SCENARIO, "no rounds with pulled and pushed updates"),
        (frames[frames["round"] < 4], SCENARIO, "only 4 rounds with pulled and pushed updates"),
    ]:
        with pytest.raises(RefusedError, match=line):
            estimate_value_ratio(scenario, found, "x")


def test_pushes_by_noisy_ues_are_worth_less(tmp_path) -> None:
    """In quickstart the PS pulls the UEs of the highest values, and UEs of any noise push."""
    fedslot.run(SCENARIO.replace({"rounds": 40, "training.epochs": 2}), tmp_path / "run")
    found = fedslot.load(tmp_path / "run").value_ratio()
    assert found.high < 1
    assert found.pulled_value > 4 * found.pulled_error
    assert found.rounds <= 30
