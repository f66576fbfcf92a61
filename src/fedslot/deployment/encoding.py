"""How updates and models are written on the wire, and what a device carries from one received update to the next.

Without compression, they are all numbers one after another, 32 bits each. With it, an update is the encoded change of
the model, and the model is encoded as a whole. The PS announces the schemes and the key of their random numbers, so
that a device decodes nothing but what the PS announced, and cannot choose its dither. No PyTorch is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from fedslot.compression import Codec, Compression, Floats, Key, Shapes
from fedslot.compression import parameters as count
from fedslot.deployment.screening import Refusal
from fedslot.parts.kinds import CODECS
from fedslot.support.errors import InputError

if TYPE_CHECKING:
    from fedslot.scenario import CompressionPart, Scenario

T = TypeVar("T")

MOST_PARAMETERS = 1 << 27  # of a model that is compressed: a short message may stand for many numbers
MOST_DIMENSIONS = 16  # of a tensor
MOST_DEPTH = 4  # of schemes inside one another
SEED_DIGITS = 39


@dataclass(frozen=True)
class Encoding:
    """How the updates and the model of a training are written; all fields are plain, so that any message can hold them.

    update, model: compression schemes with their options, as JSON; "" for numbers of 32 bits each.
    feedback: whether a UE adds the error that compression left in its last received update to its next one.
    shapes: of the model's tensors. seed: of the random numbers that both ends draw, in decimal. ues: number of UEs; as
    a sender, the PS counts as one more.
    """

    update: str = ""
    model: str = ""
    feedback: bool = False
    shapes: list[list[int]] = field(default_factory=list)
    seed: str = "0"
    ues: int = 0

    @classmethod
    def of(cls, scenario: Scenario, shapes: Shapes) -> Encoding:
        """Return the encoding of a scenario; one that cannot be deployed is refused."""
        updates, models = scenario.compression, scenario.broadcast_compression
        if updates is models is None:
            return PLAIN
        encoding = cls(
            write_scheme(updates, "compression"),
            write_scheme(models, "broadcast_compression"),
            updates is not None and updates.feedback,
            [list(shape) for shape in shapes],
            str(scenario.seed),
            scenario.data.ues,
        )
        encoding.check()
        return encoding

    def check(self) -> None:
        """Refuse what takes too much time or memory, and schemes that are not built in."""
        sizes = [size for shape in self.shapes for size in shape]
        if any(len(shape) > MOST_DIMENSIONS for shape in self.shapes) or not all(
            0 <= n <= MOST_PARAMETERS for n in sizes
        ):
            raise InputError("shapes", self.shapes, f"up to {MOST_DIMENSIONS} sizes from 0 to {MOST_PARAMETERS} each")
        if count(self.shapes_of_tensors) > MOST_PARAMETERS:
            allowed = f"at most {MOST_PARAMETERS} where a model is compressed"
            raise InputError("parameters", count(self.shapes_of_tensors), allowed)
        if not (self.seed.isascii() and self.seed.isdigit() and len(self.seed) <= SEED_DIGITS):
            raise InputError("seed", self.seed, f"at most {SEED_DIGITS} digits")
        if not 0 <= self.ues <= MOST_PARAMETERS:
            raise InputError("ues", self.ues, f"from 0 to {MOST_PARAMETERS}")
        _ = self.updates, self.models

    @cached_property
    def updates(self) -> Compression | None:
        """The compression of updates; None: there is none."""
        return self._compression(self.update, self.feedback)

    @cached_property
    def models(self) -> Compression | None:
        """The compression of models; None: there is none."""
        return self._compression(self.model)

    @property
    def shapes_of_tensors(self) -> list[tuple[int, ...]]:
        """The shapes as tuples."""
        return [tuple(shape) for shape in self.shapes]

    def write_update(self, model: Floats, start: Floats, round: int, ue: int, error: Floats) -> tuple[bytes, Floats]:
        """Return the bytes of a local model (P,) that was trained from `start` (P,), and the UE's new error memory."""
        if self.updates is None:
            return model.astype("<f4", copy=False).tobytes(), error
        if len(model) != count(self.updates.shapes):
            raise InputError("model", f"{len(model)} parameters", f"{count(self.updates.shapes)}, as was announced")
        if self.feedback and len(error) != len(model):
            error = self.updates.first_error()
        message, _, left = self.updates.send(model - start, Key(int(self.seed), round, ue), error)
        if not message:
            raise ValueError("the local model is not finite")
        return message, left

    def read_model(self, content: bytes | memoryview, round: int, parameters: int | None = None) -> Floats:
        """Return the model (P,) of a broadcast; refuse one that is none, or not finite.

        parameters: how many there must be; None for any number.
        """
        numbers = len(content) // 4 if self.models is None else count(self.models.shapes)
        if parameters not in (None, numbers) or (self.models is None and len(content) % 4):
            raise Refusal("shape", f"{len(content)} bytes of {numbers} parameters, not of {parameters or 'any number'}")
        if self.models is None:
            model = np.frombuffer(content, "<f4").astype(np.float32)
        else:
            model = read_message(self.models, bytes(content), Key(int(self.seed), round, self.ues))
        if not np.isfinite(model).all():
            raise Refusal("finite", "some numbers are not")
        return model

    def _compression(self, written: str, feedback: bool = False) -> Compression | None:
        if not written:
            return None
        return Compression(read_scheme(written), json.loads(written)[0], self.shapes_of_tensors, feedback)


PLAIN = Encoding()
"""Numbers of 32 bits."""


def read_message(compression: Compression, message: bytes, key: Key) -> Floats:
    """Return what an encoded message of somebody else stands for; refuse one that is none."""
    if len(message) > compression.most_bytes:
        raise Refusal("size", f"{len(message)} bytes, {compression.most_bytes} at most")
    try:
        return compression.read(message, key)
    except ValueError as error:
        raise Refusal("encoding", f"{compression.name}: {error}") from None


def write_scheme(part: CompressionPart | None, field: str) -> str:
    """Return a compression scheme as JSON, "" for none; one that cannot be deployed is refused."""
    if part is None:
        return ""
    foreign = own_schemes(part)
    if foreign:
        raise InputError(field, foreign[0], f"one of {', '.join(CODECS)} in a deployment")
    return json.dumps([part.name, part.options])


def own_schemes(part: CompressionPart | None) -> list[str]:
    """Return the names of schemes that are not built in, also of those inside others."""
    return [] if part is None else [name for name in _names(part.name, part.options) if name not in CODECS]


def read_scheme(written: str) -> Codec:
    """Return an announced scheme: only a built-in one, because a message must not import anything."""
    announced = json.loads(written)
    if not isinstance(announced, list) or len(announced) != 2 or not isinstance(announced[1], dict):
        raise InputError("compression", written, "a name and options")
    for name in _names(*announced):
        if name not in CODECS:
            raise InputError("compression", name, f"one of {', '.join(CODECS)} in a deployment")
    codec: Codec = CODECS.make(*announced)
    return codec


def _names(name: Any, options: Any, depth: int = 1) -> Iterator[Any]:
    """Yield the names of a scheme and of those that it uses."""
    if depth > MOST_DEPTH:
        raise InputError("compression", f"{depth} schemes inside one another", f"at most {MOST_DEPTH}")
    yield name if isinstance(name, str) else repr(name)
    inner = options.get("values") if isinstance(options, dict) else None
    if isinstance(inner, dict):
        yield from _names(inner.get("name", "quantise"), inner.get("options"), depth + 1)
    elif inner is not None:
        yield from _names(inner, None, depth + 1)


class Carried(Generic[T]):
    """A state that a UE carries from one received update to the next: an error memory, the states of its chain.

    In the simulator, states advance with received updates only. A device learns what was received from the next
    announcement, and until then it holds both states. If it misses that, the update counts as not received.

    >>> state = Carried("before")
    >>> state.advance(3, "after")
    >>> state.settle(4, received=3)
    >>> state.value
    'after'
    """

    def __init__(self, first: T) -> None:
        self.first = self.value = first
        self.round = -1  # of the update that led to the value
        self.next: tuple[int, T] | None = None

    def advance(self, round: int, value: T) -> None:
        """Note the state after the update of a round, in case that it is received."""
        self.next = round, value

    def settle(self, round: int, received: int) -> None:
        """Learn, when a frame begins, of which round the last received update was, as far as is known; -1: of none."""
        if round <= self.round:  # the training began anew
            self.value, self.round = self.first, -1
        elif self.next is not None and self.next[0] == received:
            self.round, self.value = self.next
        self.next = None
