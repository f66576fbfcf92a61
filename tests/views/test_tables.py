"""Tables in the terminal: within its width, nothing cut, and the words of the estimates."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.grid import GridStudy
from fedslot.experiments.sweeps import Sweep
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.views.tables import study_tables

NAMES = ["push-pull", "greedy-shap", "power-of-choice", "mine:S{weight: 0.2}"]


def made_up(index: int, seed: int) -> Result:
    """Run number i rises to about 0.8 + i / 50 in 40 rounds of 21 slots."""
    top = 0.8 + index / 50 + 0.02 * np.random.default_rng((index, seed)).normal()
    rounds = pd.DataFrame({"test_accuracy": top * (1 - np.exp(-np.arange(1, 41) / 5)), "cost_max": 21, "cost_sum": 230})
    rounds["cost_frame"], rounds["slots_spent"] = 21, rounds["cost_max"].cumsum()
    return Result(Scenario(rounds=40), rounds)


def compared(seeds: int, targets: tuple[float, ...] = (0.7, 0.8, 0.84, 0.99)) -> Comparison:
    runs = {name: [made_up(index, seed) for seed in range(seeds)] for index, name in enumerate(NAMES)}
    return Comparison(Scenario(rounds=40), list(range(seeds)), runs, targets)


def printed(found: Comparison | Sweep, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    for table in study_tables(found, console):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text, "nothing is cut"
    return str(text)


def test_at_a_hundred_columns_each_strategy_is_a_line() -> None:
    comparison = compared(5)
    lines = printed(comparison, 100).splitlines()
    for name in NAMES:
        accuracy, slots = (line for line in lines if line.strip().startswith(name))
        estimates = comparison.estimates()[name]
        assert estimates["final_accuracy"].text(".3f") in accuracy
        assert estimates["accuracy_at_horizon"].text(".3f") in accuracy
        for target in (0.7, 0.8, 0.84):
            assert estimates[f"slots_to_{target:g}_max"].text(".0f") in slots
        if name != NAMES[0]:
            assert comparison.differences()[name].text("+.2f", factor=100) in accuracy


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_any_width_will_do(width: int, seeds: int) -> None:
    comparison = compared(seeds, (0.5, 0.6, 0.7, 0.75, 0.8, 0.84))
    text = printed(comparison, width)
    for estimate in comparison.differences().values() if width in (80, 200) else []:
        gap = " " if width == 200 else "\n"
        assert all(part in text for part in estimate.text("+.2f", factor=100, gap=gap).split("\n"))


def test_targets_that_some_or_all_missed_are_said() -> None:
    text = printed(compared(5), 100)
    assert "No run reached 0.99." in text
    assert " of 5, median " in text
    assert "k of 5: k runs reached the target; the median is over all runs." in " ".join(text.split())
    text = printed(compared(5, (0.98, 0.99)), 100)
    assert "No run reached 0.98, 0.99." in text
    assert "Slots to target accuracies" not in text


@pytest.mark.parametrize(("seeds", "title"), [(1, "Accuracy "), (2, "Accuracy: the values of both seeds")])
def test_no_word_of_intervals_without_any(seeds: int, title: str) -> None:
    text = printed(compared(seeds), 100)
    assert title in text
    assert not any(word in text for word in ("interval", "95%", "[", "mean"))


def test_a_single_strategy_has_no_differences() -> None:
    alone = Comparison(Scenario(rounds=40), [0], {"fedavg": [made_up(0, 0)]}, (0.7,))
    assert "ifference" not in printed(alone, 100)


@pytest.mark.parametrize(("seeds", "marked"), [(2, False), (5, True)])
def test_a_sweep_marks_what_may_be_the_best(seeds: int, marked: bool) -> None:
    study = GridStudy(Scenario(rounds=40), {"frame.pull": [1, 5, 9]}, seeds)
    runs: list[Result | None] = [made_up(4 * cell, seed) for cell in range(3) for seed in range(seeds)]
    text = printed(Sweep(study, runs, {}, (0.7,)), 100)
    assert ("paired t-test" in text) == marked
    rows = [line for line in text.splitlines() if line.strip()[:1] in {"1", "5", "9"}]
    assert ["*" in row for row in rows] == [False, False, marked]
