"""Nothing from the network is trusted: what must be true of a reply before it may touch the model."""

from __future__ import annotations

import io
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from fedslot.deployment.flower.turn import LABEL, ROUND, SLOTS, Turn
from fedslot.errors import InputError

ROOM = 1 << 16  # bytes that a reply may take beyond the model
MOST_SAID = 200  # characters of what a device said that are written down
MOST_SLOTS = 1 << 10  # slots that a reply may name at all
MOST_EXAMPLES = 1 << 40  # training samples that a device may claim: sums of weights stay exact
HEADER = 1 << 10  # bytes that an array may take beyond its numbers


class Refusal(Exception):
    """Why a reply is not used: one word, and what was found."""

    def __init__(self, reason: str, detail: str = "") -> None:
        said = " ".join(detail[: 2 * MOST_SAID].split())[:MOST_SAID]  # it may quote a device
        self.reason, self.detail = reason, "".join(letter if letter.isprintable() else "?" for letter in said)
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True)
class Update:
    """What a UE sent, once it is known to be sound.

    row: (P,) its local model. examples: training samples that it claims. metrics: what else it measured.
    """

    row: NDArray[np.float32]
    examples: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Limits:
    """What is absurd.

    norm: the longest move from the global model, in multiples of the first model's norm (of 1, if that is shorter).
    examples: the most training samples that count for one UE, in multiples of the median claim.
    """

    norm: float = 10.0
    examples: float = 10.0

    def __post_init__(self) -> None:
        for name, value in (("norm", self.norm), ("examples", self.examples)):
            if not value >= 1:
                raise InputError(f"limits.{name}", value, "1 or more")


def place(reply: Message, turn: Turn, copies: int) -> list[int]:
    """The slots in which a reply was on the air; none if the UE kept silent.

    copies: how many slots a UE may use at most.
    """
    if reply.has_error():
        raise Refusal("error", reply.error.reason or "")
    label = reply.content.config_records.get(LABEL)
    if label is None:
        raise Refusal("label", "no slots on the reply; is slot_access among the mods?")
    if label.get(ROUND) != turn.round:
        raise Refusal("round", reprlib.repr(label.get(ROUND)))
    said = label.get(SLOTS)
    few = said if isinstance(said, list) and len(said) <= MOST_SLOTS else []  # it may be of any length
    slots = [slot for slot in few if type(slot) is int]
    if slots != said:
        raise Refusal("slot", reprlib.repr(said))
    if turn.slot or turn.seed:  # reserved, or drawn such that the PS can repeat the draw
        allowed = slots == turn.draw()
    else:
        window = range(turn.first, turn.first + turn.slots)
        allowed = len(slots) <= copies and len(set(slots)) == len(slots) and all(slot in window for slot in slots)
    if not allowed:
        raise Refusal("slot", f"{slots!r}")
    return slots


def read(reply: Message, shapes: Mapping[str, tuple[int, ...]], weight: str) -> Update:
    """The update in a reply. shapes: the model's. weight: the metric that counts training samples."""
    size = sum(record.count_bytes() for record in reply.content.values())
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    if size > 4 * numbers + HEADER * len(shapes) + ROOM:
        raise Refusal("size", f"{size} bytes")
    if len(reply.content.array_records) != 1 or len(reply.content.metric_records) != 1:
        raise Refusal("records", "not one of arrays and one of metrics")
    (arrays,), (metrics,) = reply.content.array_records.values(), reply.content.metric_records.values()
    row = _row(arrays, shapes)
    examples = metrics.get(weight)
    if type(examples) is not int or not 1 <= examples <= MOST_EXAMPLES:
        raise Refusal("examples", f"{examples!r}")
    return Update(row, examples, _scalars(metrics, weight))


def _row(arrays: ArrayRecord, shapes: Mapping[str, tuple[int, ...]]) -> NDArray[np.float32]:
    if set(arrays) != set(shapes):
        raise Refusal("keys", ", ".join(sorted(set(arrays) ^ set(shapes))))
    row = np.concatenate([_numbers(name, arrays[name], shape) for name, shape in shapes.items()])
    if not np.isfinite(row).all():
        raise Refusal("finite", f"{int((~np.isfinite(row)).sum())} numbers are not")
    return row


def _numbers(name: str, array: Array, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The numbers of an array in `.npy` format; its header is believed only if it says what we expect."""
    stream = io.BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError as error:
        raise Refusal("array", f"{name}: {error}") from None
    if dtype != np.dtype("<f4"):
        raise Refusal("dtype", f"{name}: {dtype}")
    if tuple(found) != shape:
        raise Refusal("shape", f"{name}: {found}")
    if len(array.data) - stream.tell() != 4 * int(np.prod(shape)):
        raise Refusal("array", f"{name}: {len(array.data)} bytes")
    flat = np.frombuffer(array.data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F").ravel() if fortran else flat


def _scalars(metrics: MetricRecord, weight: str) -> dict[str, float]:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != weight}
    return {name: float(value) for name, value in numbers.items() if np.isfinite(value)}


def too_far(update: Update, model: NDArray[np.float32], reach: float) -> None:
    """Refuse an update that lies absurdly far from the model."""
    move = float(np.linalg.norm(update.row.astype(np.float64) - model))
    if move > reach:
        raise Refusal("norm", f"{move:.3g}, allowed {reach:.3g}")
