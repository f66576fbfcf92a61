"""Which UEs the PS can pull in a frame: those that are here, in as many slots as their links need."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, UEs


def pull_only(grant: Grant, here: AbstractSet[int], owed: AbstractSet[int], most: int, round: int) -> Grant:
    """Return a grant that pulls only UEs that are here.

    The others leave their slots to those that are owed a pull, then to those that were not chosen, in turns. Slots for
    which there is no UE are open to contention, or left out of a frame without any.

    owed: UEs that were chosen while they were away; they take the last slots of those that are here if need be.
    most: slots of a frame.
    """
    chosen = grant.pull.tolist()
    back = sorted((owed & here) - set(chosen))
    others = sorted(here - set(chosen) - set(back))
    places = [place for place, ue in enumerate(chosen) if ue not in here]
    if not places and not back:
        return grant
    start = round * len(places) % max(1, len(others))
    fill = [*back, *others[start:], *others[:start]]
    taken = [place for place in reversed(range(len(chosen))) if place not in places]
    places += taken[: max(0, len(back) - len(places))]
    by_place = dict(enumerate(chosen)) | dict.fromkeys(places, -1) | dict(zip(places, fill, strict=False))
    pull = np.array([by_place[place] for place in range(len(chosen)) if by_place[place] >= 0], dtype=np.int64)
    left_out = 0 if grant.push else len(chosen) - len(pull)
    return replace(grant, pull=pull, slots=grant.uplink_slots(most) - left_out)


def fit_bursts(grant: Grant, bursts: UEs, owed: NDArray[np.bool_], most: int) -> Grant:
    """Return a grant whose pulled UEs have as many slots as they need.

    A frame of a fixed number of slots keeps it, and a strategy that sizes frames gets a longer one, of at most `most`
    slots. Pulled UEs that do not fit are left out, the last ones first.

    bursts: (K,) uplink slots that each UE needs. owed: (K,) UEs that were left out before they were ever received: they
    come first.
    """
    push = grant.uplink_slots(most) - len(grant.pull)
    pull = np.concatenate([np.setdiff1d(np.flatnonzero(owed), grant.pull), grant.pull])
    room = len(grant.pull) if grant.slots is None else most - push
    if len(pull) and grant.slots is None:
        room = max(room, min(int(bursts[pull[0]]), most))  # the first one, though it needs more than was granted
    fits = np.cumsum(bursts[pull]) <= room
    slots = None if grant.slots is None else push + int(bursts[pull[fits]].sum())
    return replace(grant, pull=pull[fits], slots=slots, bursts=bursts, left_out=pull[~fits])
