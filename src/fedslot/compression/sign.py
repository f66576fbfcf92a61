"""Signs with a scale for each tensor (Seide et al., 2014; Bernstein et al., 2018)."""

from __future__ import annotations

from fedslot.compression.fixed_length import FixedLength, Per


class Sign(FixedLength):
    """Sends one bit for each parameter, its sign, and for each tensor the mean of the absolute values.

    It is biased; use it with error feedback. per: what has a scale of its own, of 32 bits.
    """

    def __init__(self, *, per: Per = "tensor") -> None:
        super().__init__(bits=1, rounding="nearest", per=per, reach="mean")
