"""What a strategy is: small pure functions on explicit state.

    init() -> state                              before the first round
    schedule(state, round, rng) -> Grant         who is pulled, and whether the other slots are open
    observe(state, receipt, values) -> state     what the PS learns from the frame

The state is a frozen dataclass of NumPy arrays, which is how a checkpoint saves it. A strategy never sees
data, models or channels, so the same object serves the simulator and a deployment. `docs/strategies.md` has
a skeleton to copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, Receipt

S = TypeVar("S")


@dataclass(frozen=True)
class Cell:
    """What a strategy may know about the cell, and its own parameters.

    ues: number of UEs, K. slots: uplink slots per frame, M. pull: pull slots, Q.
    contenders: UEs expected to push; None means all that are not pulled.
    probability: access barring; "auto" keeps the load at one contender per push slot.
    warmup: first rounds in which all slots pull; None means one full pass over the UEs.
    memory: weight of the old value in the smoothing, or "mean" for the running mean.
    share: share of the UEs that send their data under `centralized`.
    options: whatever else a strategy of your own takes.
    """

    ues: int
    slots: int
    pull: int
    contenders: int | None = 0
    probability: float | Literal["auto"] = 1.0
    warmup: int | None = None
    memory: float | Literal["mean"] = 0.5
    share: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def full_pass(self) -> int:
        """Frames that it takes to pull every UE once, ceil(K / M)."""
        return -(-self.ues // self.slots)

    def barring(self, pull: int) -> float:
        """The probability with which UEs shall contend beside `pull` pull slots."""
        if self.probability != "auto":
            return self.probability
        contenders = self.ues - pull if self.contenders is None else self.contenders
        return min(1.0, (self.slots - pull) / max(contenders, 1)) or 1.0


class Strategy(Protocol[S]):
    """Decides whose update should be on the air."""

    needs_values: bool
    """Whether the PS must compute Shapley values of what it received."""

    def __init__(self, cell: Cell) -> None: ...

    def init(self) -> S:
        """The state before the first round."""
        ...

    def schedule(self, state: S, round: int, rng: np.random.Generator) -> Grant:
        """What the PS announces at the beginning of a frame."""
        ...

    def observe(self, state: S, receipt: Receipt, values: NDArray[np.float64]) -> S:
        """The state after a frame. values: (Y,) Shapley values in the order of `receipt.received`."""
        ...


@dataclass(frozen=True)
class NoState:
    """The state of a strategy that remembers nothing."""
