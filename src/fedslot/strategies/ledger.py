"""The PS's memory of what UEs are worth, shared by the strategies that go by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Receipt, UEs
from fedslot.strategies.base import Cell


@dataclass(frozen=True)
class Ledger:
    """Smoothed Shapley values.

    value: (K,) smoothed value of each UE; -inf until it is first received.
    seen: (K,) how often each UE was received.
    """

    value: NDArray[np.float64]
    seen: NDArray[np.int64]

    @classmethod
    def blank(cls, ues: int) -> Ledger:
        """Nothing is known of any UE."""
        return cls(np.full(ues, -np.inf), np.zeros(ues, dtype=np.int64))

    def smooth(self, receipt: Receipt, values: NDArray[np.float64], memory: float | Literal["mean"]) -> Ledger:
        """Mix in new values: value <- memory * value + (1 - memory) * new; the first one sets the value."""
        ues = receipt.received
        value, seen = self.value.copy(), self.seen.copy()
        seen[ues] += 1
        old, times = value[ues], seen[ues]
        keep = (times - 1) / times if memory == "mean" else np.full(len(ues), memory)
        value[ues] = np.where(times == 1, values, keep * np.where(times == 1, 0, old) + (1 - keep) * values)
        return Ledger(value, seen)

    def top(self, count: int) -> UEs:
        """The UEs of highest value, best first; equal ones by index."""
        count = min(count, len(self.value))
        if count == 0:
            return np.empty(0, dtype=np.int64)
        # partial selection: time does not grow faster than the number of UEs
        least = np.partition(self.value, -count)[-count]
        better, equal = np.flatnonzero(self.value > least), np.flatnonzero(self.value == least)
        chosen = np.concatenate([better, equal[: count - len(better)]])
        return chosen[np.argsort(-self.value[chosen], kind="stable")]


def warm_up(cell: Cell, ledger: Ledger, round: int) -> UEs | None:
    """Pulls of an all-pull round: a full pass over the UEs, then the most valued; None once warm-up is over.

    A pass that ends within a frame leaves slots over; they go to the most valued of the others.
    """
    warmup = cell.full_pass if cell.warmup is None else cell.warmup
    if round >= warmup:
        return None
    next_in_turn = np.arange(round * cell.slots, min((round + 1) * cell.slots, cell.ues))
    others = ledger.top(cell.slots)
    return np.concatenate([next_in_turn, others[~np.isin(others, next_in_turn)]])[: cell.slots]
