"""Compare strategies: paired runs over seeds, means with confidence intervals, costs under both rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from fedslot.errors import InputError, RefusedError
from fedslot.experiments.estimates import COLUMNS, Estimate, difference_scale_of, scale_of
from fedslot.experiments.pool import run_all
from fedslot.experiments.tasks import Listener, Task
from fedslot.plugins import find
from fedslot.records import write_atomically
from fedslot.round import cell
from fedslot.runs import Result, load
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, make_strategy

TARGETS = (0.7, 0.8, 0.9)


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
        measures[f"slots_to_{target:g}_max"] = result.slots_to(target, "max")
        measures[f"slots_to_{target:g}_sum"] = result.slots_to(target, "sum")
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


@dataclass(frozen=True)
class Comparison:
    """Results of several strategies under the same seeds.

    runs: results by strategy, each in the order of `seeds`.
    """

    scenario: Scenario
    seeds: list[int]
    runs: dict[str, list[Result]]
    targets: tuple[float, ...]

    @property
    def strategies(self) -> list[str]:
        """Names of the strategies, in the given order."""
        return list(self.runs)

    @property
    def horizon(self) -> int:
        """Slots at which accuracies are compared, as `common_horizon` has it."""
        return common_horizon(result for results in self.runs.values() for result in results)

    def measures(self) -> pd.DataFrame:
        """Return one row per run: strategy, seed and every measure."""
        rows, horizon = [], self.horizon
        for strategy, results in self.runs.items():
            for seed, result in zip(self.seeds, results, strict=True):
                rows.append({"strategy": strategy, "seed": seed, **measure(result, horizon, self.targets)})
        return pd.DataFrame(rows)

    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Return the estimates by strategy and measure."""
        table = self.measures()
        names = [name for name in table.columns if name not in {"strategy", "seed"}]
        return {
            strategy: {name: Estimate.of(rows[name].to_numpy(dtype=float), scale_of(name)) for name in names}
            for strategy, rows in table.groupby("strategy", sort=False)
            if isinstance(strategy, str)
        }

    def differences(self, measure: str = "accuracy_at_horizon", reference: str | None = None) -> dict[str, Estimate]:
        """Return the paired differences to the reference strategy, by default the first, over seeds."""
        table = self.measures().pivot(index="seed", columns="strategy", values=measure)
        reference, scale = reference or self.strategies[0], difference_scale_of(measure)
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
        measures = [name for name in self.measures().columns if name not in {"strategy", "seed"}]
        return pd.DataFrame(
            [
                {"strategy": strategy, "measure": measure, **estimate.row()}
                for measure in measures
                for strategy, estimate in self.differences(measure).items()
            ],
            columns=["strategy", "measure", *COLUMNS],
        )

    def save(self, out: Path) -> None:
        """Write `comparison.csv` (estimates), `differences.csv` (paired) and `runs.csv` (one row per run)."""
        write_atomically(out / "comparison.csv", self.table().to_csv(index=False))
        write_atomically(out / "differences.csv", self.difference_table().to_csv(index=False))
        write_atomically(out / "runs.csv", self.measures().to_csv(index=False))


def compare(
    scenario: Scenario,
    strategies: Sequence[str],
    seeds: int = 3,
    out: str | Path | None = None,
    *,
    targets: Sequence[float] = TARGETS,
    workers: int | None = None,
    threads: int = 1,
    resume: bool = False,
    dask: str | None = None,
    listener: Listener | None = None,
) -> Comparison:
    """Run strategies under the same seeds and compare them.

    seeds: number of seeds; the scenario's seed is the first.
    out: folder for the runs and tables; None uses a temporary one.
    dask: address of a Dask scheduler whose workers do the runs.

    >>> from fedslot import Scenario, compare
    >>> quick = Scenario.load("quickstart", {"rounds": 2})
    >>> compare(quick, ["fedavg", "push-pull"], seeds=1, workers=1).strategies
    ['fedavg', 'push-pull']
    """
    check_targets(targets)
    with TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        tasks = plan_tasks(scenario, strategies, seeds, folder)
        failures = run_all(tasks, workers=workers, threads=threads, resume=resume, dask=dask, listener=listener)
        if failures:
            index, reason = min(failures.items())
            others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise RefusedError(f"{tasks[index].folder.name}{others}: {reason}")
        results = [load(task.folder) for task in tasks]
        runs = {name: results[i * seeds : (i + 1) * seeds] for i, name in enumerate(strategies)}
        comparison = Comparison(scenario, [scenario.seed + i for i in range(seeds)], runs, tuple(targets))
        comparison.save(folder)
    return comparison


def plan_tasks(scenario: Scenario, strategies: Sequence[str], seeds: int, out: Path) -> list[Task]:
    """Return the runs of a comparison, strategy by strategy, each with its folder below `out`."""
    if seeds < 1:
        raise InputError("seeds", seeds, "at least 1")
    if not strategies:
        raise InputError("strategies", list(strategies), "one name at least")
    if len(set(strategies)) < len(strategies):
        raise InputError("strategies", list(strategies), "different from each other")
    for name in strategies:
        find("strategy.name", name, STRATEGIES)
        if name in STRATEGIES:
            make_strategy(name, cell(scenario))  # refuses options that it does not take, before any run
    return [
        Task(
            scenario.replace({"strategy.name": strategy, "seed": seed}),
            out / "runs" / f"{strategy.replace(':', '-')}-seed{seed}",
        )
        for strategy in strategies
        for seed in range(scenario.seed, scenario.seed + seeds)
    ]


def check_targets(targets: Sequence[float]) -> None:
    """Refuse targets that are no accuracies, or that have the same name in tables."""
    for target in targets:
        if not 0 < target <= 1:
            raise InputError("targets", target, "accuracies above 0 and at most 1")
    if len({f"{target:g}" for target in targets}) < len(targets):
        raise InputError("targets", list(targets), "different from each other, also when rounded to six digits")
