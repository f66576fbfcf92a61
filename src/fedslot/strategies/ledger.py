"""The values of UEs as the PS remembers them, shared by the strategies that go by value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Receipt, UEs
from fedslot.strategies.base import Cell
from fedslot.strategies.selection import top


@dataclass(frozen=True)
class Ledger:
    """Smoothed Shapley values. A subclass may add fields of its own, which smoothing leaves as they are.

    value: (K,) smoothed value of each UE; -inf until it is first received.
    seen: (K,) number of values observed of each UE.
    away: (K,) whether each UE is on order, in asynchronous mode, and need not be chosen again; (0,) if that is ignored.
    """

    value: NDArray[np.float64]
    seen: NDArray[np.int64]
    away: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool), kw_only=True)

    @classmethod
    def blank(cls, ues: int) -> Self:
        """Return a ledger without any values."""
        return cls(np.full(ues, -np.inf), np.zeros(ues, dtype=np.int64), away=np.zeros(ues, dtype=bool))

    def smooth(self, receipt: Receipt, values: NDArray[np.float64], memory: float | Literal["mean"]) -> Self:
        """Return the ledger after a frame. values: (Y,) Shapley values in the order of `receipt.received`."""
        return self.note(receipt).mix(receipt.received, values, memory)

    def note(self, receipt: Receipt) -> Self:
        """Return the ledger with the UEs that are on order after a frame."""
        if receipt.away is None or not len(self.away):
            return self
        away = np.zeros_like(self.away)
        away[receipt.away] = True
        return replace(self, away=away)

    def mix(self, ues: UEs, values: NDArray[np.float64], memory: float | Literal["mean"]) -> Self:
        """Mix in new values: value <- memory * value + (1 - memory) * new; the first one sets the value."""
        value, seen = self.value.copy(), self.seen.copy()
        seen[ues] += 1
        old, times = value[ues], seen[ues]
        keep = (times - 1) / times if memory == "mean" else np.full(len(ues), memory)
        value[ues] = np.where(times == 1, values, keep * np.where(times == 1, 0, old) + (1 - keep) * values)
        return replace(self, value=value, seen=seen)

    def top(self, count: int) -> UEs:
        """Return the UEs of highest value, best first; equal ones by index. UEs on order come last."""
        return top(np.where(self.away, -np.inf, self.value) if len(self.away) else self.value, count)

    def traced(self) -> dict[str, NDArray[np.float64]]:
        """Return the values that `frames.csv` shows."""
        return {"value": self.value}

    @property
    def spread(self) -> float:
        """Standard deviation of the values over the UEs that have one; 1 if it is 0, so that one can divide by it."""
        values = self.value[self.seen > 0]
        return (float(values.std()) if len(values) else 0.0) or 1.0


def warm_up(cell: Cell, ledger: Ledger, round: int) -> UEs | None:
    """Return the pulls of an all-pull round: a full pass over the UEs, then the most valued; None after warm-up.

    A pass that ends within a frame leaves slots over; they go to the most valued of the others.
    """
    warmup = cell.full_pass if cell.warmup is None else cell.warmup
    if round >= warmup:
        return None
    next_in_turn = np.arange(round * cell.slots, min((round + 1) * cell.slots, cell.ues))
    others = ledger.top(cell.slots)
    return np.concatenate([next_in_turn, others[~np.isin(others, next_in_turn)]])[: cell.slots]


class ByValue:
    """A strategy on the smoothed values of the UEs; subclasses define `schedule`."""

    needs_values = True

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> Ledger:
        return Ledger.blank(self.cell.ues)

    def observe(self, state: Ledger, receipt: Receipt, values: NDArray[np.float64]) -> Ledger:
        return state.smooth(receipt, values, self.cell.memory)
