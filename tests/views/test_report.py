"""Figures and report: all drawn, nothing fetched from outside, numbers as in the table."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedslot.experiments.comparison import Comparison, compare
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.views.comparison import (
    FIGURES,
    accuracy_by,
    on_the_air,
    slots_to_targets,
    with_bands,
)
from fedslot.views.report import write_report
from fedslot.views.style import save, style


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Two strategies and three seeds."""
    quick = {"rounds": 4, "data.ues": 20, "strategy.warmup": 2, "training.epochs": 1}
    return compare(Scenario.load("quickstart", quick), ["push-pull", "fedavg"], 3, targets=(0.1, 0.99), workers=1)


@pytest.fixture(scope="module")
def pages(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Returns the report of the first seeds; each is written once."""

    @functools.cache
    def page(seeds: int) -> str:
        return write_report(first_seeds(comparison, seeds), tmp_path_factory.mktemp("report")).read_text("utf-8")

    return page


def test_the_folder_of_a_data_file_stays_private(comparison: Comparison, tmp_path: Path) -> None:
    """A report is passed on: it names the file alone, also in the scenario that it shows."""
    first = first_seeds(comparison, 1)
    data = first.scenario.data.model_copy(update={"dataset": "/home/somebody/secret/own.npz"})
    scenario = first.scenario.model_copy(update={"data": data})
    page = write_report(Comparison(scenario, first.seeds, first.runs, first.targets), tmp_path).read_text("utf-8")
    assert "<b>own.npz</b>" in page
    assert "dataset: own.npz" in page
    assert "somebody" not in page


def first_seeds(comparison: Comparison, count: int) -> Comparison:
    runs = {name: results[:count] for name, results in comparison.runs.items()}
    return Comparison(comparison.scenario, comparison.seeds[:count], runs, comparison.targets)


def drawn(draw: Callable[..., Figure], *arguments: object) -> Figure:
    with style():
        figure = draw(*arguments)
    plt.close(figure)
    return figure


def line_of(figure: Figure, name: str) -> Line2D:
    return next(line for line in figure.axes[0].get_lines() if line.get_label() == name)


def without_scripts(page: str) -> str:
    """A page without the interactive panels' code."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def made_up(names: list[str], seeds: int, targets: tuple[float, ...] = (0.5,)) -> Comparison:
    """Strategy number i rises to 0.5 + i / 50, give or take, in ten rounds of ten slots, except for `free` ones."""
    runs = {}
    for index, name in enumerate(names):
        runs[name] = []
        for seed in range(seeds):
            top = 0.5 + index / 50 + 0.01 * np.random.default_rng((index, seed)).normal()
            rounds = pd.DataFrame({"test_accuracy": np.linspace(0.1, top, 10), "cost_max": 0 if name == "free" else 10})
            rounds["cost_frame"] = rounds["cost_sum"] = rounds["cost_max"]
            rounds["slots_spent"] = rounds["cost_max"].cumsum()
            runs[name].append(Result(Scenario(rounds=10), rounds))
    return Comparison(Scenario(rounds=10), list(range(seeds)), runs, targets)


def test_the_report_stands_alone(pages: Callable[[int], str]) -> None:
    page = without_scripts(pages(3))
    loaded = re.findall(r"\s(?:src|href|srcset)=[\"']?([^\"'\s>]*)", page)
    assert len(loaded) == len(FIGURES)
    assert all(link.startswith("data:image/png;base64,") for link in loaded)
    assert "url(" not in page
    assert not re.search(r"<script[^>]+src", pages(3))


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_the_report_says_what_the_table_says(comparison: Comparison, pages: Callable[[int], str], seeds: int) -> None:
    fewer, page = first_seeds(comparison, seeds), pages(seeds).replace("\u00a0", " ")
    for measures in fewer.estimates().values():
        assert measures["final_accuracy"].text(".3f") in page
        assert measures["slots_to_0.1_max"].text(".0f") in page
    assert "never" in page, "a target that no run reached"
    assert fewer.differences()["fedavg"].text("+.2f", factor=100).replace("+", "&#43;") in page.replace("+", "&#43;")
    assert fewer.scenario.to_yaml().splitlines()[0] in page
    intervals = [
        words in without_scripts(page) for words in ("95% confidence", "Student", "logit", "log scale", "Fisher")
    ]
    assert intervals == [seeds == 3] * 5, "no word of intervals without any"


def test_every_figure_is_written_twice_and_closed(comparison: Comparison, tmp_path: Path) -> None:
    before = plt.get_fignums()  # another test in this process may have drawn
    write_report(comparison, tmp_path)
    for name in FIGURES:
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert plt.get_fignums() == before


def test_curves_show_the_data(comparison: Comparison) -> None:
    line = line_of(drawn(accuracy_by, comparison, "rounds"), "push-pull")
    mean = sum(result.rounds["test_accuracy"].to_numpy() for result in comparison.runs["push-pull"]) / 3
    assert line.get_ydata() == pytest.approx(mean)
    x, y = line_of(drawn(accuracy_by, comparison), "fedavg").get_data()
    results = comparison.runs["fedavg"]
    for slots, accuracy in list(zip(x, y, strict=True))[:: len(x) // 10]:
        assert accuracy == pytest.approx(sum(result.accuracy_at(slots) for result in results) / 3)


@pytest.mark.parametrize("x", ["rounds", "slots"])
def test_the_left_panel_shows_all_and_the_right_one_the_end(comparison: Comparison, x: str) -> None:
    whole, near = drawn(accuracy_by, comparison, x).axes
    assert whole.get_ylim() == (0, 1)
    for line in near.get_lines()[:2]:
        assert near.get_ylim()[0] <= np.asarray(line.get_ydata())[-1] <= near.get_ylim()[1]


@pytest.mark.parametrize(("count", "banded"), [(2, 2), (3, 3), (4, 3), (12, 3)])
def test_only_the_best_of_many_have_bands(count: int, banded: int) -> None:
    names = [f"s{i:02d}" for i in range(count)]
    comparison = made_up(names, 5)
    figure = drawn(accuracy_by, comparison)
    assert len(figure.axes[0].collections) == banded
    assert set(with_bands(comparison)) == set(names[-banded:])
    near = figure.axes[1]
    assert [text.get_text() for text in near.texts] == names, "each curve has its name at its end"
    assert [text.get_color() for text in near.texts] == [line.get_color() for line in near.get_lines()[:count]]


def test_long_names_are_in_a_legend() -> None:
    names = ["fedavg{training.epochs: 9, training.lr: 0.05}", "push-pull"]
    figure = drawn(accuracy_by, made_up(names, 3))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert not figure.axes[1].texts


@pytest.mark.parametrize(("seeds", "lines"), [(1, 2), (2, 6)])
def test_few_seeds_have_no_bands(seeds: int, lines: int) -> None:
    panel = drawn(accuracy_by, made_up(["push-pull", "fedavg"], seeds), "rounds").axes[0]
    assert not panel.collections
    assert len(panel.get_lines()) == lines, "means, and both seeds if there are two"


def test_the_chart_of_slots_says_what_the_table_says() -> None:
    """Five seeds end around 0.5, so that some of the first strategy miss 0.5, all reach 0.3 and none 0.99."""
    comparison = made_up(["push-pull", "fedavg"], 5, (0.3, 0.5, 0.99))
    estimate = comparison.estimates()["push-pull"]["slots_to_0.5_max"]
    assert 0 < estimate.count < 5
    all_reached, some_missed, none_reached = drawn(slots_to_targets, comparison).axes[:3]
    whole = comparison.estimates()["push-pull"]["slots_to_0.3_max"]
    assert np.asarray(all_reached.get_lines()[0].get_xdata()) == pytest.approx([whole.low, whole.high])
    assert [text.get_text() for text in all_reached.texts] == ["", ""]
    assert some_missed.texts[0].get_text() == estimate.reached
    assert some_missed.get_lines()[0].get_fillstyle() == "none"
    assert np.asarray(some_missed.get_lines()[0].get_xdata()) == pytest.approx([estimate.median], nan_ok=True)
    assert [text.get_text() for text in none_reached.texts] == ["never", "never"]


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_targets_that_no_one_reached_can_be_drawn(seeds: int) -> None:
    figure = drawn(slots_to_targets, made_up(["push-pull", "fedavg"], seeds, (0.99,)))
    assert [text.get_text() for text in figure.axes[0].texts] == ["never", "never"]


def test_a_strategy_without_slots_is_a_level() -> None:
    """It has an accuracy but no curve over slots, and does not move the horizon."""
    comparison = made_up(["free", "fedavg"], 3)
    assert comparison.horizon == 100
    level = line_of(drawn(accuracy_by, comparison), "free")
    finals = [result.final_accuracy for result in comparison.runs["free"]]
    assert np.asarray(level.get_ydata()) == pytest.approx([np.mean(finals)] * 2)


def test_the_air_adds_up(comparison: Comparison) -> None:
    """Bars end at the mean number of transmissions and wasted pulls per frame."""
    columns = ["pulled", "push_received", "collided", "wasted"]
    widths = [[bar.get_width() for bar in bars] for bars in drawn(on_the_air, comparison).axes[0].containers]
    means = [
        np.mean([run.rounds[columns].to_numpy().sum(axis=1) for run in comparison.runs[name]])
        for name in ("fedavg", "push-pull")
    ]
    assert np.sum(widths, axis=0) == pytest.approx(means)


def test_a_scenario_cannot_inject_markup(comparison: Comparison, pages: Callable[[int], str], tmp_path: Path) -> None:
    scenario = comparison.scenario.replace({"strategy.options": {"note": "<script>alert(1)</script>"}})
    markup = "</script><script>alert(1)</script>"
    runs = {f"{name}{markup}": results for name, results in comparison.runs.items()}
    hostile = Comparison(scenario, comparison.seeds, runs, comparison.targets)
    page = write_report(hostile, tmp_path).read_text("utf-8")
    assert page.count("<script") == pages(3).count("<script")
    assert "alert(1)" in page


def test_without_bokeh_the_report_says_how_to_get_the_panels(
    comparison: Comparison, pages: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "fs-frames" in pages(3)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    page = write_report(comparison, tmp_path).read_text("utf-8")
    assert "fedslot[live]" in page
    assert "<script" not in page
    assert page.count("<img") == len(FIGURES)


def test_a_figure_that_cannot_be_written_is_closed_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the place of a folder")
    before = plt.get_fignums()
    with pytest.raises(OSError, match="file"):
        save(plt.figure(), tmp_path / "file" / "figure")
    assert plt.get_fignums() == before
