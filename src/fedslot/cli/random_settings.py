"""`fedslot random-settings`: compare the recommended strategy with others in settings that are drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import CurvesOption, DaskOption, WorkersOption, check_cluster, compute_study


def random_settings(
    settings: Annotated[
        list[int] | None, typer.Argument(help="Numbers of the settings to measure, from 0; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and random-settings.md.")] = Path("out/random-settings"),
    drawing: Annotated[
        int,
        typer.Option(min=0, max=10**6, help="Which drawing: 2 is that of the page; tune on others."),
    ] = 2,
    curves: CurvesOption = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Compare the recommended strategy with plain ones in settings drawn at random, and write the page about it.

    Finished runs in the folder, and those whose curves are known, are reused; the same command continues.

    Example: fedslot random-settings 0 1 2
    """
    from fedslot import __version__
    from fedslot.experiments import check
    from fedslot.studies.random_settings.folder import RandomSettings
    from fedslot.studies.random_settings.page import publish
    from fedslot.studies.random_settings.settings import SETTINGS, drawn

    check_cluster(dask)
    wanted, study = list(settings or range(SETTINGS)), RandomSettings(out, drawing)
    for index in wanted:
        drawn(index, drawing)
    with study.claim(f"fedslot: {__version__}\n"):
        study.adopt(curves)
        for index in wanted:
            tasks = study.tasks(index)
            for task in tasks.values():
                check(task.scenario, data=dask is None)
            compute_study(tasks, study.curves_file(study.key(index)), f"setting {index}: ", workers, dask)
            for file in publish(study):
                typer.echo(str(file))
