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
    check_cluster,
    live_view,
    note_effects,
    read_scenario,
    read_targets,
    say_more,
    stoppable,
    tracking,
    watch,
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
    from fedslot.experiments.comparison import left_out, plan_tasks, run_labels
    from fedslot.experiments.tasks import check
    from fedslot.experiments.variants import make_variants, notes

    variants = make_variants(strategies)
    tasks = plan_tasks(wanted, variants, seeds, out)
    check_against(against, [task.scenario for task in tasks])
    check_cluster(dask)
    for task in tasks[::seeds]:
        check(task.scenario, data=dask is None)
    note_effects(scenario, [task.scenario for task in tasks[::seeds]])
    for note in notes(wanted, variants):
        typer.echo(f"note: {note}", err=True)
    labels = run_labels(variants, tasks)
    with live_view(out, live, open, port):
        with (
            watch(labels, [task.scenario for task in tasks], SAME_AND_RESUME) as display,
            tracking(display, track, tasks, labels, out) as listener,
        ):
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
        for note in left_out(out, tasks):
            typer.echo(f"note: {note}", err=True)
        with stoppable(SAME_AND_RESUME):
            from fedslot.views.report import write_report
            from fedslot.views.tables import comparison_tables

            report = write_report(comparison, out, against)
            console = Console(markup=False, emoji=False)
            for table in comparison_tables(comparison, console):
                console.print(table)
            typer.echo(f"figures and tables in {out}; report: {report}")
            say_more(out)
