"""`fedslot watch`: show a run, a comparison or a sweep in a browser, under way or finished."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import OpenOption, PortOption

LAST_LOOK = 1.5  # seconds for which the page of a command that has ended is still fed


def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, a comparison or a sweep.")],
    open: OpenOption = False,
    port: PortOption = None,
    host: Annotated[
        str,
        typer.Option(
            help="Name or address to serve on. If it is not the loopback, the address of the page has a token."
        ),
    ] = "127.0.0.1",
    origin: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:PORT]",
            help="Another name under which browsers reach this host, e.g. that of a proxy; may be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
) -> None:
    """Serve a page that shows frames, accuracy, UEs by value, costs and progress of a folder, live while a run goes on.

    It only reads files, so it can be started and ended at any time. Ctrl-C ends it.

    Example: fedslot watch out/compare --open
    """
    from fedslot.support.extras import require

    require("fedslot watch", "live")

    from fedslot.views.live.address import Where
    from fedslot.views.live.server import serve
    from fedslot.views.live.watched import read_folder

    if not beside:  # else the command that started this one creates the folder
        read_folder(folder)

    def ready(address: str) -> None:
        typer.echo(address if beside else f"{folder} can be seen at {address} (Ctrl-C ends)")
        sys.stdout.flush()

    serve(folder, Where(port, host, origin), ready=ready, open_browser=open, alive=_input_is_open if beside else None)


def _input_is_open() -> None:
    """Return when the process that started this one has ended or has closed the pipe."""
    sys.stdin.read()
    time.sleep(LAST_LOOK)
