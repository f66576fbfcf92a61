"""The interface of compression schemes.

A UE encodes the change of the model by its training, and the PS decodes it. What is encoded is what a device sends:
the simulator does the same, so that it counts the bits of the wire.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedslot.support.rng import COMPRESSION, stream

Floats = NDArray[np.float32]
Shapes = Sequence[tuple[int, ...]]
"""The shapes of a model's tensors, in the order in which a flat vector (P,) holds them."""

SHARED, PRIVATE = 0, 1


def parameters(shapes: Shapes) -> int:
    """Return the number P of parameters of a model.

    >>> parameters([(50, 784), (50,), ()])
    39251
    """
    return sum(math.prod(shape) for shape in shapes)


@dataclass(frozen=True)
class Key:
    """What a UE and the PS both know of an update, from which they draw the same random numbers.

    >>> Key(seed=0, round=3, ue=7).shared().random() == Key(seed=0, round=3, ue=7).shared().random()
    True
    """

    seed: int
    round: int
    ue: int

    def shared(self) -> np.random.Generator:
        """Return a fresh generator for the numbers that the UE and the PS draw alike, e.g. a dither."""
        return stream(self.seed, COMPRESSION, self.round, self.ue, SHARED)

    def private(self) -> np.random.Generator:
        """Return a fresh generator for the numbers that only the UE draws, e.g. to round at random."""
        return stream(self.seed, COMPRESSION, self.round, self.ue, PRIVATE)


class Codec(ABC):
    """A compression scheme; one of your own is a subclass. Its options are the keyword arguments of its constructor."""

    @abstractmethod
    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        """Return a change of the model (P,) as bytes, at most `most_bytes(shapes)`."""

    @abstractmethod
    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        """Return the change (P,) that bytes stand for; raise `ValueError` if they are no message of `encode`."""

    @abstractmethod
    def most_bytes(self, shapes: Shapes) -> int:
        """Return the most bytes of a message: the slot of an update is made for them."""

    def noise(self, changes: Floats) -> NDArray[np.float64] | None:
        """Return the standard deviation (Y,) of noise and compression error on decoded changes (Y, P).

        None, where these are spread over all parameters alike, as noise is: then it is estimated as without
        compression, from the median of a change.
        """
        return None
