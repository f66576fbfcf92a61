"""Sweeps: every combination of a grid with every seed, as independent runs, and one table of all runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedslot.experiments.comparison import TARGETS, check_targets, common_horizon, measure
from fedslot.experiments.estimates import COLUMNS, Estimate, describe, may_be_best, scale_of
from fedslot.experiments.pool import check_workers, describe_failures, run_all
from fedslot.experiments.study import SEEDS, Study, folder_name, say, say_value
from fedslot.experiments.tasks import Listener, Settings, Task, check_lengths
from fedslot.runs.execution import load
from fedslot.runs.folders import SWEEP, claim, write_atomically
from fedslot.runs.records import LENGTH
from fedslot.runs.results import Result
from fedslot.scenario import Scenario, as_scenario
from fedslot.support.errors import InputError, RefusedError, counted, one_of
from fedslot.support.yaml_text import YAMLError, parse_yaml
from fedslot.views.progress import shown

MOST_ROWS = 12  # number of combinations in a table
NOT_FINISHED = "not finished"  # the reason of runs that were interrupted or have not begun


@dataclass(frozen=True, repr=False)
class Sweep:
    """The results of a study.

    runs: results, combination by combination, each in the order of its seeds; None where a run failed.
    failures: the reasons of failures, by index in `runs`.
    """

    study: Study
    runs: list[Result | None]
    failures: dict[int, str]
    targets: tuple[float, ...] = TARGETS

    @property
    def horizon(self) -> int:
        """Slots at which accuracies are compared, as `common_horizon` has it."""
        return common_horizon(run for run in self.runs if run is not None)

    def slots_measure(self, target: float) -> str:
        """Return the name of the measure of slots to a target accuracy, by the scenario's cost rule."""
        return f"slots_to_{target:g}_{self.study.scenario.rule_label}"

    def measures(self) -> pd.DataFrame:
        """Return one row per run: the values of the axes, seed, every measure, and the reason of a failure."""
        rows: list[dict[str, object]] = []
        horizon = self.horizon
        for index, run in enumerate(self.runs):
            combination = self.study.combinations[index // self.study.seeds]
            measured = {} if run is None else measure(run, horizon, self.targets)
            rows.append(
                {
                    **{key: table_entry(value) for key, value in combination.items()},
                    "seed": self.study.scenario.seed + index % self.study.seeds,
                    **{name: number for name, number in measured.items() if name not in combination},
                }
            )
        failures = [self.failures.get(index, "") for index in range(len(rows))]
        return pd.DataFrame(rows).assign(failure=failures)

    def estimates(self) -> list[dict[str, Estimate]]:
        """Return estimates by measure, for each combination in the order of `study.combinations`."""
        return [dict(estimates) for estimates in self._estimates]

    @cached_property
    def _estimates(self) -> list[dict[str, Estimate]]:
        runs, seeds = self.measures(), self.study.seeds
        measures = runs.drop(columns=[*self.study.grid, "seed", "failure"])
        return [
            {str(name): Estimate.of(rows[name].to_numpy(dtype=float), scale_of(str(name))) for name in measures.columns}
            for rows in (measures.iloc[first : first + seeds] for first in range(0, len(runs), seeds))
        ]

    def leaders(self, measure: str, among: Sequence[int] | None = None) -> list[int]:
        """Return the combinations that may be the best by a measure, by index, the one with the best mean first.

        The best is among them with 95% confidence, by paired t-tests over seeds (`may_be_best`); fewer than three seeds
        rule out nothing. Combinations of which a run failed or missed the target are not compared.

        among: indices of the combinations to compare, by default all.
        """
        known = dict.fromkeys(name for estimates in self._estimates for name in estimates)
        if known and measure not in known:
            raise InputError("measure", measure, one_of(measure, known))
        cells = range(len(self._estimates)) if among is None else among
        found = {index: self._estimates[index][measure] for index in cells if measure in self._estimates[index]}
        whole = [index for index, estimate in found.items() if estimate.complete]
        if not whole:
            return []
        values = np.array([found[index].values for index in whole])
        fewer = measure.startswith("slots_to_")
        best = int(values.mean(axis=1).argmin() if fewer else values.mean(axis=1).argmax())
        rivals = np.flatnonzero(may_be_best(values, lower_is_better=fewer))
        return [whole[best], *(whole[index] for index in rivals if index != best)]

    def table(self) -> pd.DataFrame:
        """Return a tidy table of all estimates: the values of the axes, the measure and the columns of an estimate."""
        return pd.DataFrame(
            [
                {**{key: table_entry(value) for key, value in combination.items()}, "measure": name, **estimate.row()}
                for combination, estimates in zip(self.study.combinations, self._estimates, strict=True)
                for name, estimate in estimates.items()
            ],
            columns=[*self.study.grid, "measure", *COLUMNS],
        )

    def plot(self, measure: str = "accuracy_at_horizon") -> NDArray[Any]:
        """Draw a measure over the grid, as a heat map or as curves, and return the axes of its panels.

        measure: `final_accuracy`, `accuracy_at_horizon`, or a name that `slots_measure` returns.
        """
        from fedslot.views.sweep import plot_sweep  # slow to import

        known = ["final_accuracy", "accuracy_at_horizon", *map(self.slots_measure, self.targets)]
        if measure not in known:
            raise InputError("measure", measure, one_of(measure, known))
        if not any(self._estimates):
            raise RefusedError(f"there is nothing to draw: {self._failed}")
        return plot_sweep(self, measure)

    def __repr__(self) -> str:
        axes = " x ".join(f"{key} ({len(values)})" for key, values in self.study.grid.items())
        failed = f", {len(self.failures)} runs failed" if self.failures else ""
        return f"Sweep({axes}: {counted(self.study.seeds, 'seed')}{failed})"

    def _repr_html_(self) -> str:
        from fedslot.views.html import table

        if not any(self._estimates):
            return table([], [], f"Sweep, {counted(len(self._estimates), 'combination')}", f"{self._failed}.")
        slots = [self.slots_measure(target) for target in self.targets]
        measures = {"final_accuracy": ".3f", "accuracy_at_horizon": ".3f", **dict.fromkeys(slots, ".0f")}
        header = [*self.study.grid, "final accuracy", f"accuracy at {self.horizon} slots"]
        header += [f"slots to {target:g}" for target in self.targets]
        ranked = sorted(range(len(self._estimates)), key=self._rank)
        rows = [
            [say_value(value) for value in self.study.combinations[index].values()]
            + [self._estimates[index][name].text(form) for name, form in measures.items()]
            for index in sorted(ranked[:MOST_ROWS])
        ]
        count = f"the best {MOST_ROWS} of {len(ranked)}" if len(ranked) > MOST_ROWS else f"{len(ranked)}"
        kind = describe(self.study.seeds)
        failed = f"{self._failed}." if self.failures else ""
        return table(header, rows, f"Sweep, {count} combinations{f': {kind}' if kind else ''}", failed)

    @property
    def _failed(self) -> str:
        return f"{len(self.failures)} of {len(self.runs)} runs failed"

    def _rank(self, index: int) -> float:
        estimate = self._estimates[index].get("accuracy_at_horizon")
        return -estimate.mean if estimate is not None and estimate.complete else math.inf

    def save(self, out: str | Path) -> None:
        """Write `runs.csv` (one row per run) and `sweep.csv` (estimates)."""
        out = Path(out)
        write_atomically(out / "runs.csv", self.measures().to_csv(index=False))
        write_atomically(out / "sweep.csv", self.table().to_csv(index=False))


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

    scenario: a scenario, or the name of a preset or YAML file.
    grid: values to try, by dotted key; lists, ranges or NumPy arrays.
    seeds: number of seeds of each combination; the scenario's seed is the first.
    out: folder for the runs and tables; None uses a temporary one.
    resume: continue the sweep in the folder, also with more values and seeds.
    force: start over in a folder that holds a sweep, which is deleted.
    dask: address of a Dask scheduler whose workers do the runs.
    frames: whether each run keeps the trace of its frames, `frames.csv`.
    progress: whether to show bars; None: in a notebook only. listener: called with the rounds of all runs instead.
    on_failure: what to do about failed runs when all are over and saved: `raise` a FailedRunsError, whose `sweep` has
        the others, or only `record` them in `Sweep.failures`. If all runs failed, the error is always raised.

    >>> from fedslot import Scenario, sweep
    >>> quick = Scenario.load("quickstart", {"rounds": 2})
    >>> found = sweep(quick, {"frame.pull": [2, 5]}, seeds=1, workers=1)
    >>> found.measures()[["frame.pull", "seed", "rounds"]]
       frame.pull  seed  rounds
    0           2     0       2
    1           5     0       2
    """
    if on_failure not in ("raise", "record"):
        raise InputError("on_failure", on_failure, "raise or record")
    study = Study(as_scenario(scenario), grid, seeds)
    study.check(data=dask is None)
    check_targets(targets)
    check_workers(workers, dask)
    with TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        tasks = plan_tasks(study, folder)
        same = partial(_check_same, folder, study, tasks)
        with claim(folder, SWEEP, study.to_yaml(), same, resume=resume, force=force):
            settings = Settings(threads, resume, frames)
            with shown(progress, run_labels(study, tasks), [task.scenario for task in tasks]) as display:
                heard = listener or display
                failures = run_all(tasks, settings, workers=workers, dask=dask, listener=heard)
            runs = [None if index in failures else load(task.folder) for index, task in enumerate(tasks)]
            if out is None:
                runs = [run and run.in_memory() for run in runs]
            found = Sweep(study, runs, failures, tuple(targets))
            found.save(folder)
    if failures and (on_failure == "raise" or len(failures) == len(tasks)):
        raise FailedRunsError(describe_failures(tasks, failures), found)
    return found


def plan_tasks(study: Study, out: Path) -> list[Task]:
    """Return the runs of a study, combination by combination, each with its folder below `out`."""
    return [
        Task(scenario.replace({"seed": seed}), out / "runs" / f"{folder_name(combination)}-seed{seed}")
        for combination, scenario in zip(study.combinations, study.scenarios, strict=True)
        for seed in range(study.scenario.seed, study.scenario.seed + study.seeds)
    ]


def run_labels(study: Study, tasks: Sequence[Task]) -> list[str]:
    """Return the names of the runs of a study."""
    return [
        f"{say(study.combinations[index // study.seeds])}, seed {task.scenario.seed}"
        for index, task in enumerate(tasks)
    ]


def _check_same(out: Path, study: Study, tasks: Sequence[Task]) -> None:
    """Refuse to continue a sweep of another scenario, over other axes, or with fewer rounds than its runs have.

    Values of the axes and seeds may change.
    """
    held = Study.load(out / SWEEP.marker)
    if list(held.grid) != list(study.grid):
        raise RefusedError(f"{out} holds a sweep over {', '.join(held.grid)}, not over {', '.join(study.grid)}")
    if difference := held.scenario.difference(study.scenario, apart_from=["seed", *LENGTH, *study.grid]):
        raise RefusedError(f"{out} holds a sweep of another scenario{difference}")
    check_lengths(tasks)


def table_entry(value: object) -> object:
    """Return a value as an entry of a table: numbers and plain text as they are, others as in `--grid`.

    Text that YAML would read as something else is in quotes there.
    """
    return (
        value
        if isinstance(value, int | float) or (isinstance(value, str) and _is_plain_text(value))
        else say_value(value)
    )


def _is_plain_text(text: str) -> bool:
    """Return whether YAML reads a text as itself."""
    try:
        return bool(parse_yaml(text) == text)
    except YAMLError:
        return False
