"""What may come in place of a compressed update, and why it is refused; for tests of all transports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedslot.compression import Floats, Key, Shapes
from fedslot.compression.eden import Eden
from fedslot.compression.quantise import Quantise

COMPRESSION = {"name": "quantise", "options": {"bits": 2}}
CODEC = Quantise(bits=2)
Change = Callable[[bytes, Shapes], bytes]


def _scale(number: float) -> Change:
    """Replace the first scale of a message."""
    return lambda message, shapes: np.float32(number).tobytes() + message[4:]


def _change(shapes: Shapes) -> Floats:
    count = sum(int(np.prod(shape)) for shape in shapes)
    return np.random.default_rng(0).normal(0, 0.01, count).astype(np.float32)


def honest(shapes: Shapes, seed: int, round: int, ue: int) -> bytes:
    """Return the message of a small change."""
    return CODEC.encode(_change(shapes), shapes, Key(seed, round, ue))


HOSTILE: dict[str, tuple[Change, str]] = {
    "nothing": (lambda message, shapes: b"", "encoding"),
    "truncated": (lambda message, shapes: message[:-1], "encoding"),
    "half": (lambda message, shapes: message[: len(message) // 2], "encoding"),
    "a byte too long": (lambda message, shapes: message + b"\0", "size"),
    "many times as long": (lambda message, shapes: 20 * message, "size"),
    "bits all set": (lambda message, shapes: b"\xff" * len(message), "encoding"),
    "random": (lambda message, shapes: np.random.default_rng(1).bytes(len(message)), "encoding"),
    "NaN as a scale": (_scale(np.nan), "encoding"),
    "an infinite scale": (_scale(np.inf), "encoding"),
    "a scale below 0": (_scale(-1.0), "encoding"),
    "the largest float as a scale": (_scale(3.4e38), "encoding"),
    "a huge scale": (_scale(1e9), "norm"),
    "another scheme": (lambda message, shapes: Eden(bits=2).encode(_change(shapes), shapes, Key(0, 0, 0)), "size"),
    "full precision": (lambda message, shapes: _change(shapes).tobytes(), "size"),
}
"""Changes of an honest message with 2 bits for each parameter, and the reason of the refusal."""
