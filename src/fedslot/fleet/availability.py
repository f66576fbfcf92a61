"""Laws of the availability of UEs: when each of them is there, and when it is switched off or out of reach.

A law of your own is a class like these, `fleet.availability: package.module:Name`; further parameters are its options.
`slot_seconds` is the length of a slot, or None if the scenario does not give it. `at` must return the same for a time
whenever it is called, so that a run can be continued. The law `csv` is in availability_file.py.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.support.errors import InputError
from fedslot.support.rng import AVAILABILITY, stream

Unit = Literal["slots", "seconds"]
Mean = Annotated[float, Field(ge=1e-3, le=1e9)]


class Availability(Protocol):
    """When UEs are there."""

    def at(self, time: float) -> NDArray[np.bool_]:
        """Return which UEs (K,) are there at a time, in slots spent since the beginning of the run."""


class Markov:
    """Each UE is there and away in turns, for exponentially distributed times: a Markov chain of two states.

    on, off: mean times for which a UE is there, and away. unit: that of both.
    """

    def __init__(
        self,
        ues: int,
        seed: int,
        slot_seconds: float | None,
        *,
        on: Mean = 100.0,
        off: Mean = 100.0,
        unit: Unit = "slots",
    ) -> None:
        self.ues, self.seed, self.share = ues, seed, on / (on + off)
        # With rates 1 / on and 1 / off, the state is drawn anew from the stationary distribution at the points of a
        # Poisson process whose rate is their sum. So it is found from the last of these points before any time.
        self.window = on * off / (on + off) / slot_length(unit, slot_seconds, "unit")
        self._whole = lru_cache(maxsize=32)(partial(self._last, part=1.0))

    def at(self, time: float) -> NDArray[np.bool_]:
        """Return which UEs (K,) are there at a time, in slots."""
        window, part = divmod(time / self.window, 1)
        state, number = self._last(int(window), part), int(window)
        while number and (state == NONE).any():
            number -= 1
            state = np.where(state == NONE, self._whole(number), state)
        first = stream(self.seed, AVAILABILITY).random(self.ues) < self.share
        there: NDArray[np.bool_] = np.where(state == NONE, first, state == ON)
        return there

    def _last(self, window: int, part: float) -> NDArray[np.int8]:
        """Return the state (K,) drawn at the last point in a window, up to a part of it; `NONE` without any."""
        rng = stream(self.seed, AVAILABILITY, window)
        counts = rng.poisson(1.0, self.ues)
        shape = (self.ues, max(1, int(counts.max())))
        times, on = rng.random(shape), rng.random(shape) < self.share
        times[(np.arange(shape[1]) >= counts[:, None]) | (times > part)] = -1
        last = times.argmax(axis=1)[:, None]
        drawn, any_point = np.take_along_axis(on, last, 1)[:, 0], (times >= 0).any(axis=1)
        return np.where(any_point, drawn, NONE).astype(np.int8)


ON, NONE = 1, -1


def slot_length(unit: str, slot_seconds: float | None, option: str) -> float:
    """Return the length of a slot in a unit of time; option: that of a law, for the message if it is not known."""
    if unit == "slots":
        return 1.0
    if slot_seconds is None:
        raise InputError(option, unit, "slots, unless radio.slot_seconds or fleet.computing gives the length of a slot")
    return slot_seconds
