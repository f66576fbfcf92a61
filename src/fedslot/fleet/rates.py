"""Laws of the rates of the UEs' links, and of the losses on them.

A rate is relative to that for which a slot is made. A law of your own is a function like these, `radio.rates:
package.module:function`; further parameters are its options. It may return outage probabilities, too.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

Rates = NDArray[np.float64]


def equal(ues: int, rng: np.random.Generator, *, rate: Annotated[float, Field(gt=0, le=1)] = 1.0) -> Rates:
    """Return the same rate for all UEs."""
    return np.full(ues, rate)
