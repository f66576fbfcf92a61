"""`fedslot serve` and `fedslot device`: a deployment over MQTT."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedslot.cli.faults import UPDATES_MISSING
from fedslot.cli.network_log import LogForm, LogOption, logger, network_log, say
from fedslot.cli.options import (
    ForceOption,
    FramesOption,
    OverrideOption,
    ResumeOption,
    ScenarioArgument,
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
    from torch import Tensor

    from fedslot.deployment.mqtt import Broker, Device
    from fedslot.deployment.server import ParameterServer
    from fedslot.learning.models import Model
    from fedslot.runs.callbacks import Callback
    from fedslot.runs.results import Result


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
    log: LogOption = "text",
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve Prometheus metrics and the state of health there, on the loopback unless HOST is given.",
            show_default=False,
        ),
    ] = None,
    begin: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Begin with the model of this run.", show_default=False),
    ] = None,
) -> None:
    """Run a scenario on devices that speak MQTT, as their parameter server.

    Example: fedslot serve quickstart --broker mqtt://127.0.0.1:1883 --out out/cell
    """
    if metrics is not None:
        require("--metrics", "metrics")
    wanted, where = read_scenario(scenario, override), _read_broker(broker, tls_ca, cert, key)

    from fedslot.data import load
    from fedslot.data.sources import outline
    from fedslot.deployment.mqtt import MqttServer, Timing
    from fedslot.deployment.server import ParameterServer
    from fedslot.rounds.held_out import HeldOut
    from fedslot.rounds.local_training import make_model
    from fedslot.rounds.memory import check_memory
    from fedslot.runs.callbacks import Report, RoundLog
    from fedslot.runs.execution import load as load_run
    from fedslot.support.threads import Threads
    from fedslot.tracking.trackers import make_trackers

    note_effects(scenario, [wanted])
    timing = Timing(slot_seconds, downlink_seconds, slot_seconds / 2 if tolerance is None else tolerance)
    data = load(wanted.data.dataset)
    model = make_model(wanted, data)
    check_memory(wanted, outline(wanted.data.dataset), model)
    label = wanted.label
    initial, origin = (None, "") if begin is None else _read_model(begin, model)
    watchers, monitor = _watch_by(metrics)
    with watch([label], [wanted], continue_with(context)) as display, Threads(), network_log(log):
        server = ParameterServer(
            wanted,
            model,
            HeldOut(wanted, model, data.x_test, data.y_test),
            out=out,
            resume=resume,
            force=force,
            seeded=not free,
            unasked=True,
            callbacks=[
                RoundLog() if log == "json" else Report(partial(display, 0)),
                *watchers,
                *make_trackers(track, label),
            ],
            frames=frames,
        )
        cell_server = MqttServer(server, where, timing, cell=cell, wait=wait, sign_key=sign_key)
        with monitor(server):
            cell_server.run(initial, origin)
        _say_result(label, load_run(out), sum(server.faults.counts.values()), out, log)
    if server.shortfall:
        raise typer.Exit(UPDATES_MISSING)


def _watch_by(
    address: str | None,
) -> tuple[list[Callback], Callable[[ParameterServer], AbstractContextManager[object]]]:
    """Return callbacks that count for Prometheus, and the context that serves the counts; no address, no callbacks."""
    if address is None:
        return [], lambda server: nullcontext()
    from fedslot.deployment.metrics import Metrics

    metrics = Metrics()
    return [metrics], lambda server: metrics.serving(server, address)


def _read_model(folder: Path, network: Model) -> tuple[Tensor, str]:
    """Return the model of a run to begin with, and its hash; refuse one of another network."""
    import torch

    from fedslot.planning.inputs import model_shapes
    from fedslot.runs.records import RunFolder

    run = RunFolder(folder)
    flat = run.model() if (folder / "scenario.yaml").is_file() else None
    if flat is None or len(flat) != network.size or model_shapes(run.scenario()) != network.tensor_shapes:
        raise InputError(
            "--from", str(folder), f"the folder of a run whose network has these {network.size} parameters"
        )
    return torch.from_numpy(flat).to(network.initial), sha256(flat.tobytes()).hexdigest()


def _say_result(label: str, result: Result, faults: int, out: Path, log: LogForm) -> None:
    summary = result.summary()
    line = (
        f"{label}: test {result.score.label} {result.final_score:.4f} after {counted(summary['rounds'], 'round')} and "
        f"{say_time(summary['slots_spent'])} slots, {summary['seconds'] / summary['rounds']:.2f} s a round, "
        f"{counted(faults, 'fault')}; results in {out}"
    )
    say(log, line)
    if log == "text":
        say_more(out)


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
    stay: Annotated[
        bool,
        typer.Option("--stay", help="Wait for the next training after one is over, and follow changes of the cell."),
    ] = False,
    log: LogOption = "text",
) -> None:
    """Train as one UE of a scenario, or as several, and push updates over MQTT until the training is over.

    Example: fedslot device --ue 7 --broker mqtt://127.0.0.1:1883
    """
    wanted, where = _read_ues(ue, ues), _read_broker(broker, tls_ca, cert, key)
    if scenario is None and override:
        raise InputError("-o", override[0], "used together with a SCENARIO")

    from fedslot.deployment.mqtt import Device, fetch_scenario, run_devices, scenario_devices

    first, given = where.of(wanted[0]), read_scenario(scenario, override) if scenario else None
    with stoppable("the parameter server goes on without it"), network_log(log):
        while True:
            trained = given or fetch_scenario(first, cell, wait, ps_key, forever=stay)
            devices = scenario_devices(trained, wanted, where, cell, ps_key)
            run_devices(devices, wait, until=Device.is_done if stay else Device.is_over)
            shortfall = _say_end(devices, log)
            if not stay:
                break
    if shortfall:
        raise typer.Exit(UPDATES_MISSING)


def _say_end(devices: Sequence[Device], log: LogForm) -> bool:
    """Say that devices took part to the end; return whether most of their updates are missing."""
    sent, turns = (sum(getattr(one, name) for one in devices) for name in ("sent", "turns"))
    refused = sum(count for one in devices for (what, _), count in one.refused.items() if what == "frame")
    name = f"UE {devices[0].ue}" if len(devices) == 1 else f"{len(devices)} UEs"
    what = "the training is over" if all(one.is_over() for one in devices) else "another scenario is trained now"
    say(log, f"{name}: {what}; {counted(sent, 'update')} sent", sent=sent, due=turns)
    if 2 * sent >= turns and not (refused and not turns):
        return False
    line = f"most updates are missing: {sent} of {turns} that were due were sent, {counted(refused, 'frame')} refused"
    logger.warning("%s; the lines above say why", line)
    return True


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
