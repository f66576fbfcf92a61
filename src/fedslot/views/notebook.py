"""What a notebook shows of results: `plot` and `html`, by the type of the result.

`fedslot.support.display` calls them for the methods `plot` and `_repr_html_` of results. A view of another type is
registered here, by `@plot.register` and `@html.register`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.sweeps import Sweep
from fedslot.planning import Plan
from fedslot.runs.results import Result, X
from fedslot.support.errors import counted, say_time
from fedslot.views.html import facts, small_curve, table
from fedslot.views.tables import (
    MOST_ROWS,
    Column,
    accuracy_columns,
    case_columns,
    difference_column,
    slots_columns,
    table_rows,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fedslot.views.style import Size


@singledispatch
def plot(result: Any, *arguments: Any) -> Any:
    """Draw a result, and return the axes."""
    raise TypeError(f"there is no figure of a {type(result).__name__}")


@singledispatch
def html(result: Any) -> str:
    """Return a result as HTML."""
    raise TypeError(f"there is no HTML of a {type(result).__name__}")


@plot.register(Result)
def _(result: Result, x: X, axes: Axes | None, size: Size) -> Axes:
    from fedslot.views.curves import plot_accuracy  # Matplotlib is slow to import

    tables, title = {result.scenario.strategy.name: [result.rounds]}, result.scenario.label
    return plot_accuracy(tables, x, axes, size, title=title, score=result.score)


@plot.register(Comparison)
def _(comparison: Comparison, x: X, axes: Axes | None, size: Size) -> Axes:
    from fedslot.views.curves import plot_accuracy

    horizon, ranks, score = comparison.horizon, comparison.ranks(), comparison.score
    return plot_accuracy(comparison.tables, x, axes, size, horizon=horizon, ranks=ranks, score=score)


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
        (f"test {result.score.label}", f"{result.final_score:.4f}, at best {result.best_score:.4f}"),
        ("slots spent", say_time(result.slots_spent)),
        ("pulled", f"{totals['pulled']} received, {totals['wasted']} wasted"),
        ("pushed", f"{totals['push_received']} received, {totals['collided']} collided"),
    ]
    curve = small_curve(rounds["slots_spent"].tolist(), result.scores.tolist(), f"test {result.score.label} over slots")
    return facts(pairs, label, curve)


@html.register(Comparison)
def _(comparison: Comparison) -> str:
    columns, note = [*accuracy_columns(comparison), *slots_columns(comparison)], ""
    if len(comparison.strategies) > 1:
        columns.insert(2, difference_column(comparison, f"difference{' in points' if comparison.score.share else ''}"))
        note = f"Differences are to {comparison.strategies[0]}, paired seed by seed."
    return _study_table(comparison, "Comparison", columns, note)


@html.register(Sweep)
def _(sweep: Sweep) -> str:
    count, failed = len(sweep.study.combinations), f"{sweep.failed}." if sweep.failures else ""
    if not any(sweep.estimates()):
        return table([], [], f"Sweep, {counted(count, 'combination')}", failed)
    words = f"the best {MOST_ROWS} of {count}" if count > MOST_ROWS else f"{count}"
    return _study_table(
        sweep, f"Sweep, {words} combinations", [*accuracy_columns(sweep), *slots_columns(sweep)], failed
    )


def _study_table(results: Comparison | Sweep, what: str, columns: list[Column], note: str) -> str:
    header = [*case_columns(results), *(column.header.replace("\n", " ") for column in columns)]
    return table(header, table_rows(results, columns), titled(what, results), note)
