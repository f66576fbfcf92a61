"""One frame on the air: pull slots first, then the push slots (Sec. II-B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel
from fedslot.messages import Attempts, Grant, Receipt, UEs


def play(
    grant: Grant,
    slots: int,
    backlogged: UEs,
    ready: NDArray[np.float64] | None,
    channel: Channel,
    contention: np.random.Generator,
    fading: np.random.Generator,
    own: Mapping[str, Callable[[UEs], NDArray[Any]]] = MappingProxyType({}),
) -> Receipt:
    """Play one frame.

    grant: what the PS announced.
    slots: uplink slots of the frame; those that the grant does not reserve are push slots.
    backlogged: UEs that were not pulled and have an update to push, if they are ready in time and not barred.
    ready: (K,) time at which each UE's update is ready, in slots after the downlink slot; None: all at once.
    contention: for what UEs draw, barring and slots. fading: for what the channel draws.
    own: by the name of an attribute that UEs know by themselves, the function that returns it of UEs, (n,); called
        with the backlogged UEs if `grant.merit` goes by it.
    """
    pull = grant.pull
    reserved = np.arange(1, len(pull) + 1)
    # slot z begins z - 1 slots after the downlink slot; a UE that is not ready by then misses it
    in_time = np.ones(len(pull), dtype=bool) if ready is None else ready[pull] <= reserved - 1
    push_slots, ues = slots - len(pull), len(backlogged)
    sent, outcome = np.zeros((ues, 1), dtype=np.int64), np.full(ues, SILENT)
    in_reach = np.zeros(ues, dtype=bool)  # ready before the last push slot
    if grant.push and push_slots and ues:
        # ready during the pull period: any push slot; later: only those that begin after that
        late = np.zeros(ues) if ready is None else np.ceil(ready[backlogged]) - len(pull)
        in_reach = late < push_slots
        if grant.merit is not None:
            told = grant.merit.told
            values = own[grant.merit.attribute](backlogged) if told is None else told[backlogged]
            late[~grant.merit.holds(values)] = push_slots  # those stay silent
        sent = contend(late, push_slots, grant.barring, channel, contention)
        outcome = resolve(sent, push_slots, channel, fading)
    return tally(grant, slots, in_time, backlogged, sent, outcome, in_reach & (outcome == SILENT))


COLLIDED, SILENT = 0, -1
"""Outcomes of a push beside the slots from 1: transmitted in vain, did not transmit."""


def contend(
    late: NDArray[np.float64], slots: int, probability: float, channel: Channel, rng: np.random.Generator
) -> UEs:
    """Draw the push slots, from 1, of backlogged UEs: (N, C) for C copies each, 0 where there is none.

    late: (N,) push slots that begin before each UE is ready; none if it is not above 0.
    probability: access barring, the probability with which a UE contends at all.
    """
    earliest = np.clip(late, 0, slots).astype(np.int64) + 1
    earliest[rng.random(len(late)) >= probability] = slots + 1  # barred
    sent: UEs = channel.send(earliest[None, :], slots, rng)[0]
    return sent


def resolve(sent: UEs, slots: int, channel: Channel, rng: np.random.Generator) -> UEs:
    """Return the outcome (N,) of each push: the slot in which it was received, `COLLIDED` or `SILENT`."""
    received = channel.receive(sent[None], slots, rng)[0]
    return np.where(sent.any(axis=1), received, SILENT)


def tally(
    grant: Grant,
    slots: int,
    in_time: NDArray[np.bool_],
    backlogged: UEs,
    sent: UEs,
    outcome: UEs,
    barred: NDArray[np.bool_],
) -> Receipt:
    """Sum up a frame of `slots` uplink slots.

    in_time: whether each pulled UE was received in its slot.
    sent: (N, C) push slots of each backlogged UE's copies, as `contend` returns them.
    outcome: (N,) of each backlogged UE's push, as `resolve` returns it.
    barred: (N,) whether each backlogged UE was kept from contending.
    """
    pull = grant.pull
    reserved = np.arange(1, len(pull) + 1)
    received = outcome > 0
    by_slot = np.argsort(outcome[received], kind="stable")
    # the receiver decodes nothing in a slot that still holds undecoded copies at the end
    busy, undecoded = np.unique(sent[sent > 0]), sent[~received]
    lost = np.setdiff1d(undecoded[undecoded > 0], outcome[received])
    on_air = outcome != SILENT
    copies = sent[on_air]
    return Receipt(
        pulled=pull[in_time],
        pull_slots=reserved[in_time],
        pushed=backlogged[received][by_slot],
        push_slots=len(pull) + outcome[received][by_slot],
        collided=backlogged[outcome == COLLIDED],
        wasted=pull[~in_time],
        slots=slots,
        idle_slots=slots - len(pull) - len(busy) if grant.push else 0,
        collided_slots=len(lost),
        overhead=grant.overhead,
        open_slots=slots - len(pull) if grant.push else 0,
        probability=grant.barring,
        attempts=Attempts(backlogged[on_air], np.where(copies > 0, len(pull) + copies, 0), backlogged[barred]),
    )


def draw_backlogged(contenders: int | None, ues: int, pulled: UEs, rng: np.random.Generator) -> UEs:
    """Draw the UEs that have an update to push: `contenders` of those not pulled; all of them if None."""
    if contenders is None:
        idle = np.ones(ues, dtype=bool)
        idle[pulled] = False
        return np.flatnonzero(idle)
    # draw enough that dropping the pulled ones leaves the number wanted: no list of all UEs is made
    drawn = rng.choice(ues, size=min(ues, contenders + len(pulled)), replace=False)
    return drawn[~np.isin(drawn, pulled)][:contenders]
