"""`fedslot attacks`: measure what lying UEs do to the recommended strategy and to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import CurvesOption, DaskOption, WorkersOption, check_cluster, compute_study


def attacks(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Cells: digits, mnist, fashion-mnist; by default all.")
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack of the page, e.g. 'label flips'; can be repeated; default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds of each cell; one with Fashion-MNIST.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for runs and attacks.md.")] = Path("out/attacks"),
    curves: CurvesOption = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Measure what lying UEs do to the recommended strategy and to others, and write the page about it.

    Finished runs in the folder, and those whose curves are known, are reused; the same command continues.

    Example: fedslot attacks digits --attack backdoor --attack 'label flips' --seeds 1
    """
    from fedslot import __version__
    from fedslot.experiments import check
    from fedslot.studies.attacks.folder import AttackStudy
    from fedslot.studies.attacks.page import publish
    from fedslot.studies.attacks.settings import ATTACKS, SETTINGS, chosen

    check_cluster(dask)
    cells, study = chosen("setting", settings, SETTINGS), AttackStudy(out)
    titles = list(dict.fromkeys(["none", *chosen("attack", attack, ATTACKS)]))
    with study.claim(f"fedslot: {__version__}\n"):
        study.adopt(curves)
        for key in cells:
            tasks = study.tasks(key, titles, seeds)
            for task in tasks.values():
                check(task.scenario, data=dask is None)
            compute_study(tasks, study.curves_file(key), f"{key}, ", workers, dask)
            for file in publish(study):
                typer.echo(str(file))
