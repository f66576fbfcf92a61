"""Frames of a cell with arrivals, played for each number of backlogged UEs, where they cannot be computed.

From them a Markov chain of the backlog has its transitions, so that also a jam that takes a hundred thousand frames is
found with some hundred frames for each backlog. Standard errors are those of a jackknife over groups of the frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedslot.planning.cell import PushCell
from fedslot.planning.contenders import Floats
from fedslot.planning.readiness import Readiness
from fedslot.planning.trial import Numbers, play_pushes
from fedslot.support.rng import PLAN, stream

GROUPS, MOST_STATES = 20, 400
"""Number of groups, and the largest backlog of a Markov chain."""
MOST, LEAST, SENDERS = 1 / 4, 1 / 40, 5
"""By `PushCell.frames`: the most and the fewest frames of a backlog, and the UEs that send in them, of which crowds are
played in fewer frames."""


def senders(ues: int) -> float:
    """Return the most UEs that send in all frames of a cell, by `PushCell.frames`."""
    return SENDERS * min(ues, MOST_STATES) + LEAST * ues


@dataclass(frozen=True, eq=False)
class BacklogFrames:
    """Simulated frames by the number of backlogged UEs; sending: the probability of sending, by that number."""

    cell: PushCell
    pull: int
    slots: int
    ready: Readiness
    sending: Callable[[int], float]
    _played: dict[int, Floats] = field(default_factory=dict)

    def of(self, backlogged: int) -> Floats:
        """Return (F, 5), the columns of `PushYield.frames`, of F / `GROUPS` frames for each group in turn."""
        if backlogged not in self._played:
            chance = self.sending(backlogged)
            share = min(MOST, max(LEAST, SENDERS / max(1.0, backlogged * chance)))
            count = GROUPS * math.ceil(self.cell.frames * share / GROUPS)
            rng = stream(self.cell.seed, PLAN, self.pull, self.slots, backlogged)
            senders = rng.binomial(backlogged, chance, size=count)
            rows = play_pushes(self.cell.medium, senders, self.slots, rng, self.ready)
            self._played[backlogged] = np.column_stack([rows[:, :4], rows[:, 0] == 0])
        return self._played[backlogged]

    def transitions(self, most: int, arriving: Floats, idle: Floats) -> Floats:
        """Return the transitions (GROUPS, B + 1, B + 1) between backlogs up to B, estimated from each group of frames.

        arriving: (1 + M, B + 1, B + 1) transitions by the arrivals of a frame that costs 1, 2, ..., 1 + M slots.
        idle: (B + 1, B + 1) those of a frame that receives no push.
        """
        after = np.concatenate([arriving, idle[None]])
        moves = np.empty((GROUPS, most + 1, most + 1))
        for n in range(most + 1):
            received, last = self.of(n)[:, :2].astype(np.int64).T
            cost = np.full_like(last, self.pull + self.slots)
            if self.cell.rule == "max":
                cost = np.where(received > 0, self.pull + last, len(arriving))
            moves[:, n] = after[cost, n - received].reshape(GROUPS, -1, most + 1).mean(axis=1)
        return moves

    def mean(self, law: Floats, without: int | None = None) -> Floats:
        """Return the means (7,) over a law of the backlog: of the five columns, the backlog, and the UEs not barred.

        without: a group of frames that is left out.
        """
        rest = [group for group in range(GROUPS) if group != without]
        total = np.zeros(7)
        for n in np.flatnonzero(law).tolist():
            rows = self.of(n)
            total[:5] += law[n] * rows.reshape(GROUPS, -1, rows.shape[1])[rest].mean(axis=(0, 1))
            total[5:] += law[n] * n * np.array([1.0, self.sending(n)])
        return total

    def at_most(self, law: Floats, slots: Numbers) -> Floats:
        """Return P(X <= j) for each number j of slots."""
        shares = [law[n] * (self.of(n)[:, 1] <= slots[:, None]).mean(axis=1) for n in np.flatnonzero(law).tolist()]
        return np.asarray(np.sum(shares, axis=0))
