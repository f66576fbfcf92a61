"""The checks that an update must pass before it may touch the model; nothing from the network is trusted."""

from __future__ import annotations

import io
import math
import reprlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedslot.deployment.frame import MOST_COPIES, Turn
from fedslot.support.errors import InputError
from fedslot.support.limits import MOST_NORM

METRICS_BYTES = 1 << 16  # bytes that a reply may have beside its arrays
WEIGHT = "num-examples"  # the metric by which devices say how many training samples they have
VERSION, SECONDS = "version", "seconds"  # the round from whose broadcast they trained, and how long that took
HEADER_BYTES = 1 << 10  # bytes that an array may have beside its numbers
MOST_CHARACTERS = 200  # of a device's words that are written to faults.csv
MOST_EXAMPLES = 1 << 40  # training samples that a device may claim: sums of weights stay exact


class Refusal(Exception):
    """Why a reply is not used: one word, and what was found."""

    def __init__(self, reason: str, detail: str = "") -> None:
        short = " ".join(detail[: 2 * MOST_CHARACTERS].split())[:MOST_CHARACTERS]  # it may quote a device
        self.reason, self.detail = reason, "".join(letter if letter.isprintable() else "?" for letter in short)
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True)
class Limits:
    """Limits of what a device may send.

    norm: the longest move from the global model, in multiples of the initial model's norm (at least 1).
    examples: the most training samples that count for one UE, in multiples of the median claim.
    """

    norm: float = MOST_NORM
    examples: float = 10.0

    def __post_init__(self) -> None:
        for name, value in (("norm", self.norm), ("examples", self.examples)):
            if not 1 <= value < math.inf:
                raise InputError(f"limits.{name}", value, "a finite number, 1 or more")


@dataclass(frozen=True)
class Update:
    """A UE's update that passed the checks of its form.

    model: (P,) its local model. examples: training samples that it claims. metrics: whatever else it measured.
    bits: of its parameters on the wire. version: the round from whose broadcast it was trained.
    """

    model: NDArray[np.float32]
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    bits: int = 0
    version: int = -1


Shapes = Mapping[str, tuple[int, ...]]


def check_slots(turn: Turn, round: object, slots: object, *, late: bool = False) -> list[int]:
    """Return the slots that a reply names, if its UE may have used them; an empty list if the UE was barred.

    late: whether the UE may have become ready at any time.
    """
    if round != turn.round or type(round) is not int:
        raise Refusal("round", reprlib.repr(round))
    few = slots if isinstance(slots, list) and len(slots) <= MOST_COPIES else []  # it may be of any length
    whole = [slot for slot in few if type(slot) is int]
    if whole != slots or not turn.allows(whole, late=late):
        raise Refusal("slot", reprlib.repr(slots))
    return whole


def _count(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def check_size(size: int, most: int) -> None:
    """Refuse a reply with more bytes than an update of at most `most` bytes and some metrics can have."""
    if size > most + METRICS_BYTES:
        raise Refusal("size", f"{size} bytes")


def most_bytes(shapes: Shapes) -> int:
    """Return the most bytes of a model's arrays, as they are read by `read_model`."""
    return 4 * _count(shapes) + HEADER_BYTES * len(shapes)


def read_update(model: NDArray[np.float32], metrics: Mapping[str, object], weight: str, bits: int = 0) -> Update:
    """Return the update that a reply holds. weight: the metric that counts training samples."""
    if not np.isfinite(model).all():
        raise Refusal("finite", f"{int((~np.isfinite(model)).sum())} numbers are not")
    examples = metrics.get(weight)
    if type(examples) is not int or not 1 <= examples <= MOST_EXAMPLES:
        raise Refusal("examples", reprlib.repr(examples))
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != weight}
    finite = {name: float(value) for name, value in numbers.items() if np.isfinite(value)}
    return Update(model, examples, finite, bits)


def read_version(metrics: Mapping[str, object], known: Container[int], last: int) -> int:
    """Return the version from which an update was trained.

    known: those that the PS holds. last: that of the UE's last received update, before which it holds no other one.
    """
    version = metrics.get(VERSION)
    if type(version) is not int or version not in known:
        raise Refusal("version", f"{reprlib.repr(version)}, too old or of no model that this server sent")
    if version <= last:
        raise Refusal("version", f"{version}, after an update of version {last} was received")
    return version


def check_metrics(update: Update, wanted: Iterable[str]) -> None:
    """Refuse an update that lacks a metric that the PS wants of every update."""
    for name in wanted:
        if name not in update.metrics:
            raise Refusal("metrics", f"{name} is missing")


def check_move(update: Update, model: NDArray[np.float32], longest: float) -> None:
    """Refuse an update that lies further than `longest` from the global model (P,)."""
    move = float(np.linalg.norm(update.model.astype(np.float64) - model))
    if move > longest:
        raise Refusal("norm", f"{move:.3g}, allowed {longest:.3g}")


def read_model(arrays: Mapping[str, bytes] | bytes, shapes: Shapes) -> NDArray[np.float32]:
    """Return the model (P,) that a reply holds.

    arrays: the parameters by name, each in `.npy` format; or as bytes, all numbers one after another (float32, little
    endian).
    """
    if isinstance(arrays, bytes):
        parameters = _count(shapes)
        if len(arrays) != 4 * parameters:
            raise Refusal("shape", f"{len(arrays)} bytes, not 4 for each of {parameters} parameters")
        return np.frombuffer(arrays, "<f4").astype(np.float32)
    if set(arrays) != set(shapes):
        raise Refusal("keys", ", ".join(sorted(set(arrays) ^ set(shapes))))
    return np.concatenate([_read_array(name, arrays[name], shape) for name, shape in shapes.items()])


def _read_array(name: str, data: bytes, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the numbers of a `.npy` array, flat; they are read only if its header says what the model needs."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        stated, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # NumPy parses headers as Python text, which fails in many ways
        raise Refusal("array", f"{name}: {error}") from None
    if dtype != np.dtype("<f4"):
        raise Refusal("dtype", f"{name}: {dtype}")
    if tuple(stated) != shape:
        raise Refusal("shape", f"{name}: {stated}")
    if len(data) - stream.tell() != 4 * math.prod(shape):
        raise Refusal("array", f"{name}: {len(data)} bytes")
    flat = np.frombuffer(data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F").ravel() if fortran else flat
