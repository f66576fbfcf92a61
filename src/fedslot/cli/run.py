"""`fedslot run`: run one scenario with one strategy and one seed."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import (
    DaskOption,
    ForceOption,
    FramesOption,
    LiveOption,
    OpenOption,
    OverrideOption,
    PortOption,
    ResumeOption,
    ScenarioArgument,
    ThreadsOption,
    TrackOption,
    check_cluster,
    continue_with,
    live_view,
    note_effects,
    read_scenario,
    say_more,
    watch,
)
from fedslot.support.errors import counted


def run(
    context: typer.Context,
    scenario: ScenarioArgument,
    override: OverrideOption = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/run"),
    resume: ResumeOption = False,
    force: ForceOption = False,
    threads: ThreadsOption = 1,
    dask: DaskOption = None,
    frames: FramesOption = True,
    track: TrackOption = [],  # noqa: B006
    live: LiveOption = False,
    open: OpenOption = False,
    port: PortOption = None,
) -> None:
    """Run a scenario, and write scenario.yaml, rounds.csv, frames.csv, summary.json and a checkpoint into a folder.

    Example: fedslot run quickstart -o strategy.name=greedy-shap --out out/greedy
    """
    wanted = read_scenario(scenario, override)

    from fedslot.experiments.cluster import distributed_training
    from fedslot.runs.callbacks import Report
    from fedslot.runs.execution import run as run_scenario
    from fedslot.tracking.trackers import make_trackers

    note_effects(scenario, [wanted])
    check_cluster(dask)
    label = wanted.label
    trackers = make_trackers(track, label)
    with live_view(out, live, open, port):
        with ExitStack() as stack:
            display = stack.enter_context(watch([label], [wanted], continue_with(context)))
            distribute = stack.enter_context(distributed_training(dask)) if dask else None
            result = run_scenario(
                wanted,
                out,
                resume=resume,
                force=force,
                threads=threads,
                distribute=distribute,
                callbacks=[Report(partial(display, 0)), *trackers],
                frames=frames,
            )
        summary = result.summary()
        typer.echo(
            f"{label}: test accuracy {summary['final_accuracy']:.4f} after {counted(summary['rounds'], 'round')} and "
            f"{summary['slots_spent']} slots ({summary['cost_sum']} by the sum rule); results in {out}"
        )
        say_more(out)
