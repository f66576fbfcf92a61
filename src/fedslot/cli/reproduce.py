"""`fedslot reproduce`: draw the paper's figures from our own runs, and write a page that compares them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import CurvesOption, DaskOption, ForceOption, WorkersOption, check_cluster, compute_study


class Figure(StrEnum):
    """Figures that can be reproduced."""

    fig2 = "fig2"
    fig3 = "fig3"
    fig5 = "fig5"
    fig6 = "fig6"
    all = "all"


QUICK_ROUNDS = 40


def reproduce(
    figure: Annotated[
        Figure, typer.Argument(metavar="FIGURE", help="A figure of the paper: fig2, fig3, fig5, fig6, or all.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, figures and reproduction.md.")] = Path("out/reproduction"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds on MNIST.")] = 3,
    cifar_seeds: Annotated[int, typer.Option(min=1, help="Number of seeds on CIFAR-10.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only one seed and {QUICK_ROUNDS} rounds.")] = False,
    curves: CurvesOption = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
    force: ForceOption = False,
) -> None:
    """Draw the paper's figures from our own runs, with the published curves dashed.

    Finished runs in the folder, and those whose curves are known, are reused; the same command continues an interrupted
    reproduction.

    Example: fedslot reproduce fig2 --quick
    """
    from fedslot.studies.reproduction.experiments import FIGURES, Reproduction, experiments
    from fedslot.studies.reproduction.page import publish

    figures = list(FIGURES) if figure is Figure.all else [figure.value]
    count = {"mnist": 1, "cifar10": 1} if quick else {"mnist": seeds, "cifar10": cifar_seeds}
    reproduction = Reproduction(out, count, QUICK_ROUNDS if quick else None)
    check_cluster(dask)
    with reproduction.claim(reproduction.describe(figures), force):
        reproduction.adopt(curves)
        compute_study(reproduction.tasks(experiments(figures)), reproduction.all_curves, "", workers, dask)
        for file in publish(reproduction, figures):
            typer.echo(str(file))
