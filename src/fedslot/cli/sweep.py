"""`fedslot sweep`: run all combinations of values of some fields; write a table and heat maps, list failures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import (
    SAME_AND_RESUME,
    OverrideOption,
    Running,
    TargetsOption,
    WorkersOption,
    check_study,
    complete_override,
    complete_scenario,
    computing,
    live_view,
    note_old_keys,
    read_targets,
    say_more,
    stoppable,
    takes_running,
)

MOST_FAILURES = 10  # number of failures that are listed; runs.csv has all


@takes_running(frames=False)
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
        typer.Option(help="Number of seeds of each combination, 3 by default; the first is the scenario's."),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    targets: TargetsOption = "0.7,0.8,0.9",
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path("out/sweep"),
    workers: WorkersOption = None,
    how: Running = Running(),  # noqa: B008
) -> None:
    """Run all combinations of values of some fields with several seeds, and write a table of all runs and heat maps.

    A run that fails does not stop the others; failures are listed at the end, and the exit code is 1. --resume
    continues a sweep, also with more values and seeds.

    Example: fedslot sweep quickstart --grid frame.pull=2,5,8 --grid push.contenders=2,5,10 --seeds 5
    """
    from rich.console import Console

    from fedslot.experiments.grid import GridStudy, parse_grid
    from fedslot.experiments.sweeps import FailedRunsError
    from fedslot.experiments.sweeps import sweep as sweep_grid
    from fedslot.scenario import parse_overrides

    study = GridStudy.load(scenario, parse_overrides(override), parse_grid(grid) if grid else None, seeds)
    goals = read_targets(targets)
    check_study(study, scenario, how.dask)
    note_old_keys(scenario, [*override, *grid])
    with live_view(out, how):
        with computing(study, out, workers, how) as options:
            try:
                results = sweep_grid(study.scenario, study.grid, study.seeds, out, targets=goals, **options)
            except FailedRunsError as error:
                results = error.sweep
        if len(results.failures) < len(results.runs):
            with stoppable(SAME_AND_RESUME):
                from fedslot.views.sweep import write_figures
                from fedslot.views.tables import study_tables

                write_figures(results, out)
                console = Console(highlight=False, markup=False, emoji=False)
                console.print(*study_tables(results, console))
                typer.echo(f"tables: {out}/runs.csv (every run) and {out}/sweep.csv (means); figures: {out}/figures")
                say_more(out)
        if results.failures:
            labels, listed = study.run_labels, list(results.failures.items())[:MOST_FAILURES]
            typer.secho(f"{results.failed}:", fg=typer.colors.RED, err=True)
            for index, reason in listed:
                typer.echo(f"  {labels[index]}: {reason}", err=True)
            if more := len(results.failures) - len(listed):
                typer.echo(f"  and {more} more; runs.csv has all reasons", err=True)
            if how.dask is not None:
                typer.echo("these ran on the workers, which need the scenario's data sets and modules too", err=True)
            raise typer.Exit(1)
