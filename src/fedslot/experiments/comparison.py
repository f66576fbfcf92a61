"""Compare strategies: paired runs over seeds, means with confidence intervals, slots counted in two ways."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from fedslot.experiments.curves import curves_over
from fedslot.experiments.estimates import COLUMNS, Estimate, difference_scale_of
from fedslot.experiments.measures import TARGETS, MeasuredStudy, write_tables
from fedslot.experiments.study import compute
from fedslot.experiments.tasks import Listener, Settings, Task
from fedslot.experiments.variants import Strategies, VariantStudy, make_variants
from fedslot.runs.results import Result, X
from fedslot.scenario import Scenario, as_scenario
from fedslot.support import display
from fedslot.support.errors import InputError, counted, first_names, one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Comparison(MeasuredStudy):
    """Results of several strategies under the same seeds.

    runs: results by strategy, or by the label of a variant, each in the order of `seeds`.
    missing: folders of runs that are not finished and not in `runs`; only a loaded comparison has such.
    """

    scenario: Scenario
    seeds: list[int]
    runs: dict[str, list[Result]]
    targets: tuple[float, ...]
    missing: tuple[str, ...] = ()

    @property
    def strategies(self) -> list[str]:
        """Names of the strategies, in the given order."""
        return list(self.runs)

    @property
    def base(self) -> Scenario:
        return self.scenario

    @property
    def cases(self) -> list[tuple[Mapping[str, object], Mapping[int, Result | None]]]:
        return [({"strategy": name}, dict(zip(self.seeds, runs, strict=True))) for name, runs in self.runs.items()]

    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Return the estimates by strategy and measure."""
        return {name: dict(estimates) for name, estimates in zip(self.runs, self._estimates, strict=True)}

    def differences(self, measure: str | None = None, reference: str | None = None) -> dict[str, Estimate]:
        """Return the paired differences to the reference strategy, by default the first, over seeds.

        measure: by default the accuracy at the horizon, or the other score of the task.
        """
        measure = measure or self.horizon_measure
        if measure not in self._measures:
            raise InputError("measure", measure, one_of(measure, [*self._measures.columns[2:]]))
        table = self._measures.pivot(index="seed", columns="strategy", values=measure)
        reference, scale = reference or self.strategies[0], difference_scale_of(measure)
        if reference not in table:
            raise InputError("reference", reference, one_of(reference, self.strategies))
        return {
            strategy: Estimate.of((table[strategy] - table[reference]).to_numpy(dtype=float), scale)
            for strategy in self.strategies
            if strategy != reference
        }

    def difference_table(self) -> pd.DataFrame:
        """Return a tidy table of the paired differences to the first strategy, with the columns of `table`."""
        measures = self._measures.columns.drop(["strategy", "seed"])
        rows = [
            {"strategy": strategy, "measure": measure, **estimate.row()}
            for measure in measures
            for strategy, estimate in self.differences(measure).items()
        ]
        return pd.DataFrame(rows, columns=["strategy", "measure", *COLUMNS])

    def ranks(self) -> dict[str, float]:
        """Return the mean accuracy at the horizon by strategy; minus infinity where there is none.

        Of scores that are better if lower, the sign is flipped.
        """
        sign = 1 if self.score.higher else -1
        scores = {name: estimates[self.horizon_measure] for name, estimates in self.estimates().items()}
        return {name: sign * estimate.mean if estimate.complete else -math.inf for name, estimate in scores.items()}

    @property
    def tables(self) -> dict[str, list[pd.DataFrame]]:
        """The tables of rounds by strategy, each in the order of `seeds`."""
        return {name: [result.rounds for result in results] for name, results in self.runs.items()}

    def curve(self, strategy: str, x: X = "slots") -> pd.DataFrame:
        """Return the curve of a strategy, as `plot` draws it: `x`, `mean` accuracy, and its 95% band, `low` to `high`.

        The band is NaN with fewer than three seeds. x: slots, rounds, seconds or joules.
        """
        if strategy not in self.runs:
            raise InputError("strategy", strategy, one_of(strategy, self.runs))
        curves, levels = curves_over(x, self.tables, self.scale)
        if strategy in levels:
            raise InputError("strategy", strategy, f"one that spends {x}")
        return curves[strategy].table()

    def plot(self, x: X = "slots", axes: Axes | None = None, size: Literal["screen", "column"] = "screen") -> Axes:
        """Draw the test accuracy of all strategies over slots or rounds, the mean over seeds with its 95% band.

        They are drawn in given axes or in a new figure, and the axes are returned. Of many strategies the best three
        have bands. size: of a new figure, for a screen or for a column of a two-column paper.
        """
        drawn: Axes = display.plot(self, x, axes, size)
        return drawn

    def __repr__(self) -> str:
        seeds = counted(len(self.seeds), "seed")
        return f"Comparison({', '.join(self.strategies)}: {seeds}, horizon of {self.horizon} slots)"

    def save(self, out: str | Path) -> None:
        """Write `comparison.csv` (estimates), `differences.csv` (paired) and `runs.csv` (one row per run)."""
        tables = {"comparison.csv": self.table(), "differences.csv": self.difference_table()}
        write_tables(out, {**tables, "runs.csv": self._measures})


def compare(
    scenario: Scenario | str | Path,
    strategies: Strategies,
    seeds: int = 3,
    out: str | Path | None = None,
    *,
    targets: Sequence[float] = TARGETS,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    force: bool = False,
    dask: str | None = None,
    listener: Listener | None = None,
    frames: bool = True,
    progress: bool | None = None,
) -> Comparison:
    """Run strategies under the same seeds and compare them.

    scenario: a scenario, or the name of a preset or YAML file.
    strategies: a list of names, of variants such as `ucb{exploration: 2}` or `push-pull+fedadam`, of classes of your
        own, or a mapping from labels to overrides, e.g. `{"long": {"training.epochs": 9}}`.
    seeds: number of seeds; the scenario's seed is the first.
    out: folder for the runs and tables; None uses a temporary one.
    resume: continue the comparison in the folder, also with more strategies and seeds.
    force: start over in a folder that holds a comparison, which is deleted.
    dask: address of a Dask scheduler whose workers do the runs.
    frames: whether each run keeps the trace of its frames, `frames.csv`.
    progress: whether to show bars; None: in a notebook only. listener: called with the rounds of all runs instead.

    >>> from fedslot import Scenario, compare
    >>> quick = Scenario.load("quickstart", {"rounds": 2})
    >>> compare(quick, ["fedavg", "push-pull"], seeds=1, workers=1).strategies
    ['fedavg', 'push-pull']
    """
    study = VariantStudy(as_scenario(scenario), make_variants(strategies), seeds, tuple(targets))

    def make(results: list[Result | None], failures: dict[int, str]) -> Comparison:
        whole, count = [result for result in results if result is not None], study.seeds
        runs = {label: whole[i * count : (i + 1) * count] for i, label in enumerate(study.labels)}
        return Comparison(study.scenario, [*study.all_seeds], runs, study.targets)

    settings = Settings(threads, resume, frames)
    return compute(study, out, make, settings, workers, dask, force, listener, progress)


def left_out(out: Path, tasks: Sequence[Task]) -> list[str]:
    """Return a line about the finished runs in a folder that are none of these tasks; no line if there are none."""
    wanted = {task.folder.name for task in tasks}
    others = [file.parent.name for file in sorted(out.glob("runs/*/summary.json")) if file.parent.name not in wanted]
    return [f"tables and figures leave out the runs {first_names(others)} in {out}"] if others else []
