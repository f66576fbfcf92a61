"""The tables of comparisons and sweeps in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import LEAST, Estimate, describe
from fedslot.experiments.grid import say_value
from fedslot.experiments.measures import MeasuredStudy
from fedslot.experiments.sweeps import NOT_FINISHED, Sweep
from fedslot.runs.execution import load
from fedslot.scenario import Scenario
from fedslot.support.errors import counted
from fedslot.views.live.watched import ROUNDS, Plan

MOST_ROWS = 12  # number of combinations in a table of a sweep, whose sweep.csv has all, and of runs under way

Slots = Mapping[float, Estimate]
"""Slots to target accuracies, by target: a row of a table."""


def comparison_tables(comparison: Comparison, console: Console) -> list[Table]:
    """Return a table of accuracies with paired differences, and one of slots to the targets that were reached."""
    accuracies = _fitting(console, partial(_accuracies, comparison))
    slots = [_slots_to_targets(comparison, estimates) for estimates in comparison.estimates().values()]
    if _reached(slots):
        return [accuracies, _fitting(console, partial(_slots, comparison, slots))]
    accuracies.caption = f"{accuracies.caption or ''} {_missed(slots)}".strip()
    return [accuracies]


def runs_table(plan: Plan) -> Table:
    """Return how far the runs are that have begun and are not finished; of many, the first ones."""
    begun = [run for run in plan.runs if not run.is_finished and (run.folder / ROUNDS).is_file()]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    for header in ("rounds", "slots", "accuracy"):
        table.add_column(header, justify="right")
    for run in begun[:MOST_ROWS]:
        result = load(run.folder)
        accuracy = f"{result.final_accuracy:.3f}" if len(result.rounds) else ""
        table.add_row(run.label, str(len(result.rounds)), str(result.slots_spent), accuracy)
    if len(begun) > MOST_ROWS:
        table.caption = f"The first {MOST_ROWS} of {len(begun)} runs that are under way."
    return table


def sweep_table(sweep: Sweep, console: Console) -> Table:
    """Return a table of the combinations; of many, those with the best accuracy at the horizon."""
    return _fitting(console, partial(_combinations, sweep))


def best_cases(estimates: Sequence[Mapping[str, Estimate]]) -> list[int]:
    """Return the cases that a table shows, by index: of many, those with the best accuracy at the horizon."""

    def rank(index: int) -> float:
        accuracy = estimates[index].get("accuracy_at_horizon")
        return -accuracy.mean if accuracy is not None and accuracy.complete else math.inf

    return sorted(sorted(range(len(estimates)), key=rank)[:MOST_ROWS])


def _fitting(console: Console, make: Callable[[str], Table]) -> Table:
    """Return the table with each estimate in a line, or with its interval in a second line if that is too wide.

    make: returns the table, given what stands between a number and its interval.
    """
    table = make(" ")
    unlimited = console.options.update(max_width=10_000)
    return table if Measurement.get(console, unlimited, table).maximum <= console.width else make("\n")


def _accuracies(comparison: Comparison, gap: str) -> Table:
    seeds, differences = len(comparison.seeds), comparison.differences()
    table = _table("Accuracy", seeds)
    table.add_column("strategy", overflow="fold")
    _add_number(table, "final\naccuracy", gap)
    _add_number(table, f"accuracy at\n{comparison.horizon} slots", gap)
    if differences:
        _add_number(table, f"difference at\n{comparison.horizon} slots", gap)
        paired = ", paired seed by seed" if seeds > 1 else ""
        table.caption = f"Differences to {comparison.strategies[0]} in percentage points{paired}."
        if seeds >= LEAST:
            table.caption += " An interval that contains 0 shows no difference."
    for strategy, estimates in comparison.estimates().items():
        cells = [estimates[name].text(".3f", gap=gap) for name in ("final_accuracy", "accuracy_at_horizon")]
        if strategy in differences:
            cells.append(differences[strategy].text("+.2f", factor=100, gap=gap))
        table.add_row(strategy, *cells)
    return table


def _slots(comparison: Comparison, rows: Sequence[Slots], gap: str) -> Table:
    table = _table("Slots to target accuracies", len(comparison.seeds))
    table.add_column("strategy", overflow="fold")
    reached = _reached(rows)
    for target in reached:
        _add_number(table, f"to {target:g}", gap)
    for strategy, cells in zip(comparison.strategies, rows, strict=True):
        table.add_row(strategy, *(cells[target].text(".0f", gap=gap) for target in reached))
    table.caption = _slots_notes(comparison.scenario, rows)
    return table


def _slots_to_targets(study: MeasuredStudy, estimates: Mapping[str, Estimate]) -> Slots:
    """Return the slots to target accuracies of one case; those whose runs all failed have none."""
    names = {target: study.slots_measure(target) for target in study.targets}
    return {target: estimates[name] for target, name in names.items() if name in estimates}


def _combinations(sweep: Sweep, gap: str) -> Table:
    study, estimates = sweep.study, sweep.estimates()
    leaders = sweep.leaders("accuracy_at_horizon")
    best = f"The best {MOST_ROWS} of " if len(estimates) > MOST_ROWS else ""
    table = _table(f"{best}{counted(len(estimates), 'combination')}", study.seeds)
    for key in study.grid:
        table.add_column("\n".join(key.rsplit(".", 1)), justify="right", overflow="fold")
    _add_number(table, "final\naccuracy", gap)
    _add_number(table, f"accuracy at\n{sweep.horizon} slots", gap)
    slots = [_slots_to_targets(sweep, cell) for cell in estimates]
    reached = _reached(slots)
    for target in reached:
        _add_number(table, f"slots\nto {target:g}", gap)
    for index in best_cases(estimates):
        cells = [say_value(value) for value in study.combinations[index].values()]
        if not estimates[index]["final_accuracy"].count:
            reasons = {sweep.failures[index * study.seeds + seed] for seed in range(study.seeds)}
            table.add_row(*cells, NOT_FINISHED if reasons == {NOT_FINISHED} else "failed")
            continue
        mark = "*" if study.seeds >= LEAST and index in leaders else " "
        cells.append(estimates[index]["final_accuracy"].text(".3f", gap=gap))
        first, *rest = estimates[index]["accuracy_at_horizon"].text(".3f", gap=gap).split("\n")
        cells.append("\n".join([f"{mark} {first}", *rest]))
        cells += [slots[index][target].text(".0f", gap=gap) for target in reached]
        table.add_row(*cells, style="bold" if index in leaders[:1] else None)
    table.caption = _slots_notes(study.scenario, slots)
    if study.seeds >= LEAST:
        table.caption += " *: a paired t-test over seeds does not tell it from the best accuracy at these slots (bold)."
    return table


def _table(title: str, seeds: int) -> Table:
    """Return an empty table whose title says what its numbers are."""
    kind = describe(seeds)
    return Table(title=f"{title}: {kind}" if kind else title, box=SIMPLE_HEAD)


def _add_number(table: Table, header: str, gap: str) -> None:
    """Add a column of estimates, which are broken rather than cut where even two lines are too wide."""
    table.add_column(header, justify="right", no_wrap=gap == " ", overflow="fold")


def _reached(rows: Collection[Slots]) -> list[float]:
    """Return the targets that at least one run reached; the others need no column."""
    targets = next(iter(rows), {})
    return [target for target in targets if any(row[target].count for row in rows)]


def _slots_notes(scenario: Scenario, rows: Collection[Slots]) -> str:
    """Return what a reader must know of the slots to target accuracies."""
    words = {"max": "Slots up to the last received update of each frame.", "frame": "All announced slots."}
    notes = [words.get(scenario.cost_rule.name, f"Slots by the cost rule {scenario.cost_rule.name}.")]
    cells = [cell for row in rows for cell in row.values()]
    if any(cell.total >= LEAST and 0 < cell.count < cell.total for cell in cells):
        notes.append(f"k of {cells[0].total}: k runs reached the target; the median is over all runs.")
    if missed := _missed(rows):
        notes.append(missed)
    return " ".join(notes)


def _missed(rows: Collection[Slots]) -> str:
    """Return a sentence on the targets that no run reached; empty if there are none."""
    missed = [f"{target:g}" for target in next(iter(rows), {}) if target not in _reached(rows)]
    return f"No run reached {', '.join(missed)}." if missed else ""
