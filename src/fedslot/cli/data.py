"""`fedslot data`: list, fetch and find the data sets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import TaskID

data_app = typer.Typer(help="List, fetch and find the data sets.", no_args_is_help=True)


def complete_name(incomplete: str) -> list[str]:
    """Return the data sets whose names begin with `incomplete`."""
    return [name for name in complete_name_or_all(incomplete) if name != "all"]


def complete_name_or_all(incomplete: str) -> list[str]:
    """Return the data sets, and `all`, whose names begin with `incomplete`."""
    from fedslot.data.catalogue import CATALOGUE

    return [name for name in (*CATALOGUE, "all") if name.startswith(incomplete)]


@data_app.command("list")
def list_() -> None:
    """List the data sets, and say which are in the cache."""
    from fedslot.data import cache
    from fedslot.data.catalogue import CATALOGUE

    row = "{:<14} {:>7} {:>7}  {:<8} {:>7}  {}".format
    typer.echo(row("name", "train", "test", "sample", "size", "where"))
    typer.echo(row("digits", 1000, 797, "1x8x8", "", "embedded"))
    for name, entry in CATALOGUE.items():
        where = {
            "cached": str(cache.path(name)),
            "absent": f"not in the cache; type: fedslot data fetch {name}",
            "damaged": f"damaged in the cache; type: fedslot data fetch {name}",
        }[cache.state(name)]
        image = "x".join(map(str, entry.shape))
        typer.echo(row(name, entry.train, entry.test, image, f"{entry.bytes / 1e6:.0f} MB", where))


@data_app.command()
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Data sets, or `all`.", autocompletion=complete_name_or_all),
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch data sets again that are in the cache.")] = False,
) -> None:
    """Fetch data sets into the cache; those that are already there and intact are not fetched again."""
    from fedslot.data.catalogue import CATALOGUE
    from fedslot.support.errors import InputError, RefusedError, one_of

    allowed = (*CATALOGUE, "digits", "all")
    for name in names:
        if name not in allowed:
            raise InputError("NAME", name, one_of(name, allowed))
    failures = []
    for name in dict.fromkeys(CATALOGUE if "all" in names else names):
        if name == "digits":
            typer.echo("digits: embedded, nothing to fetch")
            continue
        began = time.perf_counter()
        try:
            file = _fetch_showing_progress(name, force)
        except RefusedError as error:
            failures.append(str(error))
        else:
            typer.echo(f"{name}: {file} ({time.perf_counter() - began:.1f} s)")
    if failures:
        raise RefusedError("\n".join(failures))


@data_app.command()
def path(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A data set.", autocompletion=complete_name)
    ] = None,
) -> None:
    """Print the path of the cache folder, or that of a data set's file in it."""
    from fedslot.data import cache

    typer.echo(cache.path(name) if name else cache.folder())


def _fetch_showing_progress(name: str, force: bool) -> Path:
    """Fetch with progress on stderr: bars on a terminal, else one line for each download."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from fedslot.data import cache

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
                if not console.is_terminal:
                    typer.echo(f"{name}: {what}" + (f", {total / 1e6:.1f} MB" if total else ""), err=True)
            bars.update(tasks[what], completed=done)

        return cache.fetch(name, show, force)
