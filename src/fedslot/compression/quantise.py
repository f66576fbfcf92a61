"""Uniform quantisation: levels of equal distance, with as many bits as asked for."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.compression.codec import Codec, Floats, Key, Shapes
from fedslot.compression.entropy_coding import OPTION
from fedslot.compression.fixed_length import FixedLength, Per, Reach
from fedslot.compression.rounding import Rounding
from fedslot.compression.variable_length import VariableLength
from fedslot.support.errors import InputError
from fedslot.support.extras import require


class Quantise(Codec):
    """Rounds each parameter to one of several levels of equal distance.

    bits: bits b for each parameter; with coding, on average over a message and including its tables, and any number.
    rounding: `dither` adds random numbers that the PS knows and subtracts again, so that the error does not depend on
    the change, with a variance of step^2 / 12; `nearest` has the least error, which depends on the change;
    `stochastic` rounds up or down at random.
    coding: `none` writes one of 2^b levels with b bits. `range` writes multiples of one step by a range coder, with the
    finest step for which this takes b bits: it has the least error of all, and needs the extra `compression`.
    per: without coding, what has a step of its own, of 32 bits. reach: without coding, how far the levels reach:
    `fitted` for the least mean square error, or up to the `largest` change, so that none is cut off.
    """

    def __init__(
        self,
        *,
        bits: Annotated[float, Field(ge=0.1, le=16)] = 2,
        rounding: Rounding = "dither",
        coding: Literal["none", "range"] = "none",
        per: Per = "tensor",
        reach: Reach = "fitted",
    ) -> None:
        if coding == "range":
            require(f"compression {OPTION}", "compression")
            if per != "tensor":
                raise InputError("per", per, "tensor, since all parameters have the same step with coding: range")
        elif bits != int(bits):
            raise InputError("bits", bits, "a whole number, unless coding is range")
        self.scheme: Codec = FixedLength(int(bits), rounding, per, reach)
        if coding == "range":
            self.scheme = VariableLength(bits, rounding)

    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        return self.scheme.encode(change, shapes, key)

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        return self.scheme.decode(message, shapes, key)

    def most_bytes(self, shapes: Shapes) -> int:
        return self.scheme.most_bytes(shapes)

    def noise(self, changes: Floats) -> NDArray[np.float64] | None:
        return self.scheme.noise(changes)
