"""What push slots are expected to yield: computed on the collision channel, simulated on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedslot.planning.backlog import StationaryCell
from fedslot.planning.cell import Progress, PushCell, progress_after
from fedslot.planning.collision import last_slot_at_most, push_moments, received_mean
from fedslot.planning.contenders import NEGLIGIBLE, Floats, mean, sending_pmf, thinning
from fedslot.planning.costs import paper_push_costs
from fedslot.planning.period import PushPeriod
from fedslot.planning.readiness import ALL_READY, Readiness, ReadinessBySlot
from fedslot.planning.trial import Numbers, play_cell, play_pushes
from fedslot.support.rng import PLAN, PLAN_BARRING, stream

BATCH, BATCH_SLOTS = 200_000, 4_000_000
"""Numbers of contenders and of slots that are simulated at once, which bounds the memory."""
FEW = 500
"""Number of frames after which a simulation first looks whether it is precise enough."""
POINTS, SENDERS, FEWEST, MEMBERS = 60, 20_000, 10, 12
"""The search of the best barring by simulation: the largest number of UEs that send for which frames are simulated, the
UEs that send in these, the least number of frames, and of numbers of contenders that stand for a distribution."""


@dataclass(frozen=True)
class PushYield:
    """Expected yield of the push slots of a frame.

    slots: number of push slots, L. probability: of sending. sending: expected number of UEs that send.
    sent: expected number of transmissions; on coded channels each copy is one. received: E[N'].
    last_slot: E[X], X being the last received push slot, 0 if there is none. nothing: P(X = 0). at_most: P(X <= j).
    slot_sum: expected sum of the received slots.
    paper: the push part of eq. (5), None on other channels than the paper's.
    frames: (F, 5) if simulated, the numbers of received pushes, their last slots, the sums of their slots, the numbers
        of transmissions, and whether none was received. With arrivals, they are those of several runs, one after the
        other, or the values of a jackknife.
    backlog: with arrivals, the expected number of backlogged UEs when a frame begins.
    backlogs: (R,) its mean in each simulated run, or that of the contenders, or a jackknife's; None if frames are
        independent.
    """

    slots: int
    probability: float
    sending: float
    sent: float
    received: float
    last_slot: float
    nothing: float
    slot_sum: float
    paper: float | None
    at_most: Callable[[Numbers], Floats]
    frames: Floats | None = None
    backlog: float | None = None
    backlogs: Floats | None = None


@dataclass(frozen=True)
class Pushes:
    """Computes or simulates what push slots of a cell yield.

    pmf: entry n is the probability of n contenders. ready: whether UEs are ready in time.
    pull: number of pull slots beside them, on which the number of contenders depends with arrivals.
    """

    cell: PushCell
    pmf: Floats
    ready: Readiness = ALL_READY
    pull: int = 0

    @property
    def late(self) -> ReadinessBySlot | None:
        """When contenders are ready; None: they may use all slots."""
        return self.ready if isinstance(self.ready, ReadinessBySlot) else None

    @property
    def monotone(self) -> bool:
        """Whether the last received slot is known to grow with the number of push slots."""
        cell = self.cell
        return cell.computed and cell.barring != "best" and self.late is None and cell.arrivals is None

    def expect(self, numbers: Sequence[int], progress: Progress | None = None) -> list[PushYield]:
        """Return what each number of push slots is expected to yield."""
        report = progress_after(progress, 0, len(numbers))
        report(0, 1)
        results: list[PushYield] = []
        at_once = 1000 if self.cell.computed and not self.late and self.cell.arrivals is None else 1
        for first in range(0, len(numbers), at_once):
            if self.cell.barring == "auto":
                results.append(self._run(numbers[first]))
            elif self.cell.arrivals:
                results.append(self._in_the_long_run(numbers[first]))
            elif not self.cell.computed:
                results.append(self._simulate(numbers[first], progress_after(report, first, len(numbers))))
            elif self.late:
                results.append(self._compute_late(numbers[first], self.late.first_slots(numbers[first])))
            else:
                results += self._compute(numbers[first : first + at_once])
            report(len(results), 1)
        return results

    def received(self, slots: int) -> float:
        """Return E[N'] alone, if all may use all slots: on the collision channel far faster than by `expect`."""
        if not self.cell.computed:
            return self.expect([slots])[0].received
        return received_mean(slots, self.pmf, self._barring(slots))

    def _barring(self, slots: int, shares: Floats | None = None) -> float:
        """Return the probability of sending on the collision channel."""
        return best_barring(slots, self.pmf, shares) if self.cell.barring == "best" else float(self.cell.barring)

    def _compute(self, numbers: Sequence[int]) -> list[PushYield]:
        chances = [self._barring(slots) for slots in numbers]
        slots, probability = np.array(numbers, dtype=float), np.array(chances, dtype=float)
        received, last, nothing = (moments.tolist() for moments in push_moments(slots, self.pmf, probability))
        paper = np.zeros(len(numbers))
        for chance in set(chances):
            same = probability == chance
            paper[same] = paper_push_costs(slots[same], sending_pmf(self.pmf, chance))
        contenders = mean(self.pmf)
        return [
            PushYield(
                slots=count,
                probability=chance,
                sending=contenders * chance,
                sent=contenders * chance if count else 0.0,
                received=received[i],
                last_slot=last[i],
                nothing=nothing[i],
                slot_sum=received[i] * (count + 1) / 2,  # by symmetry of the slots
                paper=float(paper[i]),
                at_most=partial(last_slot_at_most, slots=count, pmf=self.pmf, probability=chance),
            )
            for i, (count, chance) in enumerate(zip(numbers, chances, strict=True))
        ]

    def _compute_late(self, slots: int, usable: Floats) -> PushYield:
        """Return what push slots yield that contenders may use only after they are ready."""
        contenders = {n: float(self.pmf[n]) for n in np.flatnonzero(self.pmf).tolist()}
        chance = self._barring(slots, np.cumsum(usable / np.arange(slots, 0, -1)))
        push = PushPeriod(slots, contenders, chance, ready=tuple(usable.tolist()))
        return PushYield(
            slots=slots,
            probability=chance,
            sending=push.sending_mean,
            sent=push.sending_mean,
            received=push.received_mean,
            last_slot=push.last_slot_mean,
            nothing=min(1.0, push.nothing_probability),
            slot_sum=float(np.arange(1, slots + 1) @ push.singleton_probabilities),
            paper=push.expected_cost_paper(0),
            at_most=lambda last: push.last_slot_cdf[np.minimum(last, slots)],
        )

    def _in_the_long_run(self, slots: int) -> PushYield:
        """Return what push slots yield in the long run, if UEs stay backlogged until they are received."""
        backlog = StationaryCell(self.cell, self.pull, slots, self.ready)
        if self.cell.computed:
            return self._stationary(backlog, slots)
        return self._played_stationary(backlog, slots) if backlog.by_chain else self._run(slots)

    def _stationary(self, backlog: StationaryCell, slots: int) -> PushYield:
        """Return what a stationary cell yields that is computed."""
        expected, sending = mean(backlog.law), mean(backlog.senders)
        plain = Pushes(replace(self.cell, arrivals=None, barring=1.0), backlog.senders)._compute([slots])[0]
        probability = sending / expected if expected else backlog.sending(0)
        return replace(plain, probability=probability, paper=None, backlog=expected)

    def _played_stationary(self, backlog: StationaryCell, slots: int) -> PushYield:
        """Return what a stationary cell yields of which frames are simulated for each backlog."""
        received, last, slot_sum, sent, nothing, expected, contending = backlog.means[0].tolist()
        groups = backlog.means[1:]
        return PushYield(
            slots=slots,
            probability=contending / expected if expected else backlog.sending(0),
            sending=contending * self._in_time(slots),
            sent=sent,
            received=received,
            last_slot=last,
            nothing=nothing,
            slot_sum=slot_sum,
            paper=None,
            at_most=lambda slots: backlog.frames.at_most(backlog.law, slots),
            frames=groups[:, :5],
            backlog=expected,
            backlogs=groups[:, 5],
        )

    def _in_time(self, slots: int) -> float:
        """Return the probability that a contender is ready before the last push slot."""
        return float(self.late.first_slots(slots).sum()) if self.late else 1.0

    def _run(self, slots: int) -> PushYield:
        """Return what push slots yield in the long run, from simulated runs."""
        runs = play_cell(self.cell, self.pmf, self.pull, slots, self.ready)
        expected = float(runs.backlogs.mean())
        played = self._played(slots, runs.frames, runs.contending / expected if expected else 1.0, runs.contending)
        return replace(played, backlog=expected if self.cell.arrivals else None, backlogs=runs.backlogs)

    def _simulate(self, slots: int, progress: Progress) -> PushYield:
        cell = self.cell
        probability = self._search_barring(slots) if cell.barring == "best" else float(cell.barring)
        # Another stream than that of the search, whose maximum is biased upwards.
        frames = self._play(slots, probability, progress)
        return self._played(slots, frames, probability, mean(self.pmf) * probability)

    def _played(self, slots: int, frames: Floats, probability: float, contending: float) -> PushYield:
        """Return what simulated frames yield; contending: expected number of UEs that are not barred."""
        received, last, slot_sum, sent = frames.T
        return PushYield(
            slots=slots,
            probability=probability,
            sending=contending * self._in_time(slots),
            sent=float(sent.mean()),
            received=float(received.mean()),
            last_slot=float(last.mean()),
            nothing=float((received == 0).mean()),
            slot_sum=float(slot_sum.mean()),
            paper=None,
            at_most=lambda slots: (last <= slots[:, None]).mean(axis=1),
            frames=np.column_stack([frames, received == 0]),
        )

    def _search_barring(self, slots: int) -> float:
        """Return the probability of the highest yield, from simulated yields of numbers of UEs that send."""
        if slots == 0 or len(self.pmf) == 1:
            return 1.0
        most, rng = len(self.pmf) - 1, stream(self.cell.seed, PLAN_BARRING, slots)
        numbers = np.unique(np.geomspace(1, most, POINTS).round().astype(np.int64))
        yields = [
            play_pushes(self.cell.medium, np.full(max(FEWEST, SENDERS // n), n), slots, rng, self.ready)
            for n in numbers.tolist()
        ]
        curve = np.interp(np.arange(most + 1), np.append(0, numbers), [0.0, *(rows[:, 0].mean() for rows in yields)])
        members = _representatives(self.pmf)

        def received(chances: Floats) -> Floats:
            return np.array([_sending_mean(members, p, curve) for p in chances.tolist()])

        return highest(received, 0.5 / most, points=97)

    def _play(self, slots: int, probability: float, progress: Progress) -> Floats:
        """Play the frames of a simulation. Returns (F, 4), the first columns of `PushYield.frames`."""
        cell, rng = self.cell, stream(self.cell.seed, PLAN, slots)
        most = len(self.pmf) - 1
        at_once = cell.frames if cell.precision is None else FEW
        batch = max(1, min(BATCH // max(1, math.ceil(most * probability)), BATCH_SLOTS // (slots + 1), at_once))
        rows: list[Floats] = []
        for start in range(0, cell.frames, batch):
            if start:
                progress(start / cell.frames, 1)
            count = min(batch, cell.frames - start)
            number = rng.binomial(rng.choice(len(self.pmf), size=count, p=self.pmf), probability)
            rows.append(play_pushes(cell.medium, number, slots, rng, self.ready))
            if cell.precision is not None and start + count >= FEW:
                samples = np.concatenate(rows)[:, :2]
                errors = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
                if (errors <= cell.precision * np.maximum(1.0, samples.mean(axis=0))).all():
                    break
        return np.concatenate(rows)[:, :4]


def best_barring(slots: int, pmf: Floats, shares: Floats | None = None) -> float:
    """Return the sending probability that maximises the received pushes on the collision channel.

    pmf: entry n is the probability of n contenders. For a known number N the result is min(1, L/N).
    shares: (L,) probability that a contender that is not barred sends in each slot; None: 1/L.
    """
    numbers = np.flatnonzero(pmf)
    # up to one contender per slot, sending more never lowers the yield of a slot
    largest = 1 / max(slots, 1) if shares is None else float(shares.max(initial=0.0))
    enough = 1 / max(int(numbers[-1]) * largest, 1e-9)
    if slots == 0 or enough >= 1:
        return 1.0
    if len(numbers) == 1 and shares is None:
        return slots / int(numbers[0])

    def received(p: Floats) -> Floats:
        yields = np.zeros(len(p))
        for share, count in [(1 / slots, slots)] if shares is None else [(share, 1) for share in shares]:
            alone = (1 - p[:, None] * share) ** np.maximum(numbers - 1, 0)
            yields += count * share * p * (alone @ (numbers * pmf[numbers]))
        return yields

    return highest(received, enough)


def highest(yields: Callable[[Floats], Floats], least: float, points: int = 257) -> float:
    """Return the probability from `least` to 1 of the highest yield.

    There may be several maxima: scan, then refine around the highest. Crowds of n contenders have theirs at a constant
    by n, of a width in proportion to it, so that steps are proportional too.
    """
    grid = np.geomspace(least, 1.0, points)
    for _ in range(6):
        peak = int(np.argmax(yields(grid)))
        best, low, high = float(grid[peak]), float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, len(grid) - 1)])
        grid = np.linspace(low, high, points // 8 + 1)
    return best


def _representatives(pmf: Floats) -> dict[int, float]:
    """Return a distribution on at most `MEMBERS` numbers that is close to another."""
    numbers = np.flatnonzero(pmf)
    if len(numbers) <= MEMBERS:
        return dict(zip(numbers.tolist(), pmf[numbers].tolist(), strict=True))
    part = np.minimum((np.cumsum(pmf[numbers]) * MEMBERS).astype(np.int64), MEMBERS - 1)
    weights = np.bincount(part, pmf[numbers])
    means = np.bincount(part, pmf[numbers] * numbers) / np.maximum(weights, NEGLIGIBLE)
    merged: dict[int, float] = {}
    for number, weight in zip(means.round().astype(int).tolist(), weights.tolist(), strict=True):
        merged[number] = merged.get(number, 0.0) + weight
    return merged


def _sending_mean(contenders: Mapping[int, float], probability: float, curve: Floats) -> float:
    """Return the mean of a curve over the number of UEs that send."""
    total = 0.0
    for number, weight in contenders.items():
        _, m, chance = thinning(number, number, probability)
        total += weight * float(chance[0] @ curve[m[0]])
    return total
