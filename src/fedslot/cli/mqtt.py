"""Options that `fedslot serve` and `fedslot device` share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.support.extras import require

if TYPE_CHECKING:
    from fedslot.deployment.mqtt import Broker


def _check_wait(wait: float) -> float:
    from fedslot.deployment.timing import MOST_SECONDS
    from fedslot.support.errors import InputError

    if not 0 <= wait <= MOST_SECONDS:  # also NaN, with which the wait would never end
        raise InputError("--wait", wait, "0 seconds or more, at most a day")
    return wait


BrokerOption = Annotated[
    str, typer.Option(metavar="URL", help="The MQTT broker: mqtt://HOST:1883, or mqtts://HOST:8883 for TLS.")
]
CellOption = Annotated[str, typer.Option(help="Name of the cell; several cells can share a broker.")]
WaitOption = Annotated[
    float, typer.Option(callback=_check_wait, help="Seconds to wait for the broker and for the other side.")
]
CaOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Certificates of the authority that signed the broker's certificate.", show_default=False
    ),
]
CertOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Certificate of this side; {ue} stands for the number of the UE.", show_default=False
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Key of that certificate; {ue} stands for the number of the UE.", show_default=False
    ),
]


def read_broker(url: str, ca: str | None, cert: str | None, key: str | None) -> Broker:
    """Return the broker that the options describe."""
    require("this command", "sim")
    from fedslot.deployment.mqtt import Broker

    return Broker(url, ca, cert, key)


@contextmanager
def network_log() -> Iterator[None]:
    """Show what happens on the network, a line each on stderr."""
    logger, handler = logging.getLogger("fedslot"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
