"""What a notebook shows of results: `plot` and `html`, by the type of the result.

`fedslot.support.display` calls them for the methods `plot` and `_repr_html_` of results. A view of another type is
registered here, by `@plot.register` and `@html.register`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import Estimate, describe
from fedslot.experiments.grid import say_value
from fedslot.experiments.measures import MeasuredStudy
from fedslot.experiments.sweeps import Sweep
from fedslot.planning import Plan
from fedslot.runs.results import Result, X
from fedslot.support.errors import counted
from fedslot.views.html import facts, small_curve, table
from fedslot.views.tables import MOST_ROWS, best_cases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray


@singledispatch
def plot(result: Any, *arguments: Any) -> Any:
    """Draw a result, and return the axes."""
    raise TypeError(f"there is no figure of a {type(result).__name__}")


@singledispatch
def html(result: Any) -> str:
    """Return a result as HTML."""
    raise TypeError(f"there is no HTML of a {type(result).__name__}")


@plot.register(Result)
def _(result: Result, x: X = "slots", axes: Axes | None = None) -> Axes:
    from fedslot.views.curves import plot_accuracy  # Matplotlib is slow to import

    return plot_accuracy({result.scenario.strategy.name: [result.rounds]}, x, axes, title=result.scenario.label)


@plot.register(Comparison)
def _(comparison: Comparison, x: X = "slots", axes: Axes | None = None) -> Axes:
    from fedslot.views.curves import plot_accuracy

    tables = {name: [result.rounds for result in results] for name, results in comparison.runs.items()}
    return plot_accuracy(tables, x, axes, comparison.horizon, comparison.ranks())


@plot.register(Sweep)
def _(sweep: Sweep, measure: str) -> Any:
    from fedslot.views.sweep import plot_sweep

    return plot_sweep(sweep, measure)


@plot.register(Plan)
def _(plan: Plan) -> NDArray[Any]:
    from fedslot.views.plan import show_plan

    return show_plan(plan)


@html.register(Plan)
def _(plan: Plan) -> str:
    from fedslot.views.plan import plan_html

    return plan_html(plan)


@html.register(Result)
def _(result: Result) -> str:
    rounds, label = result.rounds, result.scenario.label
    if not len(rounds):
        return facts([("rounds", "0")], label)
    totals = rounds[["pulled", "wasted", "push_received", "collided"]].sum()
    ending = f" ({result.ending})" if result.ending else ""
    pairs = [
        ("rounds", f"{len(rounds)} of {result.scenario.most_rounds}{ending}"),
        ("test accuracy", f"{result.final_accuracy:.4f}, at best {rounds['test_accuracy'].max():.4f}"),
        ("slots spent", f"{result.slots_spent}"),
        ("pulled", f"{totals['pulled']} received, {totals['wasted']} wasted"),
        ("pushed", f"{totals['push_received']} received, {totals['collided']} collided"),
    ]
    slots, accuracies = rounds["slots_spent"].tolist(), rounds["test_accuracy"].tolist()
    return facts(pairs, label, small_curve(slots, accuracies, "test accuracy over slots"))


@html.register(Comparison)
def _(comparison: Comparison) -> str:
    differences = comparison.differences()
    header, rows = ["strategy"], []
    for name, estimates in comparison.estimates().items():
        row = [name, *_estimates(comparison, estimates)]
        if differences:
            row.insert(3, differences[name].text("+.2f", factor=100) if name in differences else "")
        rows.append(row)
    header += _measures(comparison)
    if differences:
        header.insert(3, "difference in points")
    note = f"Differences are to {comparison.strategies[0]}, paired seed by seed." if differences else ""
    return table(header, rows, _title("Comparison", len(comparison.seeds)), note)


@html.register(Sweep)
def _(sweep: Sweep) -> str:
    estimates, grid = sweep.estimates(), sweep.study.grid
    failed = f"{sweep.failed}." if sweep.failures else ""
    if not any(estimates):
        return table([], [], f"Sweep, {counted(len(estimates), 'combination')}", failed)
    rows = [
        [*map(say_value, sweep.study.combinations[index].values()), *_estimates(sweep, estimates[index])]
        for index in best_cases(estimates)
    ]
    count = f"the best {MOST_ROWS} of {len(estimates)}" if len(estimates) > MOST_ROWS else f"{len(estimates)}"
    return table([*grid, *_measures(sweep)], rows, _title(f"Sweep, {count} combinations", sweep.study.seeds), failed)


def _measures(study: MeasuredStudy) -> list[str]:
    """Return the names of the measures that a table shows."""
    slots = [f"slots to {target:g}" for target in study.targets]
    return ["final accuracy", f"accuracy at {study.horizon} slots", *slots]


def _estimates(study: MeasuredStudy, estimates: Mapping[str, Estimate]) -> Sequence[str]:
    """Return the estimates of these measures for one case."""
    accuracies = [estimates[name].text(".3f") for name in ("final_accuracy", "accuracy_at_horizon")]
    return accuracies + [estimates[study.slots_measure(target)].text(".0f") for target in study.targets]


def _title(what: str, seeds: int) -> str:
    kind = describe(seeds)
    return f"{what}: {kind}" if kind else what
