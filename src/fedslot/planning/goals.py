"""Inverse questions: the shortest frame for a number of updates, the most contenders for a number of push slots."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Unpack

import numpy as np

from fedslot.planning.cell import CellOptions, PushCell
from fedslot.planning.contenders import MOST as MOST_CONTENDERS
from fedslot.planning.contenders import Contenders, contender_pmf
from fedslot.planning.planner import FrameSplit, compare
from fedslot.planning.pushes import Pushes
from fedslot.support.checks import check_whole
from fedslot.support.errors import InputError

MOST_UPDATES = 10_000
"""The largest number of updates to want of a frame, and the largest frame of which all splits are compared."""
MOST_SLOTS, MOST_SIMULATED = 1_000_000, 1000
"""The largest frame with a given number of pull slots, and on a channel that is simulated."""


def longest_frame(pull: int | None, cell: PushCell) -> int:
    """Return the number of slots up to which the shortest frame is searched."""
    if not cell.computed:
        return MOST_SIMULATED
    return MOST_UPDATES if pull is None else MOST_SLOTS


def least_slots(
    updates: float, contenders: Contenders, *, pull: int | None = None, **options: Unpack[CellOptions]
) -> FrameSplit | None:
    """Return the split of the shortest frame that is expected to receive a number of updates, None if it is too long.

    pull: number of pull slots; None: the best for each frame.
    options: ready (one probability), ues, barring, channel, frames, precision and seed, as of `plan`.

    >>> frame = least_slots(6, contenders=10, pull=2)
    >>> frame.pull, frame.push, round(frame.expected_received, 3)
    (2, 11, 6.241)
    """
    return shortest_frame(PushCell(contenders, **options), updates, pull)


def shortest_frame(cell: PushCell, updates: float, pull: int | None) -> FrameSplit | None:
    """Return the split of the shortest frame of a cell by bisection, since more slots never yield less."""
    if not 0 < updates <= MOST_UPDATES:
        raise InputError("want_updates", updates, f"a number above 0 and up to {MOST_UPDATES:,}")
    if cell.arrivals is not None:
        raise InputError("want_updates", updates, "left out with arrivals; give a number of contenders instead")
    if np.ndim(cell.ready):
        raise InputError("ready", cell.ready, "one probability for all slots")
    ready, longest = float(cell.ready), longest_frame(pull, cell)  # type: ignore[arg-type]
    if pull is not None and pull > longest:
        raise InputError("pull", pull, f"at most {longest:,}, the slots of the longest frame that is looked at")
    most_pulls = cell.ues if pull is None else pull
    most_pushes = cell.contenders_mean * (1.0 if isinstance(cell.barring, str) else cell.barring)
    wanted = updates * (1 - 1e-12)  # rounding does not decide
    if (ready == 0 or most_pulls is not None) and wanted > ready * (most_pulls or 0) + most_pushes:
        return None
    pulls: Iterable[int] | None = None if pull is None else [pull]
    slots = _first(
        max(1, pull or 0), longest, lambda slots: compare(cell, slots, pulls).best.expected_received >= wanted
    )
    return None if slots is None else compare(cell, slots, pulls).best


def most_contenders(success: float, push: int, **options: Unpack[CellOptions]) -> int:
    """Return the largest number of contenders of which each is received with at least a probability, up to a million.

    success: the probability that a contender is received in the frame, whether it was barred or collided if not.
    push: number of push slots.
    options: barring, channel, frames, precision and seed, as of `plan`.

    >>> most_contenders(0.5, push=10), most_contenders(0.2, push=10), most_contenders(0.2, push=10, barring="best")
    (7, 16, 18)
    """
    return supported_contenders(PushCell(0, **options), success, push)


def supported_contenders(cell: PushCell, success: float, push: int) -> int:
    """Return the largest number of contenders, as `most_contenders` does, whatever the number in the cell."""
    if not 0 < success <= 1:
        raise InputError("success", success, "a probability above 0 and up to 1")
    check_whole("push", push)

    def fails(number: int) -> bool:
        return Pushes(cell, contender_pmf(number)).received(push) < number * success * (1 - 1e-12)

    if not push:
        return 0
    first = _first(1, MOST_CONTENDERS, fails)
    return MOST_CONTENDERS if first is None else first - 1


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first number from `low` to `high` that holds, None if none does; all after one that holds do so."""
    least, tried = low, low
    while not holds(tried):
        if tried == high:
            return None
        least, tried = tried + 1, min(2 * tried, high)
    return least + bisect_left(range(least, tried), True, key=holds)
