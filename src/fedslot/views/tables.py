"""The tables of comparisons and sweeps: columns, which notebooks and reports share, and their look in a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import LEAST, Estimate, describe
from fedslot.experiments.grid import say_value
from fedslot.experiments.sweeps import NOT_FINISHED, Sweep
from fedslot.learning.tasks import score_of
from fedslot.runs.execution import load
from fedslot.support.errors import counted, say_time
from fedslot.views.live.watched import ROUNDS, WatchedFolder

MOST_ROWS = 12  # number of combinations in a table of a sweep, whose sweep.csv has all, and of runs under way


@dataclass(frozen=True)
class Column:
    """A column of estimates, one for each case; None leaves a cell empty.

    header: may have two lines. form, factor: of the numbers. marks: what stands before each estimate.
    """

    header: str
    estimates: Sequence[Estimate | None]
    form: str = ".0f"
    factor: float = 1.0
    marks: Sequence[str] | None = None

    def cells(self, gap: str = " ") -> list[str]:
        """Return the estimates as text; gap: between a number and its interval."""
        texts = [each.text(self.form, self.factor, gap) if each else "" for each in self.estimates]
        return [mark + text for mark, text in zip(self.marks, texts, strict=True)] if self.marks else texts

    @property
    def reached(self) -> bool:
        """Whether at least one run has a value."""
        return any(estimate.count for estimate in self.estimates if estimate)


def case_columns(results: Comparison | Sweep) -> dict[str, list[str]]:
    """Return what tells the cases apart, by header: the strategy, or the values of the axes."""
    if isinstance(results, Comparison):
        return {"strategy": results.strategies}
    study = results.study
    return {key: [say_value(combination[key]) for combination in study.combinations] for key in study.grid}


def measured(results: Comparison | Sweep, measure: str) -> list[Estimate]:
    """Return the estimates of a measure, case by case."""
    estimates = results.estimates()
    return [case[measure] for case in (estimates.values() if isinstance(estimates, dict) else estimates)]


def accuracy_columns(results: Comparison | Sweep) -> list[Column]:
    """Return the accuracies in the end and at the horizon, or the other scores of the task."""
    label, form = results.score.label, ".3f" if results.score.share else ".4g"
    at_horizon = Column(f"{label} at\n{results.horizon} slots", measured(results, results.horizon_measure), form)
    return [Column(f"final\n{label}", measured(results, results.final_measure), form), at_horizon]


def privacy_columns(results: Comparison | Sweep) -> list[Column]:
    """Return the largest epsilon of any UE, if updates are clipped and noisy."""
    estimates = results.estimates()
    cases = estimates.values() if isinstance(estimates, dict) else estimates
    known = all("epsilon" in case and case["epsilon"].count for case in cases)
    return [Column("epsilon", measured(results, "epsilon"), ".3g")] if known else []


def difference_column(
    comparison: Comparison, header: str, measure: str | None = None, form: str = "+.2f", factor: float = 100
) -> Column:
    """Return the paired differences of a measure from the first strategy, which has none itself.

    measure: by default the accuracy at the horizon in percentage points, or another score as it is.
    """
    if measure is None and not comparison.score.share:
        form, factor = "+.4g", 1
    differences = comparison.differences(measure)
    return Column(header, [differences.get(name) for name in comparison.strategies], form, factor)


def slots_columns(results: Comparison | Sweep) -> list[Column]:
    """Return the slots to each target accuracy."""
    names = {f"slots\nto {target:g}": results.slots_measure(target) for target in results.targets}
    return [Column(header, measured(results, name)) for header, name in names.items()]


def shown_cases(results: Comparison | Sweep) -> list[int]:
    """Return the cases in tables, by index: of many combinations, those with the best score at the horizon."""
    scores, sign = measured(results, results.horizon_measure), 1 if results.score.higher else -1
    means = [sign * score.mean if score.complete else -math.inf for score in scores]
    most = MOST_ROWS if isinstance(results, Sweep) else len(means)
    return sorted(sorted(range(len(means)), key=lambda index: -means[index])[:most])


def table_rows(results: Comparison | Sweep, columns: Sequence[Column], gap: str = " ") -> list[list[str]]:
    """Return the rows of a table as text: what tells the cases apart, and their estimates."""
    rows = list(zip(*case_columns(results).values(), *(column.cells(gap) for column in columns), strict=True))
    return [list(rows[index]) for index in shown_cases(results)]


def titled(what: str, results: Comparison | Sweep) -> str:
    """Return the title of a table, which says what its numbers are."""
    kind = describe(len(results.seeds) if isinstance(results, Comparison) else results.study.seeds)
    return f"{what}: {kind}" if kind else what


def study_tables(results: Comparison | Sweep, console: Console) -> list[Table]:
    """Return the tables of a comparison or a sweep in a terminal."""
    return _comparison_tables(results, console) if isinstance(results, Comparison) else [_sweep_table(results, console)]


def runs_table(watched: WatchedFolder) -> Table:
    """Return how far the runs are that have begun and are not finished; of many, the first ones."""
    begun = [run for run in watched.runs if not run.is_finished and (run.folder / ROUNDS).is_file()]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    for header in ("rounds", "slots", score_of(watched.runs[0].scenario).label):
        table.add_column(header, justify="right")
    for run in begun[:MOST_ROWS]:
        result = load(run.folder)
        score = f"{result.final_score:.3f}" if len(result.rounds) else ""
        table.add_row(run.label, str(len(result.rounds)), say_time(result.slots_spent), score)
    if len(begun) > MOST_ROWS:
        table.caption = f"The first {MOST_ROWS} of {len(begun)} runs that are under way."
    return table


def _comparison_tables(comparison: Comparison, console: Console) -> list[Table]:
    """Return a table of accuracies with paired differences, and one of slots to the targets that were reached."""
    seeds, accuracies, slots = len(comparison.seeds), accuracy_columns(comparison), slots_columns(comparison)
    notes = []
    if len(comparison.strategies) > 1:
        accuracies.append(difference_column(comparison, f"difference at\n{comparison.horizon} slots"))
        paired = ", paired seed by seed" if seeds > 1 else ""
        points = " in percentage points" if comparison.score.share else ""
        notes.append(f"Differences to {comparison.strategies[0]}{points}{paired}.")
        if seeds >= LEAST:
            notes.append("An interval that contains 0 shows no difference.")
    what = comparison.score.label[:1].upper() + comparison.score.label[1:]
    accuracies += privacy_columns(comparison)
    reached = [replace(column, header=column.header.removeprefix("slots\n")) for column in slots if column.reached]
    if not reached:
        return [_fitting(console, comparison, what, accuracies, notes + _missed(slots))]
    return [
        _fitting(console, comparison, what, accuracies, notes),
        _fitting(console, comparison, "Slots to target accuracies", reached, _slots_notes(comparison, slots)),
    ]


def _sweep_table(sweep: Sweep, console: Console) -> Table:
    """Return a table of the combinations; of many, those with the best accuracy at the horizon."""
    (final, at_horizon), slots = accuracy_columns(sweep), slots_columns(sweep)
    count, notes = len(final.estimates), _slots_notes(sweep, slots)
    leaders = sweep.leaders(sweep.horizon_measure)
    if tested := sweep.study.seeds >= LEAST:
        notes.append(
            f"*: a paired t-test over seeds does not tell it from the best {sweep.score.label} at these slots (bold)."
        )
    marks = ["* " if tested and index in leaders else "  " for index in range(count)]
    columns = [final, replace(at_horizon, marks=marks), *privacy_columns(sweep)]
    columns += [column for column in slots if column.reached]
    best = f"The best {MOST_ROWS} of " if count > MOST_ROWS else ""
    return _fitting(console, sweep, f"{best}{counted(count, 'combination')}", columns, notes, leaders[:1])


def _fitting(
    console: Console,
    results: Comparison | Sweep,
    what: str,
    columns: Sequence[Column],
    notes: Sequence[str],
    best: Sequence[int] = (),
) -> Table:
    """Return a table with each estimate in a line, or with its interval in a second line if that is too wide.

    best: cases in bold.
    """
    cases, table = case_columns(results), Table()
    failures = _failures(results) if isinstance(results, Sweep) else {}
    for gap in (" ", "\n"):
        table = Table(title=titled(what, results), box=SIMPLE_HEAD, caption=" ".join(notes))
        for header in cases:
            justify: JustifyMethod = "left" if isinstance(results, Comparison) else "right"
            table.add_column("\n".join(header.rsplit(".", 1)), justify=justify, overflow="fold")
        for column in columns:  # broken rather than cut where even two lines are too wide
            table.add_column(column.header, justify="right", no_wrap=gap == " ", overflow="fold")
        for index, cells in zip(shown_cases(results), table_rows(results, columns, gap), strict=True):
            shown = [*cells[: len(cases)], failures[index]] if index in failures else cells
            table.add_row(*shown, style="bold" if index in best else None)
        if Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width:
            break
    return table


def _failures(sweep: Sweep) -> dict[int, str]:
    """Return why a combination has no result, for those of which no run has."""
    seeds, failures = sweep.study.seeds, {}
    for index in range(len(sweep.study.combinations)):
        reasons = [sweep.failures.get(run) for run in range(index * seeds, (index + 1) * seeds)]
        if all(reasons):
            failures[index] = NOT_FINISHED if set(reasons) == {NOT_FINISHED} else "failed"
    return failures


def _slots_notes(results: Comparison | Sweep, columns: Sequence[Column]) -> list[str]:
    """Return what a reader must know of the slots to target accuracies."""
    rule = results.base.cost_rule.name
    words = {"max": "Slots up to the last received update of each frame.", "frame": "All announced slots."}
    notes = [words.get(rule, f"Slots by the cost rule {rule}.")]
    estimates = [estimate for column in columns for estimate in column.estimates if estimate]
    if any(each.total >= LEAST and 0 < each.count < each.total for each in estimates):
        notes.append(f"k of {estimates[0].total}: k runs reached the target; the median is over all runs.")
    return notes + _missed(columns)


def _missed(columns: Sequence[Column]) -> list[str]:
    """Return a sentence on the targets that no run reached, if there are any."""
    missed = [column.header.split()[-1] for column in columns if not column.reached]
    return [f"No run reached {', '.join(missed)}."] if missed else []
