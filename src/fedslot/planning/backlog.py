"""The stationary cell: how many UEs are backlogged if each stays so until it is received (`push.arrivals`).

The same UEs are pulled in every frame, and each of the others gets an update after an exponential time. If n of U are
backlogged when a frame begins, r of them are received and the frame costs c slots, then

    n - r + Binomial(U - n + r, 1 - exp(-arrivals c / K))    are backlogged when the next one begins.

So n is a Markov chain. On the collision channel all slots are alike, so that the r received slots are any r of the L
with equal probability: the last of them, which says c, is x with probability C(x-1, r-1) / C(L, r). So its transitions
are computed. On others, frames are played for each n, and transitions estimated from these. A cell may stay near empty
for thousands of frames, and then jam for ever. Long-run numbers are the means over a time that is geometric with mean
`LONG_RUN` frames, from an empty cell on: pi = (1 - g) e_0 (I - g P)^-1.

Where UEs are many, only backlogs up to `MOST_STATES` are computed; a cell that gets there and still grows is taken to
be where its drift ends. Where a load of one UE a slot is itself a large backlog, it hardly fluctuates, and only the
drift is computed: the backlog is where the expected number of arrivals is that of the received.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedslot.access.controller import best_load
from fedslot.planning.backlog_frames import GROUPS, MOST_STATES, BacklogFrames
from fedslot.planning.cell import PushCell
from fedslot.planning.collision import push_moments, received_pmf
from fedslot.planning.contenders import Floats, sending_pmf
from fedslot.planning.costs import expected_cost_max
from fedslot.planning.readiness import Readiness

LONG_RUN = 100_000
"""Mean number of frames of the long run."""
MOST_SLOTS, MOST_MOVES = 100, 3 * 10**7
"""The largest number of push slots of a Markov chain by the probability of sending, and the most transition
probabilities."""


@dataclass(frozen=True, eq=False)
class StationaryCell:
    """The backlogged UEs of a cell with arrivals: those that are not pulled in `pull` slots, and have `slots` for push.

    The law is for cells that are computed, and for others if it is `by_chain`; the rest is simulated by `play_cell`.
    """

    cell: PushCell
    pull: int
    slots: int
    ready: Readiness

    @property
    def others(self) -> int:
        """UEs that are not pulled."""
        assert self.cell.ues is not None
        return self.cell.ues - self.pull

    def sending(self, backlogged: int) -> float:
        """Return the probability of sending if a number of UEs is backlogged."""
        if self._controlled:
            return min(1.0, self._load * self.slots / max(backlogged, 1)) if self.slots else 1.0
        return float(self.cell.barring)

    @property
    def _controlled(self) -> bool:
        return isinstance(self.cell.barring, str)

    @cached_property
    def _load(self) -> float:
        return best_load(self.cell.medium, self.slots).load

    @cached_property
    def law(self) -> Floats:
        """Distribution of the number of backlogged UEs when a frame begins: entry n is the probability of n."""
        if not self.slots or not self.by_chain:
            return _point(self._rest(0))
        return self._long_run(self._transitions if self.cell.computed else self._transitions.mean(axis=0))

    @cached_property
    def means(self) -> Floats:
        """The means (1 + GROUPS, 7) of `BacklogFrames.mean`, and jackknife values: their scatter gives the errors."""
        mean, groups = self.frames.mean(self.law), []
        for group in range(GROUPS):
            law = self.law  # without push slots it is known
            if self.slots:
                law = self._long_run(np.delete(self._transitions, group, axis=0).mean(axis=0))
            groups.append(GROUPS * mean - (GROUPS - 1) * self.frames.mean(law, without=group))
        return np.array([mean, *groups])

    @cached_property
    def frames(self) -> BacklogFrames:
        """Simulated frames, of a cell that is not computed."""
        return BacklogFrames(self.cell, self.pull, self.slots, self.ready, self.sending)

    @cached_property
    def _transitions(self) -> Floats:
        """Transitions (B + 1, B + 1) of the Markov chain; (GROUPS, B + 1, B + 1) if they are simulated."""
        most = min(self.others, MOST_STATES)
        if not self.cell.computed:
            return self.frames.transitions(most, self._arriving, self._moves(0))
        moves = np.zeros((most + 1, most + 1))
        for received, chance in enumerate(self._received):
            moves[received:] += chance[:, None] * self._moves(received)[: most + 1 - received]
        return moves

    def _long_run(self, moves: Floats) -> Floats:
        """Return the law of a chain with these transitions over the long run that begins with an empty cell."""
        most, keep = len(moves) - 1, 1 - 1 / LONG_RUN
        start = np.zeros(most + 1)
        start[0] = 1 - keep
        law: Floats = np.linalg.solve(np.eye(most + 1) - keep * moves.T, start).clip(min=0.0)
        law /= law.sum()
        if self._end is None:
            return law
        jammed: Floats = _point(self._end) * law[-1]
        jammed[:most] += law[:-1]
        return jammed

    @cached_property
    def _end(self) -> int | None:
        """Where the drift ends if a cell still grows at the chain's largest backlog; None if it does not."""
        most = min(self.others, MOST_STATES)
        return None if most == self.others or self._drift(most) <= 0 else self._rest(most)

    @property
    def by_chain(self) -> bool:
        """Whether the law is that of the Markov chain, and not only where the drift ends.

        The PS's estimate is no part of the chain.
        """
        states = min(self.others, MOST_STATES) + 1
        small = self.others <= MOST_STATES or self.slots <= MOST_SLOTS * self.sending(self.slots)
        return self.cell.barring != "auto" and small and states**2 * (2 + self.pull + self.slots) <= MOST_MOVES

    @cached_property
    def senders(self) -> Floats:
        """Distribution of the number of UEs that send."""
        law, every = self.law, np.zeros(len(self.law))
        if not self._controlled:
            return sending_pmf(law, self.sending(1))
        for n in np.flatnonzero(law).tolist():
            every[: n + 1] += law[n] * sending_pmf(_point(n), self.sending(n))
        return every

    @cached_property
    def peak(self) -> int:
        """The backlog of which most are received; all that there may be if barring is controlled."""
        if self._controlled or not self.slots:
            return self.others
        return max(self._tried, key=lambda backlogged: self._expected(backlogged)[0])

    @cached_property
    def _tried(self) -> list[int]:
        """Backlogs that are looked at."""
        points = np.geomspace(1, max(1, self.others), 200 if self._known else 30)
        return list(np.unique(points.round().astype(int)).tolist())

    @property
    def jammed(self) -> float:
        """Share of the frames that begin with a backlog beyond the peak."""
        return float(self.law[self.peak + 1 :].sum())

    @cached_property
    def most_arrivals(self) -> float:
        """Most arrivals per slot: of a Markov chain, with which half of the frames are not jammed.

        Of others, and if barring is controlled, with which as many UEs are received as arrive, in expectation, in a
        cell with its best backlog. Infinite if throughput grows with the backlog.
        """
        if not self.slots:
            return 0.0
        if not self._controlled and self.peak >= self.others:
            return math.inf
        most = self._load * self.slots + 1 if self._controlled else self.peak
        served = max(self._served(backlogged) for backlogged in self._tried if backlogged <= most)
        if self._controlled or not self.by_chain:
            return served
        low, high = 0.0, served * 2
        while high - low > 1e-3 * high:
            middle = (low + high) / 2
            other = replace(self, cell=replace(self.cell, arrivals=middle))
            same = "_received" if self.cell.computed else "frames"
            other.__dict__.update({"peak": self.peak, same: getattr(self, same)})
            low, high = (low, middle) if other.jammed > 0.5 else (middle, high)
        return low

    @cached_property
    def _received(self) -> list[Floats]:
        """For r = 0..L, the probabilities (B + 1 - r,) that r of r, r + 1, ..., B backlogged UEs are received."""
        most = min(self.others, MOST_STATES)
        chances = np.zeros((most + 1, min(self.slots, most) + 1))
        for n in range(most + 1):
            pmf = received_pmf(self.slots, _point(n), self.sending(n))
            chances[n, : len(pmf)] = pmf / pmf.sum()
        return [chances[r:, r] for r in range(chances.shape[1])]

    def _moves(self, received: int) -> Floats:
        """Return the transitions (B + 1, B + 1) from those left to those backlogged, if a number has been received."""
        if self.cell.rule == "frame":
            return np.asarray(self._arriving[self.pull + self.slots])
        if not received:
            none_after = [self.ready.none_after(last, self.pull) for last in range(self.pull + 1)]
            return np.asarray(np.tensordot(np.diff(none_after, prepend=0.0), self._arriving[: self.pull + 1], 1))
        last = np.arange(received, self.slots + 1)
        ways = np.array([math.lgamma(x) - math.lgamma(x - received + 1) - math.lgamma(received) for x in last.tolist()])
        chances = np.exp(ways - ways.max())
        return np.asarray(np.tensordot(chances / chances.sum(), self._arriving[self.pull + last], 1))

    @cached_property
    def _arriving(self) -> Floats:
        """Transitions (1 + M, B + 1, B + 1) by arrivals alone in frames that cost 1, 2, ..., 1 + M slots."""
        from scipy.special import gammaln  # slow to import

        most = min(self.others, MOST_STATES)
        before = np.arange(most + 1)[:, None]
        idle, new = self.others - before, np.arange(most + 1) - before
        possible = (new >= 0) & (new <= idle)
        new = np.where(possible, new, 0)
        log_ways = gammaln(idle + 1) - gammaln(new + 1) - gammaln(idle - new + 1)
        moves = np.zeros((1 + self.pull + self.slots, most + 1, most + 1))
        for cost, move in enumerate(moves, 1):
            if self.cell.rule == "frame" and cost < len(moves):
                continue
            log_idle = -self._rate * cost
            log_new = math.log(-math.expm1(log_idle))
            move[...] = np.where(possible, np.exp(log_ways + new * log_new + (idle - new) * log_idle), 0.0)
            move[:, -1] = np.maximum(0.0, 1 - move[:, :-1].sum(axis=1))  # and more
        return moves

    @cached_property
    def _known(self) -> bool:
        """Whether the yield of a backlog is computed, also if the PS's control is not."""
        return replace(self.cell, barring=1.0).computed

    @property
    def _rate(self) -> float:
        assert self.cell.ues is not None
        assert self.cell.arrivals is not None
        return self.cell.arrivals / self.cell.ues

    def _expected(self, backlogged: int) -> tuple[float, float]:
        """Return the expected number of received UEs and the expected cost of a frame."""
        chance, last_pull = self.sending(backlogged), self.ready.last_pull(self.pull)
        if self._known:
            moments = push_moments(np.array([float(self.slots)]), _point(backlogged), np.array([chance]))
            received, last, nothing = (float(moment[0]) for moment in moments)
        else:
            received, last, _, _, nothing = self.frames.of(backlogged).mean(axis=0).tolist()
        if self.cell.rule == "frame":
            return received, 1.0 + self.pull + self.slots
        return received, expected_cost_max(self.pull, last, nothing, last_pull)

    def _drift(self, backlogged: int) -> float:
        """Return the expected change of the backlog in a frame."""
        received, cost = self._expected(backlogged)
        return (self.others - backlogged + received) * -math.expm1(-self._rate * cost) - received

    def _served(self, backlogged: int) -> float:
        """Return the arrivals per slot of which as many as are received arrive in expectation."""
        assert self.cell.ues is not None
        received, cost = self._expected(backlogged)
        arriving = received / max(self.others - backlogged + received, 1e-9)  # share of the idle UEs
        return -math.log1p(-min(arriving, 1 - 1e-9)) / cost * self.cell.ues

    def _rest(self, least: int) -> int:
        """Return the first backlog from `least` on that does not grow in expectation, nearly."""
        return first_rest(self._drift, least, self.others)


def first_rest(drift: Callable[[int], float], least: int, most: int) -> int:
    """Return the first number from `least` to `most` of which the drift is not above 0, sought in steps of 5%."""
    before, now = least, least
    while now < most and drift(now) > 0:
        before, now = now, min(most, max(now + 1, math.floor(1.05 * now)))
    while now - before > 1:
        middle = (before + now) // 2
        before, now = (middle, now) if drift(middle) > 0 else (before, middle)
    return now


def _point(number: int) -> Floats:
    pmf = np.zeros(number + 1)
    pmf[number] = 1.0
    return pmf
