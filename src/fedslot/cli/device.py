"""`fedslot device`: one or many devices of a deployment over MQTT."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from fedslot.cli.mqtt import (
    BrokerOption,
    CaOption,
    CellOption,
    CertOption,
    KeyOption,
    WaitOption,
    network_log,
    read_broker,
)
from fedslot.cli.options import OverrideOption, complete_scenario, read_scenario, stoppable


def device(
    broker: BrokerOption,
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="The parameter server's scenario, as a preset or a YAML file; by default it is fetched from the "
            "broker.",
            autocompletion=complete_scenario,
            show_default=False,
        ),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    ue: Annotated[int | None, typer.Option(help="The UE, from 0, that this device stands for.", min=0)] = None,
    ues: Annotated[
        str | None,
        typer.Option(
            metavar="A-B,C", help="Several UEs in this process, e.g. 0-199, each with a connection of its own."
        ),
    ] = None,
    cell: CellOption = "cell",
    wait: WaitOption = 60.0,
    tls_ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Train as one UE of a scenario, or as several, and push updates over MQTT until the training is over.

    Example: fedslot device --ue 7 --broker mqtt://127.0.0.1:1883
    """
    from fedslot.support.errors import InputError, counted

    wanted = _read_ues(ue, ues)
    where = read_broker(broker, tls_ca, cert, key)
    if scenario is None and override:
        raise InputError("-o", override[0], "used together with a SCENARIO")

    from fedslot.deployment.mqtt import fetch_scenario, run_devices, scenario_devices

    with network_log(), stoppable("the parameter server goes on without it"):
        known = read_scenario(scenario, override) if scenario else fetch_scenario(where.of(wanted[0]), cell, wait)
        devices = scenario_devices(known, wanted, where, cell)
        run_devices(devices, wait)
    sent = sum(one.sent for one in devices)
    name = f"UE {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} UEs"
    typer.echo(f"{name}: the training is over; {counted(sent, 'update')} sent")


def _read_ues(ue: int | None, ues: str | None) -> list[int]:
    """Return the UEs that `--ue` or `--ues` name."""
    from fedslot.support.errors import InputError

    if (ue is None) == (ues is None):
        raise InputError("ue", ue, "given, or else --ues, and not both")
    if ues is None:
        assert ue is not None
        return [ue]
    found: dict[int, None] = {}
    for part in ues.split(","):
        numbers = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
        if last < first or last - first > 10_000:
            raise InputError("ues", ues, "numbers and ranges with commas between, e.g. 0-9,12")
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)
