"""`fedslot sweep`: run all combinations of values of some fields; write a table and heat maps, list failures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.cli.options import (
    SAME_AND_RESUME,
    DaskOption,
    ForceOption,
    FramesOption,
    LiveOption,
    OpenOption,
    OverrideOption,
    PortOption,
    ResumeOption,
    TargetsOption,
    ThreadsOption,
    TrackOption,
    WorkersOption,
    check_study,
    complete_override,
    complete_scenario,
    live_view,
    note_old_keys,
    read_targets,
    say_more,
    stoppable,
    study_listener,
)

if TYPE_CHECKING:
    from fedslot.experiments.sweeps import Sweep

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
        typer.Option(help="Number of seeds of each combination, 3 by default; the first is the scenario's."),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    targets: TargetsOption = "0.7,0.8,0.9",
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path("out/sweep"),
    workers: WorkersOption = None,
    threads: ThreadsOption = 1,
    dask: DaskOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    frames: FramesOption = False,
    track: TrackOption = [],  # noqa: B006
    live: LiveOption = False,
    open: OpenOption = False,
    port: PortOption = None,
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
    check_study(study, scenario, dask)
    note_old_keys(scenario, [*override, *grid])
    with live_view(out, live, open, port):
        with study_listener(study, out, track) as listener:
            try:
                results = sweep_grid(
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
                    listener=listener,
                    frames=frames,
                )
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
            _list_failures(results)
            if dask is not None:
                typer.echo("these ran on the workers, which need the scenario's data sets and modules too", err=True)
            raise typer.Exit(1)


def _list_failures(sweep: Sweep) -> None:
    labels = sweep.study.run_labels
    typer.secho(f"{sweep.failed}:", fg=typer.colors.RED, err=True)
    for index, reason in list(sweep.failures.items())[:MOST_FAILURES]:
        typer.echo(f"  {labels[index]}: {reason}", err=True)
    if len(sweep.failures) > MOST_FAILURES:
        typer.echo(f"  and {len(sweep.failures) - MOST_FAILURES} more; runs.csv has all reasons", err=True)
