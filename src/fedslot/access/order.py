"""Whom the PS pulls in which slot, by what it knows of computing times: one rule for every strategy.

UEs report with an update how long its training took. From this the PS expects when each of the UEs that the strategy
chose is ready, and pulls them in this order, each in the first slot that begins after that. Before the first slot it
waits as long as that yields more updates per slot. In asynchronous mode, chosen UEs are ordered to train from this
broadcast, and are pulled in the first frame by which they are expected. Such frames do not wait if they have push
slots, and otherwise for no longer than their pulls would take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt, Time, UEs

PUSHED = math.exp(-1)  # updates that a push slot yields at its best load
CAREFUL = 0.8  # quantile of the known times that is expected of UEs that never reported one
FORGET = 0.995  # per frame, of a time that a UE was not ready by: it is tried again
SHORTER = 0.2  # weight of a report that is shorter than expected; longer ones count at once


@dataclass(frozen=True, eq=False)
class Forecast:
    """What the PS knows of the UEs' computing times; without elements if the strategy's order stays.

    need: (K,) slots that training takes, as far as known: as reported, or more than was waited in vain; NaN: unknown.
    reported: (K,) whether that was reported.
    began: (K,) slots spent when the training that the PS ordered began, NaN of UEs that are not on order; without
        elements in synchronous mode.
    """

    need: NDArray[np.float64]
    reported: NDArray[np.bool_]
    began: NDArray[np.float64]

    @classmethod
    def blank(cls, ues: int, computes: bool, asynchronous: bool) -> Self:
        """Return a forecast without any report. computes: whether training takes time; if not, all is known."""
        need = np.full(ues, np.nan) if computes else np.zeros(ues)
        return cls(need, ~np.isnan(need), np.full(ues if asynchronous else 0, np.nan))

    @property
    def away(self) -> UEs:
        """UEs on order."""
        return np.flatnonzero(~np.isnan(self.began))

    def without(self, ues: UEs) -> Self:
        """Return the forecast after UEs (n,) lost their training: they are not on order any more."""
        began = self.began.copy()
        began[ues] = np.nan
        return replace(self, began=began)

    def arrange(
        self,
        grant: Grant,
        start: Time,
        most: int,
        uplink: Time,
        before: Time,
        silent: NDArray[np.bool_] | None = None,
    ) -> Grant:
        """Return a grant that pulls, in the order in which they are ready, those that the strategy chose.

        start: slots spent when the first uplink slot can begin. most: slots of a frame. uplink: length of an uplink
        slot. before: slots that the frame takes before `start`. silent: (K,) UEs that cannot be heard in this frame,
        none of which is in the grant; those on order are pulled later. None: all can be heard.
        """
        total, chosen = grant.uplink_slots(most), grant.pull
        rest = total - len(chosen)  # slots that are not for pulls
        order, began, room = None, np.full(len(chosen), float(start)), len(chosen)
        if len(self.began):
            room, away = most - rest, self.away if silent is None else self.away[~silent[self.away]]
            order = chosen[np.isnan(self.began[chosen])]
            due = int(np.count_nonzero(self.began[away] + self._needs(away) <= start))
            order = order[: max(room - due, 0)]  # no more than frames can receive
            chosen, began = np.concatenate([away, order]), np.concatenate([self.began[away], began[: len(order)]])
        # in slots after the first one that can begin
        expected = (began - start) + self._needs(chosen)
        by_time = np.argsort(np.maximum(expected, 0), kind="stable")[:room]
        waits = np.ceil(expected[by_time] - np.arange(len(by_time)) * uplink).clip(min=0)
        waits = np.maximum.accumulate(np.concatenate([[0.0], waits]))  # before the first n can be pulled, n = 0, 1, ...
        longest = math.inf
        if order is not None and (grant.push or len(order)):
            longest = 0 if grant.push else max(total - 1, 0)
        pulled = self._most_per_slot(waits[waits <= longest], rest, grant.push, uplink, before)
        pull, wait = chosen[by_time[:pulled]], int(waits[pulled])
        slots = total if grant.push and grant.slots is None else pulled + rest
        if not slots and len(chosen):  # nobody is due: those that are ordered here train for the time of a frame
            slots, wait = 1, int(longest)
        return replace(
            grant,
            pull=pull,
            slots=grant.slots if slots == total else slots,
            wait=wait,
            order=order,
            late=None if order is not None else np.setdiff1d(chosen, pull),
        )

    def learn(self, receipt: Receipt, start: Time, absent: NDArray[np.bool_] | None = None) -> Self:
        """Return the forecast after a frame. start: as for `arrange`. absent: (K,) UEs that lose their order."""
        need, reported, began = (
            self.need * np.where(self.reported, 1.0, FORGET),
            self.reported.copy(),
            self.began.copy(),
        )
        if receipt.computing is not None:
            told = ~np.isnan(receipt.computing)
            ues, computing = receipt.received[told], receipt.computing[told]
            before = need[ues]
            shorter = reported[ues] & (computing < before)
            need[ues], reported[ues] = np.where(shorter, before + SHORTER * (computing - before), computing), True
        if receipt.order is not None:
            began[receipt.order] = start
        if receipt.wasted_slots is not None and len(receipt.wasted):
            late = receipt.wasted
            since = np.where(np.isnan(began[late]), start, began[late]) if len(began) else float(start)
            first = receipt.wasted_slots - (1 if receipt.bursts is None else receipt.bursts[late])
            waited = start + receipt.wait + first * receipt.uplink_length - since
            need[late], reported[late] = np.fmax(2 * waited + 1, need[late]), False
        if len(began):
            began[receipt.received] = np.nan
            if absent is not None:
                began[absent] = np.nan
        return replace(self, need=need, reported=reported, began=began)

    def _needs(self, ues: UEs) -> NDArray[np.float64]:
        """Return the slots (n,) that UEs are expected to train; those of whom nothing is known as slow ones."""
        needs = self.need[ues]
        unknown = np.isnan(needs)
        if unknown.any():
            known = self.need[~np.isnan(self.need)]
            needs[unknown] = np.quantile(known, CAREFUL) if len(known) else 0.0
        return needs

    def _most_per_slot(self, waits: NDArray[np.float64], rest: int, push: bool, uplink: Time, before: Time) -> int:
        """Return the number of pulls with which a frame yields the most updates per slot.

        waits: (n + 1,) slots before the first slot that 0, 1, ... pulls need.
        """
        count = np.arange(len(waits))
        length = waits + (count + rest) * uplink
        yields = count.astype(np.float64)
        if push:
            known = np.sort(self.need[~np.isnan(self.need)])
            ready = np.searchsorted(known, length, side="right") / len(known) if len(known) else 1.0
            yields += PUSHED * rest * ready
        # of equal ones the most pulls, and one at least if nobody is expected to push
        rates = yields / np.maximum(before + length, 1e-9)
        return int(len(rates) - 1 - np.argmax(rates[::-1]))
