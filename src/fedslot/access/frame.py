"""One frame on the air: pull slots first, then the push slots (Sec. II-B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel, Split
from fedslot.messages import Grant, Receipt, UEs


def play(
    grant: Grant,
    slots: int,
    hopefuls: UEs,
    ready: NDArray[np.float64] | None,
    channel: Channel,
    rng: np.random.Generator,
) -> Receipt:
    """Play one frame.

    grant: what the PS announced.
    slots: uplink slots of the frame, M; those that the grant does not reserve are push slots.
    hopefuls: UEs that were not pulled and would push, if they are ready in time and not barred.
    ready: (K,) time at which each UE's update is ready, in slots after the downlink slot; None: all at once.
    """
    pull = grant.pull
    reserved = np.arange(1, len(pull) + 1)
    # slot z begins z - 1 slots after the downlink slot; what is not ready by then misses it
    in_time = np.ones(len(pull), dtype=bool) if ready is None else ready[pull] <= reserved - 1
    if grant.push:
        pushed_in = _push(grant, slots - len(pull), hopefuls, ready, channel, rng)
    else:
        pushed_in = np.full(len(hopefuls), -1)
    return tally(pull, in_time, hopefuls, pushed_in)


def tally(pull: UEs, in_time: NDArray[np.bool_], hopefuls: UEs, pushed_in: UEs) -> Receipt:
    """What came of a frame.

    in_time: whether each pulled UE was received in its slot.
    pushed_in: push slot from 1 in which each hopeful was received, 0 if it collided, -1 if it kept silent.
    """
    reserved = np.arange(1, len(pull) + 1)
    got = pushed_in > 0
    by_slot = np.argsort(pushed_in[got], kind="stable")
    return Receipt(
        pulled=pull[in_time],
        pull_slots=reserved[in_time],
        pushed=hopefuls[got][by_slot],
        push_slots=len(pull) + pushed_in[got][by_slot],
        collided=hopefuls[pushed_in == 0],
        wasted=pull[~in_time],
    )


def contend(hopefuls: int, slots: int, probability: float, channel: Split, rng: np.random.Generator) -> UEs:
    """(N, C) push slots from 1 that hopefuls use who are all ready, 0 where there is none: `play`'s own draws."""
    earliest = np.ones(hopefuls, dtype=np.int64)
    _bar(earliest, slots, probability, rng)
    sent: UEs = channel.draw(earliest[None, :], slots, rng)[0]
    return sent


def _push(
    grant: Grant,
    push_slots: int,
    hopefuls: UEs,
    ready: NDArray[np.float64] | None,
    channel: Channel,
    rng: np.random.Generator,
) -> UEs:
    """(N,) push slot from 1 in which each hopeful was received, 0 if it collided, -1 if it kept silent."""
    earliest = np.ones(len(hopefuls), dtype=np.int64)
    if ready is not None:
        # ready during the pull period: any push slot; later: only those that begin after that
        late = np.ceil(ready[hopefuls]) - len(grant.pull)
        earliest = np.clip(late, 0, push_slots).astype(np.int64) + 1
    _bar(earliest, push_slots, grant.probability, rng)
    received = channel.play(earliest[None, :], push_slots, rng)[0]
    return np.where(earliest > push_slots, -1, received)


def _bar(earliest: UEs, slots: int, probability: float, rng: np.random.Generator) -> None:
    """Access barring, in place: a barred UE may use no slot."""
    earliest[rng.random(len(earliest)) >= probability] = slots + 1


def draw_hopefuls(contenders: int | None, ues: int, pulled: UEs, rng: np.random.Generator) -> UEs:
    """UEs that would push in a frame: `contenders` of those not pulled, at random; all of them if None."""
    if contenders is None:
        idle = np.ones(ues, dtype=bool)
        idle[pulled] = False
        return np.flatnonzero(idle)
    # draw enough that dropping the pulled ones leaves the number wanted: no list of all UEs is made
    drawn = rng.choice(ues, size=min(ues, contenders + len(pulled)), replace=False)
    return drawn[~np.isin(drawn, pulled)][:contenders]
