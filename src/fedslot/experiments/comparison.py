"""Compare strategies: paired runs over seeds, means with confidence intervals, costs under both rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pandas as pd

from fedslot.experiments.estimates import COLUMNS, Estimate, describe, difference_scale_of, scale_of
from fedslot.experiments.pool import check_workers, failure_of, run_all
from fedslot.experiments.study import MOST_RUNS, plain_text, unique_name
from fedslot.experiments.tasks import Listener, Settings, Task, check, check_lengths
from fedslot.experiments.variants import Strategies, Variant, make_variants, scenarios
from fedslot.runs.execution import load
from fedslot.runs.folders import COMPARISON, claim, write_atomically
from fedslot.runs.records import LENGTH
from fedslot.runs.results import Result, Rule, X
from fedslot.scenario import Scenario, as_scenario, read_fields
from fedslot.support.errors import InputError, RefusedError, counted, first_names, one_of, whole_number
from fedslot.support.plain import plain
from fedslot.support.yaml_text import write_yaml
from fedslot.views.progress import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGETS = (0.7, 0.8, 0.9)
RULES: tuple[Rule, ...] = ("max", "frame", "sum")


def measure(result: Result, horizon: int, targets: Sequence[float]) -> dict[str, float]:
    """Return the measures of a run that are compared.

    horizon: slots at which accuracies are compared; targets: accuracies to reach.
    """
    measures = {
        "rounds": len(result.rounds),
        "slots_spent": result.slots_spent,
        "final_accuracy": result.final_accuracy,
        "accuracy_at_horizon": result.accuracy_at(horizon),
    }
    for target in targets:
        for rule in RULES:
            measures[f"slots_to_{target:g}_{rule}"] = result.slots_to(target, rule)
        if (own := result.scenario.rule_label) not in RULES:
            measures[f"slots_to_{target:g}_{own}"] = result.slots_to(target)
    return measures


def common_horizon(results: Iterable[Result]) -> int:
    """Return the slots at which accuracies of runs are compared: the last at which the accuracy of each run is known.

    That is the least that any run spent; a run that ended because no further frame fits its time budget counts as
    having spent that budget. Runs that spend no slots at all are left out, their accuracy costs nothing.
    """
    known = []
    for result in results:
        budget, out_of_rounds = result.scenario.time_budget, len(result.rounds) >= result.scenario.rounds
        if result.slots_spent:
            known.append(result.slots_spent if budget is None or out_of_rounds else budget)
    return min(known, default=0)


@dataclass(frozen=True, repr=False)
class Comparison:
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
    def horizon(self) -> int:
        """Slots at which accuracies are compared, as `common_horizon` has it."""
        return common_horizon(result for results in self.runs.values() for result in results)

    def slots_measure(self, target: float) -> str:
        """Return the name of the measure of slots to a target accuracy, by the scenario's cost rule."""
        return f"slots_to_{target:g}_{self.scenario.rule_label}"

    def measures(self) -> pd.DataFrame:
        """Return one row per run: strategy, seed and every measure."""
        return self._measures.copy()

    @cached_property
    def _measures(self) -> pd.DataFrame:
        rows, horizon = [], self.horizon
        for strategy, results in self.runs.items():
            for seed, result in zip(self.seeds, results, strict=True):
                rows.append({"strategy": strategy, "seed": seed, **measure(result, horizon, self.targets)})
        return pd.DataFrame(rows)

    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Return the estimates by strategy and measure."""
        table = self._measures
        names = [name for name in table.columns if name not in {"strategy", "seed"}]
        return {
            strategy: {name: Estimate.of(rows[name].to_numpy(dtype=float), scale_of(name)) for name in names}
            for strategy, rows in table.groupby("strategy", sort=False)
            if isinstance(strategy, str)
        }

    def differences(self, measure: str = "accuracy_at_horizon", reference: str | None = None) -> dict[str, Estimate]:
        """Return the paired differences to the reference strategy, by default the first, over seeds."""
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

    def table(self) -> pd.DataFrame:
        """Return a tidy table of all estimates: strategy, measure, mean, low, high, median, count, total."""
        return pd.DataFrame(
            [
                {"strategy": strategy, "measure": measure, **estimate.row()}
                for strategy, measures in self.estimates().items()
                for measure, estimate in measures.items()
            ]
        )

    def difference_table(self) -> pd.DataFrame:
        """Return a tidy table of the paired differences to the first strategy, with the columns of `table`."""
        measures = [name for name in self._measures.columns if name not in {"strategy", "seed"}]
        return pd.DataFrame(
            [
                {"strategy": strategy, "measure": measure, **estimate.row()}
                for measure in measures
                for strategy, estimate in self.differences(measure).items()
            ],
            columns=["strategy", "measure", *COLUMNS],
        )

    def ranks(self) -> dict[str, float]:
        """Return the mean accuracy at the horizon by strategy; minus infinity where there is none."""
        found = {name: estimates["accuracy_at_horizon"] for name, estimates in self.estimates().items()}
        return {name: estimate.mean if estimate.complete else -math.inf for name, estimate in found.items()}

    def plot(self, x: X = "slots", axes: Axes | None = None) -> Axes:
        """Draw the test accuracy of all strategies over slots or rounds, the mean over seeds with its 95% band.

        They are drawn in a new figure or in given axes, which are returned. Of many strategies the best have bands.
        """
        from fedslot.views.curves import plot_accuracy  # slow to import

        tables = {name: [result.rounds for result in results] for name, results in self.runs.items()}
        return plot_accuracy(tables, x, axes, self.horizon, self.ranks())

    def __repr__(self) -> str:
        seeds = counted(len(self.seeds), "seed")
        return f"Comparison({', '.join(self.strategies)}: {seeds}, horizon of {self.horizon} slots)"

    def _repr_html_(self) -> str:
        from fedslot.views.html import table

        differences = self.differences()
        header = ["strategy", "final accuracy", f"accuracy at {self.horizon} slots"]
        header += ["difference in points"] if differences else []
        header += [f"slots to {target:g}" for target in self.targets]
        rows = []
        for name, estimates in self.estimates().items():
            row = [name, *(estimates[key].text(".3f") for key in ("final_accuracy", "accuracy_at_horizon"))]
            if differences:
                row.append(differences[name].text("+.2f", factor=100) if name in differences else "")
            rows.append(row + [estimates[self.slots_measure(target)].text(".0f") for target in self.targets])
        kind = describe(len(self.seeds))
        note = f"Differences are to {self.strategies[0]}, paired seed by seed." if differences else ""
        return table(header, rows, f"Comparison: {kind}" if kind else "Comparison", note)

    def save(self, out: str | Path) -> None:
        """Write `comparison.csv` (estimates), `differences.csv` (paired) and `runs.csv` (one row per run)."""
        out = Path(out)
        write_atomically(out / "comparison.csv", self.table().to_csv(index=False))
        write_atomically(out / "differences.csv", self.difference_table().to_csv(index=False))
        write_atomically(out / "runs.csv", self._measures.to_csv(index=False))


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
    scenario, seeds = as_scenario(scenario), plain(seeds)
    check_targets(targets)
    with TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        variants = make_variants(strategies)
        tasks = plan_tasks(scenario, variants, seeds, folder)
        for task in tasks[::seeds]:
            check(task.scenario, data=dask is None)
        check_workers(workers, dask)
        description = _describe(scenario, variants, seeds, targets)
        same = partial(_check_same, folder, scenario, tasks)
        with claim(folder, COMPARISON, description, same, resume=resume, force=force) as held:
            settings = Settings(threads, resume, frames)
            with shown(progress, run_labels(variants, tasks), [task.scenario for task in tasks]) as display:
                heard = listener or display
                failures = run_all(tasks, settings, workers=workers, dask=dask, listener=heard)
            if failures:
                held.withdraw()  # stays if there are runs to continue
                raise failure_of(tasks, failures)
            results = [load(task.folder) for task in tasks]
            if out is None:
                results = [result.in_memory() for result in results]
            labels = [variant.label for variant in variants]
            runs = {name: results[i * seeds : (i + 1) * seeds] for i, name in enumerate(labels)}
            comparison = Comparison(scenario, [scenario.seed + i for i in range(seeds)], runs, tuple(targets))
            comparison.save(folder)
    return comparison


def plan_tasks(scenario: Scenario, variants: Sequence[Variant], seeds: int, out: Path) -> list[Task]:
    """Return the runs of a comparison, variant by variant, each with its folder below `out`."""
    if type(seeds) is not int or seeds < 1:
        raise InputError("seeds", seeds, f"{whole_number(seeds)}, at least 1")
    if len(variants) * seeds > MOST_RUNS:
        most = f"at most {MOST_RUNS // len(variants)}, since {MOST_RUNS} runs are the most of a comparison"
        raise InputError("seeds", seeds, most)
    return [
        Task(chosen.replace({"seed": seed}), run_folder(out, variant, seed))
        for variant, chosen in zip(variants, scenarios(scenario, variants), strict=True)
        for seed in range(scenario.seed, scenario.seed + seeds)
    ]


def run_labels(variants: Sequence[Variant], tasks: Sequence[Task]) -> list[str]:
    """Return the names of the runs of a comparison."""
    seeds = len(tasks) // len(variants)
    return [f"{variants[index // seeds].label}, seed {task.scenario.seed}" for index, task in enumerate(tasks)]


def run_folder(out: Path, variant: Variant, seed: int) -> Path:
    """Return the folder of a run; its name is valid on every file system, and unique."""
    return out / "runs" / f"{unique_name(variant.label, plain_text(variant.label))}-seed{seed}"


def left_out(out: Path, tasks: Sequence[Task]) -> list[str]:
    """Return a line about the finished runs in a folder that are none of these tasks; no line if there are none."""
    wanted = {task.folder.name for task in tasks}
    others = [file.parent.name for file in sorted(out.glob("runs/*/summary.json")) if file.parent.name not in wanted]
    return [f"tables and figures leave out the runs {first_names(others)} in {out}"] if others else []


def _describe(scenario: Scenario, variants: Sequence[Variant], seeds: int, targets: Sequence[float]) -> str:
    """Return the content of `comparison.yaml`: all that is needed to repeat the comparison, or to load it."""
    strategies = {variant.label: dict(variant.overrides) for variant in variants}
    fields = {"scenario": scenario.model_dump(), "strategies": strategies, "seeds": seeds, "targets": [*targets]}
    return write_yaml(fields)


def read_comparison(out: Path) -> tuple[Scenario, list[Variant], int, tuple[float, ...]]:
    """Return the scenario, the variants, the number of seeds and the targets of the comparison in a folder."""
    fields = read_fields(out / COMPARISON.marker)
    try:
        scenario, seeds, targets = Scenario.load(fields["scenario"]), fields["seeds"], fields["targets"]
        return scenario, make_variants(fields["strategies"]), int(seeds), tuple(map(float, targets))
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"{out / COMPARISON.marker} is damaged ({error}); the same command writes it anew") from None


def _check_same(out: Path, scenario: Scenario, tasks: Sequence[Task]) -> None:
    """Refuse to continue a comparison of another scenario, or with fewer rounds than its runs have.

    Strategies, seeds and targets may change.
    """
    held = Scenario.load(read_fields(out / COMPARISON.marker).get("scenario", {}))
    if difference := held.difference(scenario, apart_from=["seed", "strategy.name", *LENGTH]):
        raise RefusedError(f"{out} holds a comparison of another scenario{difference}")
    check_lengths(tasks)


def check_targets(targets: Sequence[float]) -> None:
    """Refuse targets that are no accuracies, or that have the same name in tables."""
    for target in targets:
        if not 0 < target <= 1:
            raise InputError("targets", target, "accuracies above 0 and at most 1")
    if len({f"{target:g}" for target in targets}) < len(targets):
        raise InputError("targets", list(targets), "different from each other, also when rounded to six digits")
