"""Goals turned around: the least frame that yields a number of updates, the most contenders that push slots bear."""

from __future__ import annotations

from collections.abc import Callable

from fedslot.access.channels import Channel, make_channel
from fedslot.access.checks import check_whole
from fedslot.access.contenders import MOST as MOST_CONTENDERS
from fedslot.access.contenders import Contenders, contender_pmf
from fedslot.access.planner import FrameSplit, plan
from fedslot.access.pushes import Barring, Pushes
from fedslot.errors import InputError

MOST_COMPARED = 10_000
"""The largest frame of which all splits are compared."""
MOST_SLOTS = 1_000_000
"""The largest frame of a single split."""


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
) -> FrameSplit:
    """Return the split of the shortest frame that is expected to receive so many updates.

    pull: number of pull slots; None: the best for each frame.
    Other arguments are those of `plan`. More slots never yield less, so that bisection finds the shortest frame.

    >>> frame = least_slots(6, contenders=10, pull=2)
    >>> frame.pull, frame.push, round(frame.expected_received, 3)
    (2, 11, 6.241)
    """
    if not 0 < updates <= MOST_SLOTS:
        raise InputError("want_updates", updates, f"a number above 0 and up to {MOST_SLOTS:,}")

    def best(slots: int) -> FrameSplit:
        pulls = None if pull is None else [pull]
        options = {"ready": ready, "ues": ues, "barring": barring, "channel": channel}
        return plan(slots, contenders, pulls=pulls, **options, frames=frames, precision=precision, seed=seed).best  # type: ignore[arg-type]

    def reaches(slots: int) -> bool:
        return best(slots).expected_received >= updates * (1 - 1e-12)  # rounding does not decide

    most = MOST_COMPARED if pull is None else MOST_SLOTS
    slots = _first(max(1, pull or 0), most, reaches)
    if slots is None:
        yields = best(most).expected_received
        beside = "" if pull is None else f" with {pull} pull slots"
        raise InputError("want_updates", updates, f"at most {yields:.4g}, which {most:,} slots yield{beside}")
    return best(slots)


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
