"""Sparsification: only a share of the parameters is sent, the largest or random ones."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters
from fedslot.compression.indices import Coding, Indices, indices_bytes, pack_indices, unpack_indices
from fedslot.compression.noise import median_noise, tail_noise
from fedslot.compression.packing import check_length, read_values
from fedslot.compression.rounding import LARGEST
from fedslot.parts.kinds import CODECS
from fedslot.scenario import CompressionPart

Share = Annotated[float, Field(ge=1e-4, le=1)]


class TopK(Codec):
    """Sends the largest changes and which ones they are.

    share: of the parameters that are sent, at least one. values: how they are sent, a scheme or `{name, options}`;
    null: with 32 bits each. coding: of their indices: `none` is a bitmap or Elias-Fano coding, whichever is shorter;
    `range` is shorter by about half a bit for each, and needs the extra `compression`.
    """

    def __init__(self, *, share: Share = 0.05, values: CompressionPart | None = None, coding: Coding = "none") -> None:
        self.share, self.values, self.coding = share, _scheme(values), coding

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        first = len(change) - _kept(self.share, len(change))
        indices = np.sort(np.argpartition(np.abs(change), first)[first:]) if len(change) else np.arange(0)
        values = self.values.encode(change[indices], [indices.shape], key.inner())
        return pack_indices(indices, len(change), self.coding) + values

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        count = parameters(shapes)
        kept = _kept(self.share, count)
        start = indices_bytes(kept, count, self.coding)
        indices = unpack_indices(message[:start], kept, count, self.coding)
        return _spread(self.values.decode(message[start:], [(kept,)], key.inner()), indices, count)

    def most_bytes(self, shapes: Shapes) -> int:
        count = parameters(shapes)
        kept = _kept(self.share, count)
        return indices_bytes(kept, count, self.coding) + self.values.most_bytes([(kept,)])

    def noise(self, changes: Floats) -> NDArray[np.float64]:
        return tail_noise(changes, _kept(self.share, changes.shape[1]))


class RandK(Codec):
    """Sends random parameters, which the PS knows: no bits say which.

    share: of the parameters that are sent, at least one. values: how they are sent, a scheme or `{name, options}`;
    null: with 32 bits each. unbiased: whether they are multiplied by 1 / share, which makes the mean right, and the
    mean square error that of zeros times 1 / share - 1; with error feedback, it must be false.
    """

    def __init__(self, *, share: Share = 0.1, values: CompressionPart | None = None, unbiased: bool = True) -> None:
        self.share, self.values, self.unbiased = share, _scheme(values), unbiased

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        indices = self._indices(len(change), key)
        return self.values.encode(change[indices], [indices.shape], key.inner())

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        count = parameters(shapes)
        indices = self._indices(count, key)
        values = self.values.decode(message, [indices.shape], key.inner())
        if self.unbiased:
            values = values * np.float32(count / max(len(indices), 1))
        return _spread(values, indices, count)

    def most_bytes(self, shapes: Shapes) -> int:
        return self.values.most_bytes([(_kept(self.share, parameters(shapes)),)])

    def noise(self, changes: Floats) -> NDArray[np.float64]:
        count = changes.shape[1]
        kept = _kept(self.share, count)
        largest = np.partition(np.abs(changes), count - kept, axis=1)[:, count - kept :]
        found = self.values.noise(largest)
        noise: NDArray[np.float64] = (kept / count) ** 0.5 * (median_noise(largest) if found is None else found)
        return noise

    def _indices(self, count: int, key: Key) -> Indices:
        kept = _kept(self.share, count)
        return np.sort(np.argpartition(key.shared().random(count), kept - 1)[:kept]) if count else np.arange(0)


class Float32(Codec):
    """Sends parameters with 32 bits each."""

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        message: bytes = np.clip(change, -LARGEST, LARGEST).astype("<f4").tobytes()
        return message

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        check_length(message, self.most_bytes(shapes))
        return read_values(message)

    def most_bytes(self, shapes: Shapes) -> int:
        return 4 * parameters(shapes)


def _scheme(part: CompressionPart | None) -> Codec:
    scheme: Codec = Float32() if part is None else CODECS.make(part.name, part.options)
    return scheme


def _kept(share: float, count: int) -> int:
    """Return the number of parameters that are sent."""
    return min(max(round(share * count), 1), count)


def _spread(values: Floats, indices: Indices, count: int) -> Floats:
    """Return a vector (P,) of zeros with values at indices."""
    change = np.zeros(count, np.float32)
    change[indices] = values
    return change
