"""Sweeps: every combination of a grid with every seed, as independent runs, and one table of all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedslot.experiments.estimates import Estimate, may_be_best
from fedslot.experiments.grid import GridStudy, say_value
from fedslot.experiments.measures import TARGETS, MeasuredStudy, check_targets, write_tables
from fedslot.experiments.pool import failure_of
from fedslot.experiments.study import SEEDS, compute
from fedslot.experiments.tasks import Listener, Settings
from fedslot.runs.results import Result
from fedslot.scenario import Scenario, as_scenario
from fedslot.support import display
from fedslot.support.errors import InputError, RefusedError, counted, one_of
from fedslot.support.yaml_text import YAMLError, parse_yaml

NOT_FINISHED = "not finished"  # the reason of runs that were interrupted or have not begun


@dataclass(frozen=True, repr=False)
class Sweep(MeasuredStudy):
    """The results of a study.

    runs: results, combination by combination, each in the order of its seeds; None where a run failed.
    failures: the reasons of failures, by index in `runs`.
    """

    study: GridStudy
    runs: list[Result | None]
    failures: dict[int, str]
    targets: tuple[float, ...] = TARGETS

    @property
    def base(self) -> Scenario:
        return self.study.scenario

    @property
    def cases(self) -> list[tuple[Mapping[str, object], Mapping[int, Result | None]]]:
        runs, seeds = iter(self.runs), self.study.all_seeds
        return [
            ({key: table_entry(value) for key, value in each.items()}, {seed: next(runs) for seed in seeds})
            for each in self.study.combinations
        ]

    def measures(self) -> pd.DataFrame:
        """Return one row per run: the values of the axes, seed, every measure, and the reason of a failure."""
        return self._measures.assign(failure=[self.failures.get(index, "") for index in range(len(self.runs))])

    def estimates(self) -> list[dict[str, Estimate]]:
        """Return estimates by measure, for each combination in the order of `study.combinations`."""
        return [dict(estimates) for estimates in self._estimates]

    def leaders(self, measure: str, among: Sequence[int] | None = None) -> list[int]:
        """Return the combinations that may be the best by a measure, by index, the one with the best mean first.

        The best is among them with 95% confidence, by paired t-tests over seeds (`may_be_best`); fewer than three seeds
        rule out nothing. Combinations of which a run failed or missed the target are not compared.

        among: indices of the combinations to compare, by default all.
        """
        names = dict.fromkeys(name for estimates in self._estimates for name in estimates)
        if names and measure not in names:
            raise InputError("measure", measure, one_of(measure, names))
        cells = range(len(self._estimates)) if among is None else among
        estimates = {index: self._estimates[index][measure] for index in cells if measure in self._estimates[index]}
        whole = [index for index, estimate in estimates.items() if estimate.complete]
        if not whole:
            return []
        values = np.array([estimates[index].values for index in whole])
        fewer = measure.startswith("slots_to_") or (not self.score.higher and self.score.name in measure)
        best = int(values.mean(axis=1).argmin() if fewer else values.mean(axis=1).argmax())
        rivals = np.flatnonzero(may_be_best(values, lower_is_better=fewer))
        return [whole[best], *(whole[index] for index in rivals if index != best)]

    def plot(self, measure: str | None = None) -> NDArray[Any]:
        """Draw a measure over the grid, as a heat map or as curves, and return the axes of its panels.

        measure: `accuracy_at_horizon`, `final_accuracy`, or a name that `slots_measure` returns; other tasks have
            their score in the names of the first two. None: the first.
        """
        measure = measure or self.horizon_measure
        names = [self.final_measure, self.horizon_measure, *map(self.slots_measure, self.targets)]
        if measure not in names:
            raise InputError("measure", measure, one_of(measure, names))
        if not any(self._estimates):
            raise RefusedError(f"there is nothing to draw: {self.failed}")
        drawn: NDArray[Any] = display.plot(self, measure)
        return drawn

    def __repr__(self) -> str:
        axes = " x ".join(f"{key} ({len(values)})" for key, values in self.study.grid.items())
        failed = f", {len(self.failures)} runs failed" if self.failures else ""
        return f"Sweep({axes}: {counted(self.study.seeds, 'seed')}{failed})"

    @property
    def failed(self) -> str:
        """How many of the runs failed, in words."""
        return f"{len(self.failures)} of {len(self.runs)} runs failed"

    def save(self, out: str | Path) -> None:
        """Write `runs.csv` (one row per run) and `sweep.csv` (estimates)."""
        write_tables(out, {"runs.csv": self.measures(), "sweep.csv": self.table()})


class FailedRunsError(RefusedError):
    """Runs of a sweep failed; `sweep` has the results of all, and is saved."""

    def __init__(self, line: str, sweep: Sweep) -> None:
        super().__init__(line)
        self.sweep = sweep


def sweep(
    scenario: Scenario | str | Path,
    grid: Mapping[str, Sequence[Any]],
    seeds: int = SEEDS,
    out: str | Path | None = None,
    *,
    targets: Sequence[float] = TARGETS,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    force: bool = False,
    dask: str | None = None,
    listener: Listener | None = None,
    frames: bool = False,
    on_failure: Literal["raise", "record"] = "raise",
    progress: bool | None = None,
) -> Sweep:
    """Run every combination of a grid with every seed. A run that fails does not stop the others.

    grid: values to try, by dotted key; lists, ranges or NumPy arrays.
    seeds: number of seeds of each combination; the scenario's seed is the first.
    frames: whether each run keeps the trace of its frames, `frames.csv`. The other arguments are those of `compare`.
    on_failure: what to do about failed runs when all are over and saved: `raise` a FailedRunsError, whose `sweep` has
        the others, or only `record` them in `Sweep.failures`. If all runs failed, the error is always raised.

    >>> from fedslot import Scenario, sweep
    >>> quick = Scenario.load("quickstart", {"rounds": 2})
    >>> swept = sweep(quick, {"frame.pull": [2, 5]}, seeds=1, workers=1)
    >>> swept.measures()[["frame.pull", "seed", "rounds"]]
       frame.pull  seed  rounds
    0           2     0       2
    1           5     0       2
    """
    if on_failure not in ("raise", "record"):
        raise InputError("on_failure", on_failure, "raise or record")
    study = GridStudy(as_scenario(scenario), grid, seeds)
    goals = check_targets(targets, study.scenario)

    def make(runs: list[Result | None], failures: dict[int, str]) -> Sweep:
        return Sweep(study, runs, failures, goals)

    settings = Settings(threads, resume, frames)
    results = compute(study, out, make, settings, workers, dask, force, listener, progress)
    if results.failures and (on_failure == "raise" or len(results.failures) == len(results.runs)):
        error = failure_of(study.tasks(Path(out or ".")), results.failures)
        raise FailedRunsError(str(error), results)
    return results


def table_entry(value: object) -> object:
    """Return a value as an entry of a table: numbers and plain text as they are, others as in `--grid`.

    Text that YAML would read as something else is in quotes there.
    """
    if isinstance(value, str):
        with suppress(YAMLError):
            if parse_yaml(value) == value:
                return value
    return value if isinstance(value, int | float) else say_value(value)
