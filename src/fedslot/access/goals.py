"""Inverse questions: the shortest frame for a number of updates, the most contenders for a number of push slots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedslot.access.channels import Channel, Collision, make_channel
from fedslot.access.contenders import MOST as MOST_CONTENDERS
from fedslot.access.contenders import Contenders, contender_pmf
from fedslot.access.planner import FrameSplit, plan
from fedslot.access.pushes import Barring, Pushes
from fedslot.support.checks import check_whole
from fedslot.support.errors import InputError

MOST_UPDATES = 10_000
"""The largest number of updates to want of a frame, and the largest frame of which all splits are compared."""
MOST_SLOTS = 1_000_000
"""The largest frame with a given number of pull slots."""
MOST_SIMULATED = 1000
"""The largest frame on a channel that is simulated."""


def longest_frame(pull: int | None, channel: str | Channel) -> int:
    """Return the number of slots up to which `least_slots` searches."""
    medium = make_channel(channel) if isinstance(channel, str) else channel
    if type(medium) is not Collision:
        return MOST_SIMULATED
    return MOST_UPDATES if pull is None else MOST_SLOTS


def least_slots(
    updates: float,
    contenders: Contenders,
    *,
    pull: int | None = None,
    ready: float = 1.0,
    ues: int | None = None,
    barring: Barring = 1.0,
    channel: str | Channel = "collision",
    frames: int = 4000,
    precision: float | None = None,
    seed: int = 0,
) -> FrameSplit | None:
    """Return the split of the shortest frame that is expected to receive a number of updates.

    None if no frame does that has at most `longest_frame` slots.
    pull: number of pull slots; None: the best for each frame.
    Other arguments are those of `plan`. More slots never yield less, so that bisection finds the shortest frame.

    >>> frame = least_slots(6, contenders=10, pull=2)
    >>> frame.pull, frame.push, round(frame.expected_received, 3)
    (2, 11, 6.241)
    """
    if not 0 < updates <= MOST_UPDATES:
        raise InputError("want_updates", updates, f"a number above 0 and up to {MOST_UPDATES:,}")
    if np.ndim(ready):
        raise InputError("ready", ready, "one probability for all slots")
    medium, pmf = make_channel(channel) if isinstance(channel, str) else channel, contender_pmf(contenders)
    longest = longest_frame(pull, medium)
    if pull is not None and pull > longest:
        raise InputError("pull", pull, f"at most {longest:,}, the slots of the longest frame that is looked at")
    most_pulls = ues if pull is None else pull
    most_pushes = float(np.arange(len(pmf)) @ pmf) * (1.0 if barring == "best" else barring)
    wanted = updates * (1 - 1e-12)  # rounding does not decide
    if (ready == 0 or most_pulls is not None) and wanted > ready * (most_pulls or 0) + most_pushes:
        return None

    def best(slots: int) -> FrameSplit:
        pulls = None if pull is None else [pull]
        return plan(
            slots,
            contenders,
            pulls=pulls,
            ready=ready,
            ues=ues,
            barring=barring,
            channel=medium,
            frames=frames,
            precision=precision,
            seed=seed,
        ).best

    slots = _first(max(1, pull or 0), longest, lambda slots: best(slots).expected_received >= wanted)
    return None if slots is None else best(slots)


def most_contenders(
    success: float,
    push: int,
    *,
    barring: Barring = 1.0,
    channel: str | Channel = "collision",
    frames: int = 4000,
    precision: float | None = None,
    seed: int = 0,
) -> int:
    """Return the largest number of contenders of which each is received with at least a probability, up to a million.

    success: the probability that a contender is received in the frame, whether it was barred or collided if not.
    push: number of push slots. Other arguments are those of `plan`.

    >>> most_contenders(0.5, push=10), most_contenders(0.2, push=10), most_contenders(0.2, push=10, barring="best")
    (7, 16, 18)
    """
    if not 0 < success <= 1:
        raise InputError("success", success, "a probability above 0 and up to 1")
    check_whole("push", push)
    medium = make_channel(channel) if isinstance(channel, str) else channel

    def fails(number: int) -> bool:
        pushes = Pushes(medium, contender_pmf(number), barring, frames, precision, seed)
        return pushes.received(push) < number * success * (1 - 1e-12)

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
    while least < tried:
        middle = (least + tried) // 2
        least, tried = (least, middle) if holds(middle) else (middle + 1, tried)
    return tried
