"""The reproduction: which runs it asks for, what it draws, and what its page says, on made-up runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from fedslot.experiments.estimates import ACCURACY, Estimate
from fedslot.runs.execution import load, run
from fedslot.scenario import Scenario
from fedslot.studies.curves import save_curves
from fedslot.studies.reproduction import page
from fedslot.studies.reproduction.experiments import (
    CURVES,
    FIGURES,
    FIVE,
    OUT,
    PUBLISHED_EPOCHS,
    Experiment,
    Reproduction,
    experiments,
)
from fedslot.studies.reproduction.figures import DRAWINGS
from fedslot.studies.reproduction.published import published
from fedslot.views.style import style


def make_up(reproduction: Reproduction, figures: Sequence[str], accuracy: float = 0.9) -> None:
    """Runs that rise to an accuracy and cost what all-pull rounds cost, without any training."""
    runs = {}
    for task in reproduction.tasks(experiments(figures)).values():
        rounds = np.arange(task.scenario.rounds)
        runs[task.folder.name] = pd.DataFrame(
            {
                "test_accuracy": accuracy * (1 - np.exp(-(rounds + 1) / 10)) + 0.001 * task.scenario.seed,
                "cost_max": 21,
                "cost_frame": 21,
                "cost_sum": 230,
                "seconds": 0.5,
            }
        )
    save_curves(runs, reproduction.all_curves)


@pytest.fixture
def reproduction(tmp_path: Path) -> Reproduction:
    reproduction = Reproduction(tmp_path, {"mnist": 2, "cifar10": 1})
    make_up(reproduction, FIGURES)
    return reproduction


def test_published_data_are_those_of_the_paper() -> None:
    fig2, fig5, fig6 = (published(name) for name in ("fig2", "fig5", "fig6"))
    assert fig2.loc[[20, 50, 100, 199], "FedAvg (20)"].round(3).tolist() == [0.694, 0.853, 0.873, 0.875]
    assert fig2.loc[[20, 50, 100, 199], "Centralized (20)"].round(3).tolist() == [0.800, 0.896, 0.915, 0.935]
    assert fig5.loc[5, "raw_x"] == 50
    assert (fig6[["FedAvg", "GreedyShap"]].fillna(0) % 230 == 0).all(axis=None), (
        "all-pull bars are multiples of 2 + 3 + ... + 21"
    )
    assert (fig2 * 5000).round(6).apply(lambda column: (column % 1 == 0).all()).all(), "5000 test images"


def test_presets_match_the_experiments() -> None:
    """`paper` and `paper-as-published` are what the figures are made of."""
    for dataset, preset in {"mnist": "paper", "cifar10": "paper-cifar10"}.items():
        for name, overrides in CURVES.items():
            strategy = overrides["strategy.name"]
            unequal = Scenario.load(f"{preset}-as-published", {"strategy.name": strategy})
            assert unequal.epochs == PUBLISHED_EPOCHS[name]
            equal = Scenario.load(preset, {"strategy.name": strategy})
            assert equal.epochs == 5
            assert Experiment(dataset, name, 5).scenario() == Scenario.load(preset, overrides)


@pytest.mark.parametrize("preset", ["paper", "paper-as-published"])
def test_presets_have_the_papers_numbers(preset: str) -> None:
    scenario = Scenario.load(preset)
    assert (scenario.data.ues, scenario.frame.slots, scenario.frame.pull, scenario.rounds) == (200, 20, 10, 200)
    assert (scenario.data.alpha, scenario.fleet.stragglers, scenario.fleet.noise) == (1.0, 0.5, 0.1)
    assert scenario.strategy.warmup == 20
    assert scenario.valuation.name == "gtg"


def test_runs_with_curves_are_not_repeated(reproduction: Reproduction) -> None:
    """More seeds ask for the new runs only, and keeping these adds to what is there."""
    assert reproduction.tasks(experiments(FIGURES)) == {}
    more = replace(reproduction, seeds={"mnist": 3, "cifar10": 1})
    tasks = list(more.tasks(experiments(FIGURES)).values())
    assert {(task.scenario.seed, task.scenario.data.dataset) for task in tasks} == {(2, "mnist")}
    quick = Scenario.load("quickstart", {"rounds": 1, "data.ues": 10, "frame.slots": 4, "frame.pull": 2})
    run(quick, tasks[0].folder)
    before = len(more.curves())
    save_curves(more.curves() | {tasks[0].folder.name: load(tasks[0].folder).rounds}, more.all_curves)
    assert list(more.tasks(experiments(FIGURES)).values()) == tasks[1:]
    assert len(more.curves()) == before + 1


def test_no_run_twice_and_all_that_is_needed(tmp_path: Path) -> None:
    reproduction = Reproduction(tmp_path, {"mnist": 2, "cifar10": 1})
    wanted = experiments(FIGURES)
    assert len(wanted) == len(set(wanted))
    assert {
        experiment.curve for experiment in wanted if experiment.epochs == 5 and experiment.dataset == "mnist"
    } >= set(FIVE)
    folders = [task.folder for task in reproduction.tasks(wanted).values()]
    assert len(folders) == len(set(folders))
    assert replace(reproduction, rounds=40).runs != reproduction.runs, "quick looks do not mix with full runs"
    assert set(experiments(["fig2"])) <= set(wanted)
    assert not any(experiment.dataset == "cifar10" for experiment in experiments(["fig2", "fig5", "fig6"]))


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_alone(tmp_path: Path, figure: str) -> None:
    """A figure draws from its own runs and no others."""
    reproduction = Reproduction(tmp_path, {"mnist": 1, "cifar10": 1}, rounds=12)
    make_up(reproduction, [figure])
    files = page.publish(reproduction, [figure])
    assert [file.suffix for file in files] == [".png", ".pdf"] * len(DRAWINGS[figure]) + [".md"]
    assert "quick run with 12 rounds" in files[-1].read_text()


def test_the_page_shows_what_was_measured(reproduction: Reproduction) -> None:
    files = page.publish(reproduction, FIGURES)
    text = files[-1].read_text()
    assert "| Proposed (10/10) | 0.900, 0.901 |" in text
    assert "| FedAvg (20), E = 5, round 199 | 0.875 | 0.900, 0.901 | 0.02 | differs by +0.025 |" in text
    assert "| Centralized (20), E = 5, round 100 | 0.915 | 0.900, 0.901 | 0.02 | agrees |" in text
    assert re.search(r"\| GreedyShap to 0\.93 \| 14260 \| never \| not reached \|", text)
    assert "| FedAvg to 0.4 | 2760 | 1380, 1380 | differs by -1380 |" in text
    assert "0.9975" in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert sum(link.startswith("images/") for link in links) == sum(map(len, DRAWINGS.values()))
    for link in links:
        assert (files[-1].parent / link).is_file()


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_fewer_than_three_seeds_have_values_only(tmp_path: Path, seeds: int) -> None:
    reproduction = Reproduction(tmp_path, {"mnist": seeds, "cifar10": seeds}, rounds=12)
    make_up(reproduction, FIGURES)
    text = page.write(reproduction, FIGURES)
    interval = r"\| Proposed \(10/10\) \| 0\.630 \[0\.62\d, 0\.63\d\] \|"
    said = [re.search(words, text) is not None for words in (interval, "95% confidence intervals", "logit")]
    assert said == [seeds == 3] * 3
    assert seeds == 3 or not re.search(r"interval|confidence|±", text)


@pytest.mark.parametrize(
    ("figures", "seeds", "rounds", "expected"),
    [
        (["fig2"], 1, 40, "fedslot reproduce fig2 --quick"),
        (FIGURES, 3, None, "fedslot reproduce all --seeds 3 --cifar-seeds 1"),
        (["fig6"], 5, None, "fedslot reproduce fig6 --seeds 5"),
    ],
)
def test_the_page_names_the_command_that_made_it(
    figures: Sequence[str], seeds: int, rounds: int | None, expected: str
) -> None:
    reproduction = Reproduction(OUT, {"mnist": seeds, "cifar10": 1}, rounds)
    assert page.command(reproduction, figures) == expected
    elsewhere = Reproduction(Path("my runs"), reproduction.seeds, rounds)
    assert page.command(elsewhere, figures) == f"{expected} --out 'my runs'"


@pytest.mark.parametrize("accuracy", [0.05, 0.3, 0.9])
def test_curves_are_within_the_axes(tmp_path: Path, accuracy: float) -> None:
    """However low accuracies are, no panel is empty, and no legend lies on the curves."""
    reproduction = Reproduction(tmp_path, {"mnist": 1, "cifar10": 1}, rounds=12)
    make_up(reproduction, ["fig2"], accuracy)
    with style():
        figure = DRAWINGS["fig2"]["fig2_equal"](reproduction)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert all(low <= np.asarray(line.get_ydata())[-1] <= high for line in axes.get_lines())
        assert axes.get_legend() is None
    plt.close(figure)


def test_verdicts() -> None:
    def check(measured: float) -> page.Check:
        return page.Check("x", 0.9, Estimate.of([measured], ACCURACY), 0.02)

    assert check(0.915).verdict == "agrees"
    assert check(0.93).verdict == "differs by +0.030"
    assert check(0.85).verdict == "differs by -0.050"
    assert check(float("nan")).verdict == "not reached"
    assert not check(float("nan")).agrees
