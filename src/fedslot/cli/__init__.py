"""The command line: one file per command. Heavy imports happen inside commands; `--help` is instant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedslot import __version__

app = typer.Typer(
    name="fedslot",
    help="Whose model update should be on the air when uplink slots are scarce?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedslot {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Simulate, analyse and deploy federated learning over push-pull wireless access."""


def main() -> None:
    """Run the command line; what the user can mend is one line on stderr and exit code 2."""
    from fedslot.errors import InputError, RefusedError

    try:
        app()
    except (InputError, RefusedError) as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
