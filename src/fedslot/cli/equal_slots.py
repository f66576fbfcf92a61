"""`fedslot equal-slots`: compare strategies at equal slots on all data sets, and write the page about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import DaskOption, WorkersOption, check_cluster, watch


def equal_slots(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings to measure, such as mnist-200; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and equal-slots.md.")] = Path("out/equal-slots"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    budget: Annotated[int | None, typer.Option(min=100, help="Slots of each run; fewer for a quick look.")] = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Compare strategies at equal slots, on three data sets, with few and many labels, with and without noise.

    Finished runs in the folder are reused; the same command continues. The page shows all settings whose curves are in
    its folder `curves`, also those of other machines.

    Example: fedslot equal-slots mnist-200 --seeds 3
    """
    from fedslot.experiments.comparison import compare, plan_tasks
    from fedslot.experiments.equal_slots.page import finished, keep, publish
    from fedslot.experiments.equal_slots.settings import chosen
    from fedslot.experiments.variants import make_variants

    check_cluster(dask)
    for name, setting in chosen(settings or [], budget).items():
        scenario, folder = setting.scenario(), out / "runs" / name
        tasks = plan_tasks(scenario, make_variants(setting.strategies), seeds, folder)
        labels = [f"{name}: {task.folder.name}" for task in tasks]
        with watch(labels, setting.budget, "the same command continues") as display:
            comparison = compare(
                scenario,
                setting.strategies,
                seeds,
                folder,
                targets=setting.targets,
                workers=workers,
                resume=True,
                dask=dask,
                listener=display,
                frames=False,
            )
        keep(name, comparison, out)
        for file in publish(finished(out, budget), out):
            typer.echo(str(file))
