"""`fedslot equal-slots`: compare strategies at equal slots on all data sets, and write the page about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import CurvesOption, DaskOption, WorkersOption, check_cluster, watch


def equal_slots(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings to measure, such as mnist-200; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and equal-slots.md.")] = Path("out/equal-slots"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    budget: Annotated[int | None, typer.Option(min=100, help="Slots of each run; fewer for a quick look.")] = None,
    curves: CurvesOption = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Compare strategies at equal slots, on three data sets, with few and many labels, with and without noise.

    Finished runs in the folder, and those whose curves are known, are reused; the same command continues.

    Example: fedslot equal-slots mnist-200 --seeds 3
    """
    from fedslot.experiments.curves import adopt_curves
    from fedslot.experiments.equal_slots.folder import CURVES, claim_folder, finished, keep, runs_left
    from fedslot.experiments.equal_slots.page import publish
    from fedslot.experiments.equal_slots.settings import chosen
    from fedslot.experiments.pool import failure_of, run_all
    from fedslot.experiments.tasks import Settings, check

    check_cluster(dask)
    wanted = chosen(settings or [], budget)
    with claim_folder(out):
        if curves is not None:
            adopt_curves(curves / "equal-slots", out / CURVES)
        for key, setting in wanted.items():
            left = runs_left(key, setting, seeds, out)
            names, tasks = [f"{key}: {name}" for name in left], list(left.values())
            for task in tasks:
                check(task.scenario, data=dask is None)
            with watch(names, [task.scenario for task in tasks], "the same command continues") as display:
                how = Settings(resume=True, frames=False)
                failures = run_all(tasks, how, workers=workers, dask=dask, listener=display)
            if failures:
                raise failure_of(tasks, failures)
            keep(key, setting, left, out)
            for file in publish(finished(out, budget), out):
                typer.echo(str(file))
