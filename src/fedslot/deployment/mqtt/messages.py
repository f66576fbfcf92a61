"""Topics and messages: a JSON header, and the bytes of a model or an update.

    fedslot/CELL/ps/scenario    the scenario as YAML, retained
    fedslot/CELL/ps/status      `running`, `finished` or `offline`, retained; `offline` is the PS's last will
    fedslot/CELL/ps/clock       what the clock of the PS shows
    fedslot/CELL/ps/frame       an announcement (JSON)
    fedslot/CELL/ps/model       the global model, retained
    fedslot/CELL/ps/members     the devices that are here, if the PS signs what it says
    fedslot/CELL/ueN/status     `online` or `offline` with the device's name, retained; `offline` is its last will
    fedslot/CELL/ueN/update     the update of UE N

The PS may sign all of these (`signing.py`) but the model, whose hash is in the announcement. Everyone writes below its
own name, so that a broker needs a single rule for all devices. The messages of models and updates are `FSL1`, the
header's length (unsigned, 32 bits), the header, all little endian, then the model or the update as the announced
encoding writes it. Each function that reads or unpacks raises `Refusal` if the message is none of its kind.
Whoever changes the meaning of a message raises `PROTOCOL`: PS and devices say it in their statuses, and refuse one
another if it differs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedslot import __version__
from fedslot.deployment.screening import METRICS_BYTES, Refusal
from fedslot.support.errors import InputError

PROTOCOL = 1  # that of statuses without a number, too
MAGIC = b"FSL1"
PREFIX = struct.Struct("<4sI")
PS = "ps"
SCENARIO, STATUS, CLOCK, FRAME, MODEL, UPDATE = "scenario", "status", "clock", "frame", "model", "update"
MEMBERS = "members"
RUNNING, FINISHED, ONLINE, OFFLINE = "running", "finished", "online", "offline"
MOST_STATUS_BYTES = 1 << 10
MOST_VERSION = 32  # characters
CELL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Topics:
    """The topics of a cell, by which several can share a broker."""

    cell: str = "cell"

    def __post_init__(self) -> None:
        if not CELL_NAME.fullmatch(self.cell):
            raise InputError("cell", self.cell, "1 to 64 letters, digits, dots, hyphens or underscores")

    def of(self, who: str, what: str) -> str:
        """Return a topic, of the PS (`ps`), of a UE (`ue7`), or of all (`+`)."""
        return f"fedslot/{self.cell}/{who}/{what}"

    def parse(self, topic: str) -> tuple[str, str]:
        """Return whose topic it is, and what is written there."""
        _, _, who, what = topic.split("/")
        return who, what


def ue_name(ue: int) -> str:
    """Return the name of a UE's device: part of its topics, and of its certificate."""
    return f"ue{ue}"


def ue_of(name: str, ues: int) -> int | None:
    """Return the UE of a name; None if it is none from 0 to `ues` - 1.

    >>> ue_of("ue7", 8), ue_of("ue07", 8), ue_of("ue8", 8)
    (7, None, None)
    """
    digits = name.removeprefix("ue")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9 or ue_name(int(digits)) != name:
        return None
    return int(digits) if int(digits) < ues else None


def pack(header: dict[str, Any], content: bytes) -> bytes:
    """Return the message of a model or an update."""
    text = json.dumps(header, allow_nan=False).encode()
    return PREFIX.pack(MAGIC, len(text)) + text + content


def unpack(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the undecoded content of a message."""
    try:
        magic, length = PREFIX.unpack_from(data)
        if magic != MAGIC or length > METRICS_BYTES or PREFIX.size + length > len(data):
            raise ValueError("no header")
        header = json.loads(data[PREFIX.size : PREFIX.size + length])
        if not isinstance(header, dict):
            raise ValueError("the header is not a JSON object")
    except (struct.error, ValueError, RecursionError) as error:
        raise Refusal("malformed", str(error)) from None
    return header, memoryview(data)[PREFIX.size + length :]


def version(content: bytes | memoryview) -> str:
    """Return the version of a model: the SHA-256 of its bytes."""
    return hashlib.sha256(content).hexdigest()


def write_model(content: bytes, round: int) -> bytes:
    return pack({"model": version(content), "round": round}, content)


def unpack_model(data: bytes) -> tuple[str, memoryview]:
    """Return the version of a model, which is the hash of its bytes, and these bytes."""
    header, content = unpack(data)
    found = version(content)
    if header.get("model") != found:
        raise Refusal("hash", f"its bytes have the hash {found}, not {reprlib.repr(header.get('model'))}")
    return found, content


def write_clock(name: str, now: float) -> bytes:
    return json.dumps({"clock": name, "sent": now}).encode()


def read_clock(data: bytes) -> tuple[str, float]:
    """Return the name of the PS's clock and its time."""
    try:
        message: Any = json.loads(data[:MOST_STATUS_BYTES])
        name, sent = str(message["clock"]), float(message["sent"])
        if not math.isfinite(sent):
            raise ValueError(f"a time of {sent}")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise Refusal("malformed", f"{type(error).__name__}: {error}") from None
    return name, sent


class Status(NamedTuple):
    """The state and the name of a device or of the PS, with what it speaks and its version of fedslot."""

    state: str
    node: str
    protocol: int = 1
    version: str = ""

    def check(self, who: str, reader: str) -> None:
        """Refuse a status of somebody who speaks another protocol. who, reader: what the two sides are called."""
        if self.protocol != PROTOCOL:
            theirs, ours = f"{self.protocol} (fedslot {self.version or '?'})", f"{PROTOCOL} (fedslot {__version__})"
            raise Refusal("version", f"{who} speaks protocol {theirs}, this {reader} {ours}; upgrade the older one")


def write_status(state: str, node: str) -> bytes:
    return json.dumps(Status(state, node, PROTOCOL, __version__)._asdict()).encode()


def read_status(data: bytes) -> Status:
    """Return the status of a device or of the PS; one without a protocol speaks the first."""
    try:
        status: Any = json.loads(data[:MOST_STATUS_BYTES])
        state, node, protocol = status["state"], status["node"], status.get("protocol", 1)
        if not (isinstance(state, str) and isinstance(node, str) and 1 <= len(node) <= 64 and node.isprintable()):
            raise ValueError("no state and node")
        if type(protocol) is not int or protocol < 1:
            raise ValueError("no protocol")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refusal("claim", f"{type(error).__name__}: {error}") from None
    return Status(state, node, protocol, str(status.get("version", ""))[:MOST_VERSION])
