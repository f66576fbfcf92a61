"""A compression scheme in use: what a UE sends of a change, with error feedback, and how the PS reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters
from fedslot.scenario import CompressionPart
from fedslot.support.errors import RefusedError, reason


@dataclass(frozen=True)
class Compression:
    """Writes the change of a model as bytes, and reads them: in the simulator, at the PS and on a device.

    name: of the scheme, for messages. shapes: of the model's tensors. feedback: whether a UE adds the error that
    compression left in its last received update to its next one.
    """

    codec: Codec
    name: str
    shapes: Shapes
    feedback: bool = False

    @property
    def most_bytes(self) -> int:
        """The most bytes of a message."""
        return self.codec.most_bytes(self.shapes)

    def first_error(self) -> Floats:
        """Return the error memory of a UE before its first update: (P,), or without elements if there is none."""
        return np.zeros(parameters(self.shapes) if self.feedback else 0, np.float32)

    def send(self, change: Floats, key: Key, error: Floats) -> tuple[bytes, Floats, Floats]:
        """Return the bytes of a change (P,), what they are decoded to, and the UE's new error memory.

        error: the error memory after its last update.
        """
        if self.feedback:
            change = change + error
        message, arrived = self.transmit(change, key)
        return message, arrived, change - arrived if self.feedback else error

    def transmit(self, change: Floats, key: Key) -> tuple[bytes, Floats]:
        """Return the bytes of a change (P,), and what they are decoded to."""
        if not np.isfinite(change).all():  # training diverged, which is refused where updates are used
            return b"", change
        try:
            message = self.codec.encode(change, self.shapes, key)
            decoded = self.codec.decode(message, self.shapes, key)
        except Exception as error:
            if type(self.codec).__module__.startswith("fedslot."):
                raise
            raise RefusedError(f"compression {self.name} failed ({reason(error)})") from error
        if not isinstance(message, bytes) or len(message) > self.most_bytes:
            raise RefusedError(f"compression {self.name} must encode to at most {self.most_bytes} bytes, as it says")
        if not isinstance(decoded, np.ndarray) or decoded.shape != change.shape or decoded.dtype != np.float32:
            raise RefusedError(f"compression {self.name} must decode to an array {change.shape} of float32")
        return message, decoded

    def read(self, message: bytes, key: Key) -> Floats:
        """Return the change (P,) that the bytes of somebody else stand for; raise `ValueError` if they are none."""
        if len(message) > self.most_bytes:
            raise ValueError(f"{len(message)} bytes, {self.most_bytes} at most")
        return self.codec.decode(message, self.shapes, key)


def compression_of(part: CompressionPart | None, shapes: Shapes) -> Compression | None:
    """Return the compression that a scenario names, for a model with tensors of these shapes."""
    if part is None:
        return None
    return Compression(part.make(), part.name, shapes, getattr(part, "feedback", False))
