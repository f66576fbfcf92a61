"""Figures and report: all drawn, nothing fetched from outside, numbers as in the table."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from fedslot.experiments.comparison import Comparison, compare
from fedslot.scenario import Scenario
from fedslot.views.comparison import FIGURES, accuracy_by_round, accuracy_by_slots, on_the_air
from fedslot.views.report import write_report
from fedslot.views.style import style


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    quick = {"rounds": 4, "data.ues": 20, "strategy.warmup": 2, "training.epochs": 1}
    return compare(Scenario.load("quickstart", quick), ["push-pull", "fedavg"], 2, targets=(0.1, 0.99), workers=1)


class Links(HTMLParser):
    """Collects whatever a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attributes if name in {"src", "href", "srcset"}]


def test_the_report_stands_alone(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path).read_text("utf-8")
    links = Links()
    links.feed(page)
    assert len(links.loaded) == len(FIGURES)
    assert all(link.startswith("data:image/png;base64,") for link in links.loaded)
    assert "url(" not in page
    assert "<script" not in page


def test_the_report_says_what_the_table_says(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path).read_text("utf-8")
    for measures in comparison.estimates().values():
        assert f"{measures['final_accuracy'].mean:.4f} [" in page
    assert "never" in page, "a target that no run reached"
    difference = comparison.differences()["fedavg"]
    assert f"{100 * difference.mean:+.2f}" in page
    assert comparison.scenario.to_yaml().splitlines()[0] in page


def test_every_figure_is_written_twice_and_closed(comparison: Comparison, tmp_path: Path) -> None:
    write_report(comparison, tmp_path)
    for name in FIGURES:
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert plt.get_fignums() == []


def test_curves_show_the_data(comparison: Comparison) -> None:
    with style():
        figure = accuracy_by_round(comparison)
    line = figure.axes[0].get_lines()[0]
    mean = sum(result.rounds["test_accuracy"].to_numpy() for result in comparison.runs["push-pull"]) / 2
    assert line.get_ydata() == pytest.approx(mean)
    with style():
        figure = accuracy_by_slots(comparison)
    x, y = figure.axes[0].get_lines()[1].get_data()
    results = comparison.runs["fedavg"]
    for slots, accuracy in list(zip(x, y, strict=True))[:: len(x) // 10]:
        assert accuracy == pytest.approx(sum(result.accuracy_at(slots) for result in results) / 2)
    plt.close("all")


def test_the_air_adds_up(comparison: Comparison) -> None:
    """Bars end at the mean number of transmissions and wasted pulls per frame."""
    with style():
        figure = on_the_air(comparison)
    widths = {"push-pull": 0.0, "fedavg": 0.0}
    for bars in figure.axes[0].containers:
        for name, bar in zip(["fedavg", "push-pull"], bars, strict=True):
            widths[name] += bar.get_width()
    for name, results in comparison.runs.items():
        columns = ["pulled", "push_received", "collided", "wasted"]
        assert widths[name] == pytest.approx(
            sum(result.rounds[columns].to_numpy().sum(axis=1).mean() for result in results) / 2
        )
    plt.close("all")


def test_a_scenario_cannot_inject_markup(comparison: Comparison, tmp_path: Path) -> None:
    scenario = comparison.scenario.replace({"strategy.options": {"note": "<script>alert(1)</script>"}})
    hostile = Comparison(scenario, comparison.seeds, comparison.runs, comparison.targets)
    page = write_report(hostile, tmp_path).read_text("utf-8")
    assert not re.search(r"<script", page)
