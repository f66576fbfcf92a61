"""`fedslot compare`: run several strategies with the same seeds; print a table, write figures and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import (
    SAME_AND_RESUME,
    AgainstOption,
    DaskOption,
    ForceOption,
    FramesOption,
    LiveOption,
    OpenOption,
    OverrideOption,
    PortOption,
    ResumeOption,
    ScenarioArgument,
    StrategiesOption,
    TargetsOption,
    ThreadsOption,
    TrackOption,
    WorkersOption,
    check_against,
    check_study,
    live_view,
    read_scenario,
    read_targets,
    say_more,
    stoppable,
    study_listener,
)


def compare(
    scenario: ScenarioArgument,
    strategies: StrategiesOption = "push-pull,greedy-shap,only-pull,fedavg,centralized,ps-alone",
    seeds: Annotated[int, typer.Option(help="Number of seeds; the first is the scenario's.")] = 3,
    override: OverrideOption = [],  # noqa: B006
    targets: TargetsOption = "0.7,0.8,0.9",
    against: AgainstOption = "slots",
    out: Annotated[Path, typer.Option(help="Folder for runs, tables, figures and report.html.")] = Path("out/compare"),
    workers: WorkersOption = None,
    threads: ThreadsOption = 1,
    dask: DaskOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    frames: FramesOption = True,
    track: TrackOption = [],  # noqa: B006
    live: LiveOption = False,
    open: OpenOption = False,
    port: PortOption = None,
) -> None:
    """Compare strategies with the same seeds, and write tables with 95% confidence intervals, figures and a report.

    Example: fedslot compare quickstart --strategies push-pull,fedavg --seeds 5
    """
    wanted = read_scenario(scenario, override)
    goals = read_targets(targets)

    from rich.console import Console

    from fedslot.experiments.comparison import compare as compare_strategies
    from fedslot.experiments.comparison import left_out
    from fedslot.experiments.variants import VariantStudy, make_variants

    study = VariantStudy(wanted, make_variants(strategies), seeds, goals)
    check_against(against, study.scenarios)
    check_study(study, scenario, dask)
    for note in study.notes():
        typer.echo(f"note: {note}", err=True)
    with live_view(out, live, open, port):
        with study_listener(study, out, track) as listener:
            comparison = compare_strategies(
                wanted,
                strategies,
                seeds,
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
        for note in left_out(out, study.tasks(out)):
            typer.echo(f"note: {note}", err=True)
        with stoppable(SAME_AND_RESUME):
            from fedslot.views.report import write_report
            from fedslot.views.tables import study_tables

            report = write_report(comparison, out, against)
            console = Console(markup=False, emoji=False)
            for table in study_tables(comparison, console):
                console.print(table)
            typer.echo(f"figures and tables in {out}; report: {report}")
            say_more(out)
