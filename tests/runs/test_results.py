"""Results in Python: short lines, tables in a notebook, and figures that show the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

import fedslot
from fedslot import Comparison, InputError, Result, Scenario, Sweep
from fedslot.access import plan
from fedslot.cli import main

SMALL = {"rounds": 5, "data.ues": 20, "training.epochs": 1, "strategy.warmup": 2}


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Without windows, whatever the settings of this machine are."""
    with mpl.rc_context():
        plt.switch_backend("Agg")
        yield
        plt.close("all")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.load("quickstart", SMALL)


@pytest.fixture(scope="module")
def result(scenario: Scenario) -> Result:
    return fedslot.run(scenario)


@pytest.fixture(scope="module")
def comparison(scenario: Scenario) -> Comparison:
    return fedslot.compare(scenario, ["push-pull", "fedavg", "ps-alone"], 3, workers=1, targets=[0.2, 0.99])


@pytest.fixture(scope="module")
def found(scenario: Scenario) -> Sweep:
    grid = {"frame.pull": [2, 5], "push.contenders": [2, 5, 9]}
    return fedslot.sweep(scenario, grid, 2, workers=1, targets=[0.2])


def test_reprs_are_short(result: Result, comparison: Comparison, found: Sweep) -> None:
    assert repr(result) == f"Result(push-pull, seed 0: 5 rounds, {result.slots_spent} slots, test accuracy " + (
        f"{result.final_accuracy:.3f})"
    )
    horizon = comparison.horizon
    assert repr(comparison) == f"Comparison(push-pull, fedavg, ps-alone: 3 seeds, horizon of {horizon} slots)"
    assert repr(found) == "Sweep(frame.pull (2) x push.contenders (3): 2 seeds)"
    assert repr(plan(20, 10)).startswith("Plan(20 slots, 21 splits; best: pull 20, push 0, 20.00 received in")


def test_html_has_the_numbers(result: Result, comparison: Comparison, found: Sweep) -> None:
    page = result._repr_html_()
    assert f"{result.final_accuracy:.4f}" in page
    assert "<svg" in page
    table = comparison._repr_html_()
    estimates = comparison.estimates()["fedavg"]
    assert estimates["accuracy_at_horizon"].text(".3f") in table
    assert comparison.differences()["fedavg"].text("+.2f", factor=100) in table
    assert "never" in table, "no run reached 0.99"
    heat = found._repr_html_()
    assert heat.count("<tr>") == 1 + 6
    assert found.estimates()[5]["final_accuracy"].text(".3f") in heat
    best = plan(20, 10, value_ratio=4.0)
    assert f"{best.best.expected_value:.2f}" in best._repr_html_()
    assert len(best.plot()) == 2


def test_html_is_escaped(scenario: Scenario) -> None:
    odd = fedslot.compare(scenario.replace({"rounds": 1}), {"<b>&": {"strategy.name": "fedavg"}}, 1, workers=1)
    assert "&lt;b&gt;&amp;" in odd._repr_html_()
    assert "<b>&" not in odd._repr_html_()


def test_a_run_without_rounds_has_a_line_too(result: Result, tmp_path: Path) -> None:
    empty = Result(result.scenario, result.rounds.iloc[:0])
    assert repr(empty) == "Result(push-pull, seed 0: no rounds)"
    assert "rounds" in empty._repr_html_()
    assert (empty.slots_spent, empty.summary()["rounds"]) == (0, 0)
    assert np.isnan(empty.final_accuracy)


def test_a_loaded_run_knows_whether_it_is_finished(scenario: Scenario, tmp_path: Path) -> None:
    fedslot.run(scenario, tmp_path)
    whole = fedslot.load(tmp_path)
    assert (whole.finished, whole.summary()["stopped_by"]) == (True, "rounds")
    assert "finished" not in repr(whole)
    (tmp_path / "summary.json").unlink()
    part = fedslot.load(tmp_path)
    assert (part.finished, part.stopped, part.summary()["stopped_by"]) == (False, False, None)
    assert repr(part).endswith(", not finished)")
    assert "5 of 5 (not finished)" in part._repr_html_()


def test_the_curve_of_a_run_is_its_accuracy(result: Result) -> None:
    axes = result.plot(x="rounds")
    (line,) = axes.get_lines()
    assert np.asarray(line.get_ydata()).tolist() == result.rounds["test_accuracy"].tolist()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Global round", "Test accuracy")
    assert axes.get_title() == "push-pull, seed 0"
    over_slots = result.plot(axes=axes)
    assert over_slots is axes, "given axes are drawn into"
    x, y = (np.asarray(data) for data in axes.get_lines()[1].get_data())
    assert x[-1] == result.slots_spent
    for slots, accuracy in zip(x, y, strict=True):
        assert accuracy == result.accuracy_at(slots)


def test_the_curves_of_a_comparison_have_labels_bands_and_the_horizon(comparison: Comparison) -> None:
    axes = comparison.plot()
    labels = [text.get_text() for text in axes.texts]
    assert labels == ["push-pull", "fedavg", "ps-alone"]
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert len(axes.collections) == 2, "a band for each curve, but not for a level"
    assert comparison.horizon in [line.get_xdata()[0] for line in axes.get_lines()]  # type: ignore[index]
    alone = np.mean([run.final_accuracy for run in comparison.runs["ps-alone"]])
    assert lines["ps-alone"].get_ydata()[0] == pytest.approx(alone)  # type: ignore[index]


def test_a_sweep_is_a_heat_map(found: Sweep) -> None:
    (axes,) = found.plot("final_accuracy")
    (image,) = axes.get_images()
    means = [[found.estimates()[3 * pull + push]["final_accuracy"].mean for pull in range(2)] for push in range(3)]
    assert np.asarray(image.get_array()) == pytest.approx(np.array(means))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Pull slots, Q", "Contenders, N")
    with pytest.raises(InputError, match=r"measure: 'loss' is not allowed; it must be one of final_accuracy"):
        found.plot("loss")


def test_an_unknown_axis_is_refused(result: Result) -> None:
    with pytest.raises(InputError, match="x: 'time' is not allowed; it must be one of slots, rounds, seconds, joules"):
        result.plot(x="time")  # type: ignore[arg-type]


def test_the_best_size_of_updates_is_that_of_the_measured_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario.load("quickstart", {**SMALL, "strategy.name": "merit-push", "strategy.warmup": None})
    loud, quiet = (fedslot.run(scenario.replace({"fleet.noise": noise})) for noise in (1.0, 1e-3))
    size, other = loud.update_bits(), quiet.update_bits()
    assert size is not None
    assert other is not None
    assert size.noise_share > 0.5 > 10 * other.noise_share
    assert size.best > other.best
    folder = tmp_path / "loud"
    saved = fedslot.run(scenario.replace({"fleet.noise": 1.0}), out=folder)
    assert saved.update_bits() == fedslot.load(folder).update_bits() == size
    assert main(["show", str(folder)]) == 0
    assert f"most progress per slot: {size.best:.2g} bits per parameter" in capsys.readouterr().out


def test_other_strategies_measure_no_size_of_updates(result: Result, tmp_path: Path) -> None:
    assert result.update_bits() is None
    assert fedslot.run(Scenario.load("quickstart", SMALL), out=tmp_path / "run").update_bits() is None
