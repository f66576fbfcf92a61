"""Figures of sweeps: which axis goes where, what stands in the cells, files as the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedslot.experiments.grid import GridStudy
from fedslot.experiments.sweeps import Sweep
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.views.style import style
from fedslot.views.sweep import draw, write_figures


def made_up(
    grid: dict[str, list[Any]], seeds: int = 2, failed: tuple[int, ...] = (), noise: float | None = None
) -> Sweep:
    """Run number n ends at accuracy 0.5 + n / 500, after 10 rounds of 10 slots.

    noise: the accuracies of a combination are equal instead, apart from noise of this standard deviation.
    """
    # given by path as one's own, a strategy takes any options
    study = GridStudy(Scenario().replace({"strategy.name": "fedslot.strategies.fedavg:FedAvg"}), grid, seeds)
    runs: list[Result | None] = []
    for index in range(len(study.combinations) * seeds):
        last = 0.5 + index / 500
        if noise is not None:
            last = 0.5 + index // seeds / 100 + noise * np.random.default_rng(index).uniform(-1, 1)
        rounds = pd.DataFrame({"test_accuracy": np.linspace(0.1, last, 10), "cost_max": 10})
        rounds["cost_frame"], rounds["cost_sum"], rounds["slots_spent"] = 12, 50, rounds["cost_max"].cumsum()
        runs.append(None if index in failed else Result(Scenario(), rounds))
    return Sweep(study, runs, dict.fromkeys(failed, "why"), (0.505, 0.9))


def drawn(sweep: Sweep, measure: str = "final_accuracy") -> Figure:
    with style():
        figure = draw(sweep, measure)
        figure.canvas.draw()
    plt.close(figure)
    return figure


def words(figure: Figure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_cells_hold_the_means() -> None:
    figure = drawn(made_up({"frame.pull": [2, 5], "push.contenders": [3, 6]}))
    panel = figure.axes[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("Pull slots, Q", "Contenders, N")
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["2", "5"]
    # combinations (2, 3), (2, 6), (5, 3), (5, 6) have runs 0-1, 2-3, 4-5, 6-7; rows are contenders
    assert words(figure) == ["0.501", "0.509", "0.505", "0.513"]
    assert len(panel.patches) == 1, "the best cell is framed"
    assert panel.patches[0].get_xy() == (0.5, 0.5)


def test_the_note_says_how_sure_the_best_cell_is() -> None:
    grid: dict[str, list[Any]] = {"frame.pull": [2, 5], "push.contenders": [3, 6]}
    sure, unsure = (drawn(made_up(grid, 3, noise=noise)) for noise in (0.0, 0.2))
    assert "Paired t-tests tell it" in sure.get_supxlabel()
    assert not sure.axes[0].get_lines()
    assert "Dots: cells that may be" in unsure.get_supxlabel()
    assert len(unsure.axes[0].get_lines()) == 3, "a dot in every other cell"
    assert "maybe by chance" in drawn(made_up(grid, 2)).get_supxlabel()


def test_two_seeds_are_dots_and_one_has_no_interval() -> None:
    grid: dict[str, list[Any]] = {"frame.pull": [2, 5]}
    dots = drawn(made_up(grid, 2)).axes[0].get_lines()[1:]
    assert [sorted(np.asarray(dot.get_ydata())) for dot in dots] == [
        pytest.approx([0.5, 0.502]),
        pytest.approx([0.504, 0.506]),
    ]
    assert drawn(made_up(grid, 1)).get_supxlabel() == ""
    assert "95% confidence" in drawn(made_up(grid, 3)).get_supxlabel()


def test_what_runs_missed_is_a_hollow_median() -> None:
    figure = drawn(made_up({"frame.pull": [2, 5]}, 3), "slots_to_0.505_max")
    marks = [line for line in figure.axes[0].get_lines() if line.get_marker() == "D"]
    assert [mark.get_fillstyle() for mark in marks] == ["none"]
    assert np.isnan(np.asarray(marks[0].get_ydata(), dtype=float)).all(), "no run of the first three reached it"
    assert "No mark" in figure.get_supxlabel()


@pytest.mark.parametrize("contenders", [[3, 6], [1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("measure", ["final_accuracy", "accuracy_at_horizon", "slots_to_0.505_max"])
def test_the_bars_label_fits_however_few_rows_there_are(measure: str, contenders: list[int]) -> None:
    figure = drawn(made_up({"frame.pull": [2, 5], "push.contenders": contenders}), measure)
    label, whole = figure.axes[-1].yaxis.label.get_window_extent(), figure.bbox
    assert whole.y0 <= label.y0 <= label.y1 <= whole.y1
    assert label.x1 <= whole.x1


def test_cells_without_a_number_say_why() -> None:
    sweep = made_up({"frame.pull": [2, 5], "push.contenders": [3, 6]}, failed=(0, 1, 2))
    assert words(drawn(sweep))[0] == "failed"
    assert words(drawn(sweep))[2] == "1 of 2", "no mean of the runs that are left"
    slots = words(drawn(sweep, "slots_to_0.505_max"))
    assert slots[0] == "never"
    assert slots[3] == "100"


def test_one_axis_of_numbers_is_a_curve() -> None:
    panel = drawn(made_up({"training.lr": [0.1, 0.001, 0.01]})).axes[0]
    line = panel.get_lines()[0]
    assert list(np.asarray(line.get_xdata())) == [0.001, 0.01, 0.1]
    assert panel.get_xscale() == "log"
    assert np.asarray(line.get_ydata()) == pytest.approx([0.505, 0.509, 0.501])


def test_many_values_on_a_logarithmic_axis_have_plain_numbers() -> None:
    panel = drawn(made_up({"training.lr": [0.001 * 2**k for k in range(9)]})).axes[0]
    assert panel.get_xscale() == "log"
    assert {"0.001", "0.01", "0.1"} <= {tick.get_text() for tick in panel.get_xticklabels()}


@pytest.mark.parametrize("names_first", [True, False])
def test_an_axis_of_words_makes_a_curve_each(names_first: bool) -> None:
    axes: list[tuple[str, list[Any]]] = [("strategy.name", ["push-pull", "fedavg"]), ("frame.pull", [2, 5, 8])]
    figure = drawn(made_up(dict(axes if names_first else axes[::-1])))
    assert figure.axes[0].get_xlabel() == "Pull slots, Q"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["push-pull", "fedavg"]


def test_further_axes_make_panels_and_the_rest_is_said() -> None:
    grid = {"frame.pull": [2, 5], "push.contenders": [3, 6], "fleet.noise": [0.1, 0.2], "training.epochs": [1, 2, 3]}
    figure = drawn(made_up({**grid, "training.lr": [0.1, 0.2]}, 1))
    titles = [panel.get_title() for panel in figure.axes[:6]]
    assert titles[0] == "Local epochs = 1, Noise of updates = 0.1"
    assert titles[5] == "Local epochs = 3, Noise of updates = 0.2"
    assert figure.get_suptitle() == "Learning rate = 0.1"


@pytest.mark.parametrize(
    "grid",
    [
        {"frame.pull": [5]},
        {"frame.pull": [5], "push.contenders": [5]},
        {"strategy.name": ["fedavg", "push-pull"]},
        {"strategy.options.a": ["$x_$", "b"]},
        {"strategy.options.a": ["$x_$", "b"], "frame.pull": [2, 5]},
        {"strategy.name": ["fedavg", "push-pull"], "push.probability": [0.5, "auto"]},
        {
            "strategy.options.what": [[1, 2], None, {"a": 1}],
            "frame.pull": [2, 5],
            "fleet.noise": [0, 0.1, 0.2, 0.3, 0.4],
        },
    ],
    ids=str,
)
def test_every_kind_of_grid_can_be_drawn(grid: dict[str, list[Any]], tmp_path: Path) -> None:
    files = write_figures(made_up(grid, 1), tmp_path)
    assert {file.suffix for file in files} == {".png", ".pdf"}
    assert all(file.stat().st_size > 1000 for file in files)
    assert not any("0.9" in file.name for file in files), "what no run reached is not drawn"


def test_the_same_sweep_gives_the_same_bytes(tmp_path: Path) -> None:
    sweep = made_up({"frame.pull": [2, 5], "push.contenders": [3, 6]})
    first, second = (write_figures(sweep, tmp_path / name) for name in ("a", "b"))
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
