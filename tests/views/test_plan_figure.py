"""The plot of a plan shows the numbers of the plan."""

from __future__ import annotations

import pytest

from fedslot.planning.planner import plan
from fedslot.views.plan import plot_plan


def curves(figure) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for axes in figure.axes for line in axes.lines}


def test_curves_are_the_plans_numbers() -> None:
    result = plan(20, 10, value_ratio=4.0)
    drawn = curves(plot_plan(result))
    assert drawn["value"] == [split.expected_value for split in result.splits]
    assert drawn["received updates"] == [split.expected_received for split in result.splits]
    assert drawn["of them pushed"] == [split.expected_received_push for split in result.splits]
    exact = next(values for label, values in drawn.items() if label.startswith("cost of a frame"))
    paper = next(values for label, values in drawn.items() if "paper" in label)
    assert exact == [split.expected_cost_max for split in result.splits]
    assert paper == pytest.approx([split.expected_cost_paper + 1 for split in result.splits])


def test_the_paper_is_dashed_and_the_best_is_marked() -> None:
    result = plan(20, 10, value_ratio=4.0)
    figure = plot_plan(result)
    lines = figure.axes[1].lines
    assert [line.get_linestyle() for line in lines if "paper" in str(line.get_label())] == ["--"]
    assert any(set(line.get_xdata()) == {result.best.pull} for line in lines)


def test_one_curve_if_all_updates_are_worth_the_same() -> None:
    assert "value" not in curves(plot_plan(plan(20, 10)))


def test_simulated_plans_have_bands_and_no_paper() -> None:
    figure = plot_plan(plan(6, 5, channel="crdsa", frames=100))
    assert all(axes.collections for axes in figure.axes)
    assert not [label for label in curves(figure) if "paper" in str(label)]
