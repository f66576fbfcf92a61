"""`fedslot serve`: the parameter server of a deployment over MQTT."""

from __future__ import annotations

from functools import partial
from pathlib import Path
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
from fedslot.cli.options import (
    ForceOption,
    FramesOption,
    OverrideOption,
    ResumeOption,
    ScenarioArgument,
    TrackOption,
    continue_with,
    note_effects,
    read_scenario,
    say_more,
    watch,
)
from fedslot.support.errors import counted


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
    resume: ResumeOption = False,
    force: ForceOption = False,
    frames: FramesOption = True,
    track: TrackOption = [],  # noqa: B006
) -> None:
    """Run a scenario on devices that speak MQTT, as their parameter server.

    Example: fedslot serve quickstart --broker mqtt://127.0.0.1:1883 --out out/cell
    """
    wanted, where = read_scenario(scenario, override), read_broker(broker, tls_ca, cert, key)

    from fedslot.data import load
    from fedslot.deployment.mqtt import MqttServer, Timing
    from fedslot.deployment.server import ParameterServer
    from fedslot.rounds.held_out import HeldOut
    from fedslot.rounds.local_training import make_model
    from fedslot.runs.callbacks import Report
    from fedslot.runs.execution import load as load_run
    from fedslot.support.threads import Threads
    from fedslot.tracking.trackers import make_trackers

    note_effects(scenario, [wanted])
    timing = Timing(slot_seconds, downlink_seconds, slot_seconds / 2 if tolerance is None else tolerance)
    data = load(wanted.data.dataset)
    model = make_model(wanted, data)
    held_out = HeldOut(wanted, model, data.x_test, data.y_test)
    label = wanted.label
    with Threads(), network_log(), watch([label], [wanted], continue_with(context)) as display:
        server = ParameterServer(
            wanted,
            model,
            held_out,
            out=out,
            resume=resume,
            force=force,
            seeded=not free,
            unasked=True,
            callbacks=[Report(partial(display, 0)), *make_trackers(track, label)],
            frames=frames,
        )
        MqttServer(server, where, timing, cell=cell, wait=wait).run()
    summary = load_run(out).summary()
    typer.echo(
        f"{label}: test accuracy {summary['final_accuracy']:.4f} after {counted(summary['rounds'], 'round')} and "
        f"{summary['slots_spent']} slots, {summary['seconds'] / summary['rounds']:.2f} s a round, "
        f"{counted(len(server.faults.all), 'fault')}; results in {out}"
    )
    say_more(out)
