"""One frame on the air: pull slots first, then the push slots (Sec. II-B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.access.channels import Channel
from fedslot.messages import Attempts, Grant, Receipt, UEs
from fedslot.support.errors import RefusedError


def play(
    grant: Grant,
    slots: int,
    backlogged: UEs,
    ready: NDArray[np.float64] | None,
    channel: Channel,
    contention: np.random.Generator,
    fading: np.random.Generator,
    own: Mapping[str, Callable[[UEs], NDArray[Any]]] = MappingProxyType({}),
    fails: Callable[[UEs], NDArray[np.bool_]] | None = None,
) -> Receipt:
    """Play one frame.

    grant: what the PS announced.
    slots: uplink slots of the frame; those that the grant does not reserve are push slots.
    backlogged: UEs that were not pulled and have an update to push, if they are ready in time and not barred.
    ready: (K,) time at which each UE's update is ready, in uplink slots after the downlink; None: all at once.
    contention: for what UEs draw, barring and slots. fading: for what the channel draws.
    own: by the name of an attribute that UEs know by themselves, the function that returns it of UEs, (n,); called
        with the backlogged UEs if `grant.merit` goes by it.
    fails: returns whether the transmissions of UEs, (n,), are lost; None: none is.
    """
    pull, bursts = grant.pull, grant.bursts
    # slot z begins z - 1 slots after the downlink; a UE that is not ready by then misses it
    begins = grant.reserved - (1 if bursts is None else bursts[pull])
    in_time = np.ones(len(pull), dtype=bool) if ready is None else ready[pull] <= begins
    push_slots, ues = slots - grant.pull_slots, len(backlogged)
    sent, outcome = np.zeros((ues, 1), dtype=np.int64), np.full(ues, SILENT)
    in_reach = np.zeros(ues, dtype=bool)  # ready before the last push slot
    if grant.push and push_slots and ues:
        # ready during the pull period: any push slot; later: only those that begin after that
        late = np.zeros(ues) if ready is None else np.ceil(ready[backlogged]) - grant.pull_slots
        own_bursts = None if bursts is None else bursts[backlogged]
        in_reach = late < (push_slots if own_bursts is None else push_slots + 1 - own_bursts)
        if grant.merit is not None:
            told = grant.merit.told
            values = own[grant.merit.attribute](backlogged) if told is None else told[backlogged]
            late[~grant.merit.holds(values)] = push_slots  # those stay silent
        sent = contend(late, push_slots, grant.barring, channel, contention, own_bursts)
        outcome = resolve(sent, push_slots, channel, fading, own_bursts)
        if fails is not None:
            outcome[(outcome > 0) & fails(backlogged)] = COLLIDED
    lost = np.zeros(len(pull), dtype=bool) if fails is None else in_time & fails(pull)
    return tally(grant, slots, in_time & ~lost, backlogged, sent, outcome, in_reach & (outcome == SILENT), lost)


COLLIDED, SILENT = 0, -1
"""Outcomes of a push beside the slots from 1: transmitted in vain, did not transmit."""


def contend(
    late: NDArray[np.float64],
    slots: int,
    probability: float,
    channel: Channel,
    rng: np.random.Generator,
    bursts: UEs | None = None,
) -> UEs:
    """Draw the push slots, from 1, of backlogged UEs: (N, C) for C slots each, 0 where there is none.

    late: (N,) push slots that begin before each UE is ready; none if it is not above 0.
    probability: access barring, the probability with which a UE contends at all.
    bursts: (N,) consecutive slots that each UE needs; None: one. A burst begins in any slot from which it still fits.
    """
    more = 0 if bursts is None else bursts - 1
    earliest = np.clip(late + more, 0, slots).astype(np.int64) + 1
    earliest[rng.random(len(late)) >= probability] = slots + 1  # barred
    sent: UEs = channel.send(earliest[None, :], slots, rng)[0]
    if bursts is None:
        return sent
    if sent.shape[1] > 1:
        raise RefusedError("updates that take several slots cannot be sent in copies; take another push.channel")
    first, offset = sent - bursts[:, None] + 1, np.arange(bursts.max(initial=1))
    return np.where((sent > 0) & (offset < bursts[:, None]), first + offset, 0)


def resolve(sent: UEs, slots: int, channel: Channel, rng: np.random.Generator, bursts: UEs | None = None) -> UEs:
    """Return the outcome (N,) of each push: the slot in which it was received, `COLLIDED` or `SILENT`.

    bursts: (N,) consecutive slots of each UE; None: one, or copies. A burst is received if each of its slots is.
    """
    if bursts is None:
        received = channel.receive(sent[None], slots, rng)[0]
    else:
        each = channel.receive(sent.reshape(1, -1, 1), slots, rng)[0].reshape(sent.shape)
        received = np.where((each > 0).sum(axis=1) == bursts, each.max(axis=1), 0)
    return np.where(sent.any(axis=1), received, SILENT)


def tally(
    grant: Grant,
    slots: int,
    in_time: NDArray[np.bool_],
    backlogged: UEs,
    sent: UEs,
    outcome: UEs,
    barred: NDArray[np.bool_],
    lost: NDArray[np.bool_] | None = None,
) -> Receipt:
    """Sum up a frame of `slots` uplink slots.

    in_time: whether each pulled UE was received in its slot.
    sent: (N, C) push slots of each backlogged UE's copies, as `contend` returns them.
    outcome: (N,) of each backlogged UE's push, as `resolve` returns it.
    barred: (N,) whether each backlogged UE was kept from contending.
    lost: (Q,) whether the transmission of each pulled UE failed; None: none did.
    """
    pull, reserved, pull_slots = grant.pull, grant.reserved, grant.pull_slots
    lost = np.zeros(len(pull), dtype=bool) if lost is None else lost
    vain = ~in_time & ~lost
    received = outcome > 0
    by_slot = np.argsort(outcome[received], kind="stable")
    # the receiver decodes nothing in a slot that still holds undecoded copies at the end
    busy, undecoded = np.unique(sent[sent > 0]), sent[~received]
    collided = np.setdiff1d(undecoded[undecoded > 0], sent[received] if grant.bursts is not None else outcome[received])
    on_air = outcome != SILENT
    copies = sent[on_air]
    return Receipt(
        pulled=pull[in_time],
        pull_slots=reserved[in_time],
        pushed=backlogged[received][by_slot],
        push_slots=pull_slots + outcome[received][by_slot],
        collided=backlogged[outcome == COLLIDED],
        wasted=pull[vain],
        slots=slots,
        idle_slots=slots - pull_slots - len(busy) if grant.push else 0,
        collided_slots=len(collided),
        overhead=grant.overhead,
        wait=grant.wait,
        order=grant.order,
        late=grant.late,
        open_slots=slots - pull_slots if grant.push else 0,
        probability=grant.barring,
        lost=pull[lost],
        wasted_slots=reserved[vain],
        lost_slots=reserved[lost],
        bursts=grant.bursts,
        left_out=grant.left_out,
        attempts=Attempts(backlogged[on_air], np.where(copies > 0, pull_slots + copies, 0), backlogged[barred]),
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
