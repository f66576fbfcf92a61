"""`fedslot sweep`: run all combinations of values of some fields; write a table and heat maps, list failures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.cli.options import (
    SAME_AND_RESUME,
    DaskOption,
    ForceOption,
    OverrideOption,
    ResumeOption,
    TargetsOption,
    ThreadsOption,
    WorkersOption,
    check_cluster,
    complete_override,
    complete_scenario,
    read_targets,
    stoppable,
    watch,
)

if TYPE_CHECKING:
    from rich.table import Table

    from fedslot.experiments.sweeps import Sweep

MOST_ROWS = 12  # number of combinations in the table; sweep.csv has all
MOST_FAILURES = 10  # number of failures that are listed; runs.csv has all


def sweep(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A preset, the YAML file of a scenario, or the YAML file of a study, which has the keys `scenario`, "
            "`overrides`, `grid` and `seeds`.",
            autocompletion=complete_scenario,
        ),
    ],
    grid: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=A,B,C",
            help="Values of a field, e.g. `--grid frame.pull=5,10`; may be repeated, and all combinations are run.",
            autocompletion=complete_override,
            show_default=False,
        ),
    ] = [],  # noqa: B006
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds of each combination, 3 by default; the scenario's is the first."),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    targets: TargetsOption = "0.7,0.8,0.9",
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path("out/sweep"),
    workers: WorkersOption = None,
    threads: ThreadsOption = 1,
    dask: DaskOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
) -> None:
    """Run all combinations of values with several seeds; write one table of all runs, and heat maps.

    A run that fails does not stop the others; failures are listed at the end, and the exit code is 1. --resume
    continues a sweep, also with more values and seeds.

    Example: fedslot sweep quickstart --grid frame.pull=2,5,8 --grid push.contenders=2,5,10 --seeds 5
    """
    from rich.console import Console

    from fedslot.experiments.study import Study, parse_grid, say
    from fedslot.experiments.sweeps import FailedRunsError, plan_tasks
    from fedslot.experiments.sweeps import sweep as sweep_grid
    from fedslot.scenario import parse_overrides

    study = Study.load(scenario, parse_overrides(override), parse_grid(grid) if grid else None, seeds)
    goals = read_targets(targets)
    tasks = plan_tasks(study, out)
    labels = [
        f"{say(study.combinations[index // study.seeds])}, seed {task.scenario.seed}"
        for index, task in enumerate(tasks)
    ]
    check_cluster(dask)
    with watch(labels, max(task.scenario.rounds for task in tasks), SAME_AND_RESUME) as display:
        try:
            found = sweep_grid(
                study.scenario,
                study.grid,
                study.seeds,
                out,
                targets=goals,
                workers=workers,
                threads=threads,
                resume=resume,
                force=force,
                dask=dask,
                listener=display,
            )
        except FailedRunsError as error:
            found = error.sweep
    if len(found.failures) < len(tasks):
        with stoppable(SAME_AND_RESUME):
            from fedslot.views.sweep import write_figures

            write_figures(found, out)
            console = Console(highlight=False, markup=False, emoji=False)
            console.print(_table(found))
            where = f"tables: {out}/runs.csv (every run) and {out}/sweep.csv (means); figures: {out}/figures"
            console.print(where, soft_wrap=True)
    if found.failures:
        _list_failures(found, labels)
        if dask is not None:
            typer.echo("these ran on the workers, which need the scenario's data sets and modules too", err=True)
        raise typer.Exit(1)


def _table(found: Sweep) -> Table:
    """Return a table of the combinations; of many, those with the best accuracy at the horizon."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fedslot.experiments.study import say_value

    study = found.study
    ranked = sorted(range(len(study.combinations)), key=lambda index: -_accuracy(found, index))
    count = f"the best {MOST_ROWS} of {len(ranked)}" if len(ranked) > MOST_ROWS else f"{len(ranked)}"
    table = Table(
        title=f"{count} combinations, seeds: {study.seeds}; mean and 95% confidence interval",
        caption="Slots by the clock. 2/3: two of three runs reached the target.",
        min_width=72,
        box=SIMPLE_HEAD,
    )
    for key in study.grid:
        table.add_column("\n".join(key.rsplit(".", 1)), justify="right", no_wrap=True)
    table.add_column("final\naccuracy", justify="right", no_wrap=True)
    table.add_column(f"accuracy at\n{found.horizon} slots", justify="right", no_wrap=True)
    reached = [t for t in found.targets if any(cell[f"slots_to_{t:g}_max"].count for cell in found.estimates())]
    for target in reached:
        table.add_column(f"slots\nto {target:g}", justify="right")
    shown = set(ranked[:MOST_ROWS])
    for index, combination in enumerate(study.combinations):
        if index not in shown:
            continue
        estimates = found.estimates()[index]
        cells = [say_value(value) for value in combination.values()]
        if not estimates["final_accuracy"].count:
            table.add_row(*cells, "failed")
            continue
        cells += [estimates[name].margin(".3f", "±") for name in ("final_accuracy", "accuracy_at_horizon")]
        slots = [estimates[f"slots_to_{target:g}_max"] for target in reached]
        cells += [estimate.point(".0f", estimate.fraction(" {}/{}")) for estimate in slots]
        table.add_row(*cells, style="bold" if index == ranked[0] else None)
    return table


def _accuracy(found: Sweep, index: int) -> float:
    estimate = found.estimates()[index]["accuracy_at_horizon"]
    return estimate.mean if estimate.count else -1.0


def _list_failures(found: Sweep, labels: list[str]) -> None:
    typer.secho(f"{len(found.failures)} of {len(found.runs)} runs failed:", fg=typer.colors.RED, err=True)
    for index, reason in list(found.failures.items())[:MOST_FAILURES]:
        typer.echo(f"  {labels[index]}: {reason}", err=True)
    if len(found.failures) > MOST_FAILURES:
        typer.echo(f"  and {len(found.failures) - MOST_FAILURES} more; runs.csv has all reasons", err=True)
