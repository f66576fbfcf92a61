"""`fedslot reproduce`: the paper's figures from our own runs, and a page that compares them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import DaskOption, WorkersOption, greet_cluster, watch


class Figure(StrEnum):
    """What can be reproduced."""

    fig2 = "fig2"
    fig3 = "fig3"
    fig5 = "fig5"
    fig6 = "fig6"
    all = "all"


QUICK_ROUNDS = 40


def reproduce(
    figure: Annotated[Figure, typer.Argument(help="A figure of the paper, or all of them.")],
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and reproduction.md.")] = Path("out/reproduction"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds on MNIST; CIFAR-10 has one, unless --cifar-seeds.")] = 3,
    cifar_seeds: Annotated[int, typer.Option(min=1, help="Seeds on CIFAR-10.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help=f"One seed and {QUICK_ROUNDS} rounds, for a look.")] = False,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Make the paper's figures from our own runs, the published curves dashed beside them.

    What was already run in the folder is reused; an interrupted reproduction goes on where it stopped.

    Example: fedslot reproduce fig2 --quick
    """
    from fedslot.errors import RefusedError
    from fedslot.experiments.pool import run_all
    from fedslot.experiments.reproduction.experiments import FIGURES, Reproduction, experiments
    from fedslot.experiments.reproduction.report import publish

    figures = list(FIGURES) if figure is Figure.all else [figure.value]
    count = {"mnist": 1, "cifar10": 1} if quick else {"mnist": seeds, "cifar10": cifar_seeds}
    reproduction = Reproduction(out, count, QUICK_ROUNDS if quick else None)
    tasks = reproduction.tasks(experiments(figures))
    greet_cluster(dask)
    labels, rounds = [task.folder.name for task in tasks], max(task.scenario.rounds for task in tasks)
    with watch(labels, rounds, "the same command goes on from here") as display:
        failures = run_all(tasks, workers=workers, resume=True, dask=dask, listener=display)
    if failures:
        index, reason = min(failures.items())
        raise RefusedError(f"{tasks[index].folder.name}: {reason}")
    for file in publish(reproduction, figures):
        typer.echo(str(file))
