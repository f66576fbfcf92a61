"""`fedslot run`: run one scenario with one strategy and one seed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedslot.cli.options import (
    OverrideOption,
    Running,
    ScenarioArgument,
    check_cluster,
    continue_with,
    live_view,
    note_effects,
    read_scenario,
    say_more,
    takes_running,
    watch,
)
from fedslot.support.errors import counted, say_time


@takes_running()
def run(
    context: typer.Context,
    scenario: ScenarioArgument,
    override: OverrideOption = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/run"),
    how: Running = Running(),  # noqa: B008
) -> None:
    """Run a scenario, and write scenario.yaml, rounds.csv, frames.csv, summary.json and a checkpoint into a folder.

    Example: fedslot run quickstart -o strategy.name=greedy-shap --out out/greedy
    """
    wanted = read_scenario(scenario, override)

    from fedslot.runs.callbacks import Report
    from fedslot.runs.execution import run as run_scenario
    from fedslot.tracking.trackers import make_trackers

    note_effects(scenario, [wanted])
    check_cluster(how.dask)
    label = wanted.label
    trackers = make_trackers(how.track, label)
    with live_view(out, how):
        cluster: AbstractContextManager[Any] = nullcontext()
        if how.dask:
            from fedslot.experiments.cluster import distributed_training  # a single run needs no experiments

            cluster = distributed_training(how.dask, lambda line: typer.secho(f"note: {line}", err=True))
        with watch([label], [wanted], continue_with(context)) as display, cluster as distribute:
            callbacks = [Report(partial(display, 0)), *trackers]
            result = run_scenario(wanted, out, distribute=distribute, callbacks=callbacks, **how.settings)
        summary = result.summary()
        typer.echo(
            f"{label}: test {result.score.label} {result.final_score:.4f} after "
            f"{counted(summary['rounds'], 'round')} and {say_time(summary['slots_spent'])} slots "
            f"({summary['cost_sum']:g} summed over UEs); results in {out}"
        )
        say_more(out)
