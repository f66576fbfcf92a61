"""The command line, one file per command.

Modules here import heavy libraries inside of commands only, so that `--help` is quick.

options.py      arguments that several commands share
init.py         fedslot init
doctor.py       fedslot doctor
show.py         fedslot show
run.py          fedslot run
compare.py      fedslot compare
sweep.py        fedslot sweep
watch.py        fedslot watch
plan.py         fedslot plan
reproduce.py    fedslot reproduce
equal_slots.py  fedslot equal-slots
random_settings.py  fedslot random-settings
attacks.py      fedslot attacks
mqtt.py         fedslot serve, fedslot device
mqtt_setup.py   fedslot mqtt
change.py       fedslot change
scenarios.py    fedslot presets, fedslot schema
data.py         fedslot data
network_log.py  the log of serve and device, as text or JSON
faults.py       what goes wrong, as one line and an exit code
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from fedslot import __version__
from fedslot.cli.attacks import attacks
from fedslot.cli.change import change
from fedslot.cli.compare import compare
from fedslot.cli.data import data_app
from fedslot.cli.doctor import doctor
from fedslot.cli.equal_slots import equal_slots
from fedslot.cli.faults import exit_code
from fedslot.cli.init import init
from fedslot.cli.mqtt import device, serve
from fedslot.cli.mqtt_setup import mqtt_app
from fedslot.cli.plan import plan
from fedslot.cli.random_settings import random_settings
from fedslot.cli.reproduce import reproduce
from fedslot.cli.run import run
from fedslot.cli.scenarios import presets, schema
from fedslot.cli.show import show
from fedslot.cli.sweep import sweep
from fedslot.cli.watch import watch

app = typer.Typer(
    name="fedslot",
    help="Whose model update should be on the air when uplink slots are scarce?",
    epilog="To begin: fedslot run quickstart, then fedslot show out/run",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedslot {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Simulate, analyse and deploy federated learning over push-pull wireless access."""


for command in (
    init,
    run,
    compare,
    sweep,
    watch,
    show,
    plan,
    reproduce,
    equal_slots,
    random_settings,
    attacks,
    serve,
    device,
    change,
    presets,
    schema,
    doctor,
):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(mqtt_app, name="mqtt")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, by default that of the process, and return its exit code; errors are one line on stderr."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # figures go into files, also where there is a display
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder may hold the user's own strategy, model or channel
    return exit_code(lambda: app(args=words, prog_name="fedslot", standalone_mode=False))
