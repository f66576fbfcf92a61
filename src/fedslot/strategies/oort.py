"""Oort (Lai et al. 2021): every slot pulls a UE of high reported loss, much data and short computing, or a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Receipt, UEs
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.selection import draw, top

LEAST = 1e-300  # utility, so that it has a logarithm


@dataclass(frozen=True)
class Reports:
    """What UEs reported. loss: (K,) the last loss of each UE, NaN before the first.

    last: (K,) the last frame in which each UE was received, or pulled in vain, -1 before the first.
    late, tried: (K,) pulls in vain, and all pulls of each UE. frames: number of frames.
    """

    loss: NDArray[np.float64]
    last: NDArray[np.int64]
    late: NDArray[np.int64]
    tried: NDArray[np.int64]
    frames: int = 0


class Oort:
    """Pull with all M slots: explore UEs that were never pulled, exploit the others by their utility.

    A UE reports with its update the loss of the global model on its data. Its statistical utility is its number of
    samples times that loss, as a part of the largest one, plus sqrt(0.1 ln R / r), where R is the number of this frame
    and r that of the last one that pulled the UE. (The paper has the root mean square of the losses of the samples,
    which a report of one number does not tell.) The system utility is (1 - l)^penalty, where l is the share of its
    pulls, with one more in time, for which the UE was late: how long it computes is not known.

    A share of the slots explores UEs at random: `explore` at first, times `decay` in each frame, down to `least`. The
    others go to UEs drawn in proportion to utility among those with at least 95% of the utility of the last one that
    would fit, cut off at the 95th percentile, so that one corrupt report does not win for ever.
    """

    needs_values = False
    needs_reports = ("loss",)
    uses: ClassVar[Uses] = ()

    def __init__(
        self,
        cell: Cell,
        *,
        explore: Annotated[float, Field(ge=0, le=1)] = 0.9,
        decay: Annotated[float, Field(ge=0, le=1)] = 0.98,
        least: Annotated[float, Field(ge=0, le=1)] = 0.2,
        penalty: Annotated[float, Field(ge=0, le=100)] = 2.0,
    ) -> None:
        self.cell, self.explore, self.decay, self.least, self.penalty = cell, explore, decay, least, penalty
        self.sizes = np.ones(cell.ues) if cell.sizes is None else cell.sizes

    def init(self) -> Reports:
        ues, none = self.cell.ues, np.zeros(self.cell.ues, dtype=np.int64)
        return Reports(np.full(ues, np.nan), none - 1, none, none)

    def schedule(self, state: Reports, round: int, rng: np.random.Generator) -> Grant:
        slots, new = self.cell.most_pulled, np.flatnonzero(state.tried == 0)
        share = max(self.least, self.explore * self.decay**state.frames)
        fresh = min(len(new), max(int(rng.binomial(slots, min(share, 1.0))), slots - (self.cell.ues - len(new))))
        explored = rng.choice(new, size=fresh, replace=False)
        return Grant(np.concatenate([self._exploit(state, slots - fresh, rng), explored]))

    def observe(self, state: Reports, receipt: Receipt, values: NDArray[np.float64]) -> Reports:
        loss, last, late, tried = state.loss.copy(), state.last.copy(), state.late.copy(), state.tried.copy()
        if "loss" in receipt.reports:
            known = np.isfinite(receipt.reports["loss"])
            loss[receipt.received[known]] = receipt.reports["loss"][known]
        for ues in (receipt.pulled, receipt.pushed, receipt.wasted):
            last[ues] = state.frames
            tried[ues] += 1
        late[receipt.wasted] += 1
        return Reports(loss, last, late, tried, state.frames + 1)

    def _exploit(self, state: Reports, count: int, rng: np.random.Generator) -> UEs:
        """Return UEs that were pulled before, drawn by utility from those of high utility."""
        known = np.flatnonzero(state.tried)
        if not count or not len(known):
            return known[:0]
        utility = self.utilities(state)[known]
        bar = 0.95 * utility[top(utility, count)[-1]]
        high = utility >= bar
        chosen: UEs = known[high][draw(np.log(np.maximum(utility[high], LEAST)), count, rng)]
        return chosen

    def utilities(self, state: Reports) -> NDArray[np.float64]:
        """Return the utility of each UE, (K,); of UEs that reported no loss, the mean of the others."""
        reported = np.isfinite(state.loss)
        typical = float(state.loss[reported].mean()) if reported.any() else 1.0
        raw = self.sizes * np.where(reported, state.loss, typical)
        seen = state.tried > 0
        raw = np.minimum(raw, np.quantile(raw[seen], 0.95)) if seen.any() else raw
        spread = float(raw[seen].max()) if seen.any() else 1.0
        number = state.frames + 1
        stale = np.sqrt(0.1 * np.log(number) / np.maximum(state.last + 1, 1))
        in_time: NDArray[np.float64] = 1 - state.late / (state.tried + 1)
        return np.asarray((raw / (spread or 1.0) + stale) * in_time**self.penalty)
