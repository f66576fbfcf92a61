"""`fedslot mqtt`: the files of a cell behind certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.support.extras import require

DaysOption = Annotated[
    int, typer.Option(help="Days for which certificates and the list of revoked ones are valid.", min=1, max=36_500)
]
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
    days: DaysOption = 3650,
) -> None:
    """Write certificates, keys, access rules and mosquitto.conf of a cell; what is there already stays.

    Example: fedslot mqtt setup /etc/fedslot --host 192.0.2.10 --ues 200
    """
    require("this command", "mqtt")
    from fedslot.deployment.mqtt.setup import write_setup

    write_setup(folder, host, ues, port, most_bytes, days)
    typer.echo(f"{folder}/broker: mosquitto -c {folder}/broker/mosquitto.conf")
    typer.echo(f"{folder}/ps, {folder}/ue0 and so on go to the PS and to the devices; keep {folder}/ca-key.pem offline")


@mqtt_app.command("revoke")
def revoke_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that `fedslot mqtt setup` wrote.")],
    ues: Annotated[list[int], typer.Option("--ue", help="UE whose device is shut out; may be repeated.", min=0)],
    days: DaysOption = 3650,
) -> None:
    """Revoke the certificates of devices that left or were stolen; `fedslot mqtt setup` then makes new ones.

    Example: fedslot mqtt revoke /etc/fedslot --ue 7
    """
    require("this command", "mqtt")
    from fedslot.deployment.mqtt.setup import revoke

    revoke(folder, ues, days)
    typer.echo(f"{folder}/broker/crl.pem names them now; restart the broker, which then refuses them")
