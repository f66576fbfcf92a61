"""`fedslot serve`, `fedslot device` and `fedslot mqtt`: a deployment over MQTT."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedslot.cli.faults import UPDATES_MISSING
from fedslot.cli.options import (
    ForceOption,
    FramesOption,
    OverrideOption,
    ResumeOption,
    ScenarioArgument,
    Terminated,
    TrackOption,
    complete_scenario,
    continue_with,
    note_effects,
    read_scenario,
    say_more,
    stoppable,
    watch,
)
from fedslot.support.errors import InputError, counted, say_time
from fedslot.support.extras import require

if TYPE_CHECKING:
    from fedslot.deployment.mqtt import Broker


def _check_wait(wait: float) -> float:
    from fedslot.deployment.timing import MOST_SECONDS

    if not 0 <= wait <= MOST_SECONDS:  # also NaN, with which the wait would never end
        raise InputError("--wait", wait, "0 seconds or more, at most a day")
    return wait


def _file(text: str) -> Any:
    return typer.Option(metavar="FILE", help=text, show_default=False)


BrokerOption = Annotated[
    str, typer.Option(metavar="URL", help="The MQTT broker: mqtt://HOST:1883, or mqtts://HOST:8883 for TLS.")
]
CellOption = Annotated[str, typer.Option(help="Name of the cell; several cells can share a broker.")]
WaitOption = Annotated[
    float, typer.Option(callback=_check_wait, help="Seconds to wait for the broker and for the other side.")
]
CaOption = Annotated[str | None, _file("Certificates of the authority that signed the broker's certificate.")]
CertOption = Annotated[str | None, _file("Certificate of this side; {ue} stands for the number of the UE.")]
KeyOption = Annotated[str | None, _file("Key of that certificate; {ue} stands for the number of the UE.")]
mqtt_app = typer.Typer(no_args_is_help=True, help="Prepare a deployment over MQTT.")


@mqtt_app.command("key")
def key_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the private key, e.g. ps-sign.pem.")],
) -> None:
    """Make the key with which the parameter server signs, and the public key that devices check with.

    Example: fedslot mqtt key ps-sign.pem
    """
    from fedslot.deployment.mqtt.signing import make_keys

    public = make_keys(file)
    typer.echo(f"{file} stays at the PS (fedslot serve --sign-key {file})")
    typer.echo(f"{public} goes to every device (fedslot device --ps-key {public})")


@mqtt_app.command("setup")
def setup_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the files, e.g. /etc/fedslot.")],
    host: Annotated[list[str], typer.Option(help="Address or name of the broker; may be repeated.")],
    ues: Annotated[int, typer.Option(help="Number of UEs.", min=1, max=100_000)],
    port: Annotated[int, typer.Option(help="Port of the broker.", min=1, max=65535)] = 8883,
    most_bytes: Annotated[
        int, typer.Option(help="Largest message, 4 bytes per parameter and some kilobytes.", min=10_000)
    ] = 2_000_000,
    days: Annotated[int, typer.Option(help="Days for which the certificates are valid.", min=1, max=36_500)] = 3650,
) -> None:
    """Write certificates, keys, access rules and mosquitto.conf of a cell; what is there already stays.

    Example: fedslot mqtt setup /etc/fedslot --host 192.0.2.10 --ues 200
    """
    require("this command", "mqtt")
    from fedslot.deployment.mqtt.setup import write_setup

    write_setup(folder, host, ues, port, most_bytes, days)
    typer.echo(f"{folder}/broker: mosquitto -c {folder}/broker/mosquitto.conf")
    typer.echo(f"{folder}/ps, {folder}/ue0 and so on go to the PS and to the devices; keep {folder}/ca-key.pem offline")


def serve(
    context: typer.Context,
    scenario: ScenarioArgument,
    broker: BrokerOption,
    override: OverrideOption = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/serve"),
    slot_seconds: Annotated[float, typer.Option(help="Length of an uplink slot, in seconds.")] = 0.1,
    downlink_seconds: Annotated[
        float,
        typer.Option(
            help="Length of the downlink slot, from the announcement of a frame to its first uplink slot; devices "
            "fetch the model and train in this time."
        ),
    ] = 1.0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Seconds before and after its slot in which an update may arrive; by default half a slot.",
            show_default=False,
        ),
    ] = None,
    free: Annotated[
        bool,
        typer.Option(
            "--free",
            help="Devices decide by themselves whether they have an update to push, and draw slots from their own "
            "entropy. Without this option, both come from the scenario's seed, as in the simulator.",
        ),
    ] = False,
    cell: CellOption = "cell",
    wait: WaitOption = 60.0,
    tls_ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    sign_key: Annotated[
        str | None, _file("Private key with which the PS signs what it says; `fedslot mqtt key FILE` makes one.")
    ] = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    frames: FramesOption = True,
    track: TrackOption = [],  # noqa: B006
) -> None:
    """Run a scenario on devices that speak MQTT, as their parameter server.

    Example: fedslot serve quickstart --broker mqtt://127.0.0.1:1883 --out out/cell
    """
    wanted, where = read_scenario(scenario, override), _read_broker(broker, tls_ca, cert, key)

    from fedslot.data import load
    from fedslot.data.sources import outline
    from fedslot.deployment.mqtt import MqttServer, Timing
    from fedslot.deployment.server import ParameterServer
    from fedslot.rounds.held_out import HeldOut
    from fedslot.rounds.local_training import make_model
    from fedslot.rounds.memory import check_memory
    from fedslot.runs.callbacks import Report
    from fedslot.runs.execution import load as load_run
    from fedslot.support.threads import Threads
    from fedslot.tracking.trackers import make_trackers

    note_effects(scenario, [wanted])
    timing = Timing(slot_seconds, downlink_seconds, slot_seconds / 2 if tolerance is None else tolerance)
    data = load(wanted.data.dataset)
    model = make_model(wanted, data)
    check_memory(wanted, outline(wanted.data.dataset), model)
    label = wanted.label
    with watch([label], [wanted], continue_with(context)) as display, Threads(), _network_log():
        server = ParameterServer(
            wanted,
            model,
            HeldOut(wanted, model, data.x_test, data.y_test),
            out=out,
            resume=resume,
            force=force,
            seeded=not free,
            unasked=True,
            callbacks=[Report(partial(display, 0)), *make_trackers(track, label)],
            frames=frames,
        )
        MqttServer(server, where, timing, cell=cell, wait=wait, sign_key=sign_key).run()
    result = load_run(out)
    summary = result.summary()
    typer.echo(
        f"{label}: test {result.score.label} {result.final_score:.4f} after {counted(summary['rounds'], 'round')} and "
        f"{say_time(summary['slots_spent'])} slots, {summary['seconds'] / summary['rounds']:.2f} s a round, "
        f"{counted(len(server.faults.all), 'fault')}; results in {out}"
    )
    say_more(out)
    if server.shortfall:
        raise typer.Exit(UPDATES_MISSING)


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
    ps_key: Annotated[
        str | None, _file("Public key of the parameter server; nothing that it did not sign is taken then.")
    ] = None,
) -> None:
    """Train as one UE of a scenario, or as several, and push updates over MQTT until the training is over.

    Example: fedslot device --ue 7 --broker mqtt://127.0.0.1:1883
    """
    wanted, where = _read_ues(ue, ues), _read_broker(broker, tls_ca, cert, key)
    if scenario is None and override:
        raise InputError("-o", override[0], "used together with a SCENARIO")

    from fedslot.deployment.mqtt import fetch_scenario, run_devices, scenario_devices

    with stoppable("the parameter server goes on without it"), _network_log():
        first = where.of(wanted[0])
        trained = read_scenario(scenario, override) if scenario else fetch_scenario(first, cell, wait, ps_key)
        devices = scenario_devices(trained, wanted, where, cell, ps_key)
        run_devices(devices, wait)
    sent, turns = (sum(getattr(one, name) for one in devices) for name in ("sent", "turns"))
    refused = sum(count for one in devices for (what, _), count in one.refused.items() if what == "frame")
    name = f"UE {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} UEs"
    typer.echo(f"{name}: the training is over; {counted(sent, 'update')} sent")
    if 2 * sent < turns or (refused and not turns):
        line = (
            f"most updates are missing: {sent} of {turns} that were due were sent, {counted(refused, 'frame')} refused"
        )
        typer.secho(f"{line}; the lines above say why", err=True)
        raise typer.Exit(UPDATES_MISSING)


def _read_ues(ue: int | None, ues: str | None) -> list[int]:
    """Return the UEs that `--ue` or `--ues` name."""
    if (ue is None) == (ues is None):
        raise InputError("ue", ue, "given, or else --ues, and not both")
    numbers: dict[int, None] = {} if ue is None else {ue: None}
    for part in ues.split(",") if ues is not None else []:
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first or last - first > 10_000:
            raise InputError("ues", ues, "numbers and ranges with commas between, e.g. 0-9,12")
        numbers |= dict.fromkeys(range(first, last + 1))
    return list(numbers)


def _read_broker(url: str, ca: str | None, cert: str | None, key: str | None) -> Broker:
    require("this command", "sim")
    from fedslot.deployment.mqtt import Broker

    return Broker(url, ca, cert, key)


@contextmanager
def _network_log() -> Iterator[None]:
    """Show what happens on the network, a line each on stderr; SIGTERM ends the command with a line, as Ctrl-C does."""
    logger, handler = logging.getLogger("fedslot"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    level, before = logger.level, signal.signal(signal.SIGTERM, _terminate)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        logger.setLevel(level)
        logger.removeHandler(handler)


def _terminate(number: int, frame: object) -> None:
    raise Terminated
