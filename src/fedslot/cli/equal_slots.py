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

    Finished runs in the folder are reused; the same command continues.

    Example: fedslot equal-slots mnist-200 --seeds 3
    """
    from fedslot.experiments.comparison import compare, plan_tasks
    from fedslot.experiments.curves import adopt_curves
    from fedslot.experiments.equal_slots.page import CURVES, claim_folder, finished, keep, publish
    from fedslot.experiments.equal_slots.settings import chosen
    from fedslot.experiments.variants import make_variants

    check_cluster(dask)
    wanted = chosen(settings or [], budget)
    with claim_folder(out):
        if curves is not None:
            adopt_curves(curves / "equal-slots", out / CURVES)
        for name, setting in wanted.items():
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
