"""What is measured of the runs of a study, and the tables of it that comparisons and sweeps share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedslot.experiments.estimates import COLUMNS, Estimate, Scale, scale_of
from fedslot.learning.tasks import Score, score_of
from fedslot.messages import Time
from fedslot.runs.folders import write_atomically
from fedslot.runs.results import Result, Rule
from fedslot.scenario import Scenario
from fedslot.support import display
from fedslot.support.errors import InputError

TARGETS = (0.7, 0.8, 0.9)
MOST_TARGETS = 20  # each is a column of tables and a panel of a figure
RULES: tuple[Rule, ...] = ("max", "frame", "sum")


def measure(result: Result, horizon: Time, targets: Sequence[float]) -> dict[str, float]:
    """Return the measures of a run that are compared.

    horizon: slots at which accuracies are compared; targets: accuracies to reach. Tasks with another score have its
    name in place of the accuracy's.
    """
    measures = {
        "rounds": len(result.rounds),
        "slots_spent": result.slots_spent,
        f"final_{result.score.name}": result.final_score,
        f"{result.score.name}_at_horizon": result.accuracy_at(horizon),
    }
    if (privacy := result.privacy()) is not None and math.isfinite(privacy.largest):
        measures["epsilon"] = privacy.largest
    for target in targets:
        for rule in RULES:
            measures[f"slots_to_{target:g}_{rule}"] = result.slots_to(target, rule)
        if (own := result.scenario.rule_label) not in RULES:
            measures[f"slots_to_{target:g}_{own}"] = result.slots_to(target)
    return measures


def common_horizon(results: Iterable[Result]) -> Time:
    """Return the slots at which accuracies of runs are compared: the last at which the accuracy of each run is known.

    That is the least that any run spent; a run that ended because no further frame fits its time budget counts as
    having spent that budget. Runs that spend no slots at all are left out, their accuracy costs nothing.
    """
    ends = []
    for result in results:
        budget, out_of_rounds = result.scenario.time_budget, len(result.rounds) >= result.scenario.rounds
        if result.slots_spent:
            ends.append(result.slots_spent if budget is None or out_of_rounds else budget)
    return min(ends, default=0)


def check_targets(targets: Sequence[float], scenario: Scenario) -> tuple[float, ...]:
    """Return the targets of a study; refuse those that are no scores, that have the same name in tables, or too many.

    The usual targets are accuracies: in tasks whose score is no share there are none unless they are given.
    """
    score = score_of(scenario)
    if not score.share and tuple(targets) == TARGETS:
        return ()
    if len(targets) > MOST_TARGETS:
        raise InputError("targets", f"{len(targets)} values", f"at most {MOST_TARGETS} values")
    for target in targets:
        if score.share and not 0 < target <= 1:
            raise InputError("targets", target, "accuracies above 0 and at most 1")
    if len({f"{target:g}" for target in targets}) < len(targets):
        raise InputError("targets", list(targets), "different from each other, also when rounded to six digits")
    return tuple(targets)


class MeasuredStudy(ABC):
    """Results of a study: cases, each with a run per seed, and the measures of all runs."""

    targets: tuple[float, ...]

    @property
    @abstractmethod
    def base(self) -> Scenario:
        """The scenario that all cases share."""

    @property
    @abstractmethod
    def cases(self) -> list[tuple[Mapping[str, object], Mapping[int, Result | None]]]:
        """The columns that tell each case from the others, and its results by seed; None where a run failed."""

    @property
    def horizon(self) -> Time:
        """Slots at which accuracies are compared, as `common_horizon` has it."""
        return common_horizon(run for _, runs in self.cases for run in runs.values() if run is not None)

    @property
    def score(self) -> Score:
        """The number by which models are compared: the accuracy, or the other score of the task."""
        return score_of(self.base)

    @property
    def scale(self) -> Scale:
        """The scale on which intervals of scores are computed."""
        return scale_of(self.score.name)

    @property
    def final_measure(self) -> str:
        """Name of the measure of scores in the end: `final_accuracy` in most tasks."""
        return f"final_{self.score.name}"

    @property
    def horizon_measure(self) -> str:
        """Name of the measure of scores at the horizon: `accuracy_at_horizon` in most tasks."""
        return f"{self.score.name}_at_horizon"

    def slots_measure(self, target: float) -> str:
        """Return the name of the measure of slots to a target accuracy, by the scenario's cost rule."""
        return f"slots_to_{target:g}_{self.base.rule_label}"

    def measures(self) -> pd.DataFrame:
        """Return one row per run: its case, seed and every measure."""
        return self._measures.copy()

    @cached_property
    def _measures(self) -> pd.DataFrame:
        rows, horizon = [], self.horizon
        for case, runs in self.cases:
            for seed, run in runs.items():
                measures = {} if run is None else measure(run, horizon, self.targets)
                rows.append({**case, "seed": seed, **measures, **case})  # an axis may be called as a measure
        return pd.DataFrame(rows)

    @cached_property
    def _estimates(self) -> list[dict[str, Estimate]]:
        """Estimates by measure, for each case."""
        measures = self._measures.drop(columns=[*self.cases[0][0], "seed"])
        cases = [index for index, (_, runs) in enumerate(self.cases) for _ in runs]
        return [
            {str(name): Estimate.of(rows[name].to_numpy(dtype=float), scale_of(str(name))) for name in measures.columns}
            for _, rows in measures.groupby(cases)
        ]

    def table(self) -> pd.DataFrame:
        """Return a tidy table of all estimates: case, measure, mean, low, high, median, count, total."""
        return pd.DataFrame(
            [
                {**case, "measure": name, **estimate.row()}
                for (case, _), estimates in zip(self.cases, self._estimates, strict=True)
                for name, estimate in estimates.items()
            ],
            columns=[*self.cases[0][0], "measure", *COLUMNS],
        )

    @abstractmethod
    def save(self, out: str | Path) -> None:
        """Write the tables into a folder."""

    def _repr_html_(self) -> str:
        return display.html(self)


def write_tables(out: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as CSV files, by their names."""
    for name, table in tables.items():
        write_atomically(Path(out) / name, table.to_csv(index=False))
