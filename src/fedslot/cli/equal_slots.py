"""`fedslot equal-slots`: compare strategies at equal slots on all data sets, and write the pages about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import CurvesOption, DaskOption, WorkersOption, check_cluster, compute_study


def equal_slots(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings to measure, such as mnist-200; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and pages.")] = Path("out/equal-slots"),
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
    from fedslot import __version__
    from fedslot.experiments import check
    from fedslot.studies.equal_slots.folder import EqualSlots
    from fedslot.studies.equal_slots.page import publish
    from fedslot.studies.equal_slots.settings import chosen

    check_cluster(dask)
    wanted, study = chosen(settings or []), EqualSlots(out, budget)
    with study.claim(f"fedslot: {__version__}\n"):
        study.adopt(curves)
        for key in wanted:
            tasks = study.tasks(key, seeds)
            for task in tasks.values():
                check(task.scenario, data=dask is None)
            compute_study(tasks, study.curves_of(key), f"{key}: ", workers, dask)
            for file in publish(study):
                typer.echo(str(file))
