"""The interface of strategies: small pure functions on explicit state.

The state is a frozen dataclass of NumPy arrays, so that a checkpoint can save it. A strategy never sees data, models or
channels, so the same object serves the simulator and a deployment. `docs/how-to/own-parts.md` has a skeleton to copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedslot.messages import Grant, NoState, Receipt, UEs

S = TypeVar("S")
Uses = Sequence[str]
"""Fields of a scenario that a strategy uses beside data.ues and frame.slots; `push` if it opens push slots."""


class Split(NamedTuple):
    """Numbers of pull and push slots, the probability of contending, and the expected number of received pushes."""

    pull: int
    push: int
    probability: float
    pushes: float


@dataclass(frozen=True)
class Cell:
    """The parameters of the cell that a strategy may know.

    ues: number of UEs, K. slots: uplink slots per frame, M. pull: pull slots, Q.
    contenders: UEs expected to push; None means all that are not pulled.
    warmup: first rounds in which all slots pull; None means one full pass over the UEs.
    memory: weight of the old value in the smoothing, or "mean" for the running mean.
    share: share of the UEs that send their data under `centralized`.
    downlink: length of the downlink relative to that of an uplink slot, more than 1 if updates are compressed.
    sizes: (K,) training samples of each UE; None if not known. outlook: makes the `splits`; None: nobody pushes.
    """

    ues: int
    slots: int
    pull: int
    contenders: int | None = 0
    warmup: int | None = None
    memory: float | Literal["mean"] = 0.5
    share: float = 0.1
    downlink: float = 1.0
    sizes: NDArray[np.int64] | None = field(default=None, compare=False)
    outlook: Callable[[float], Sequence[Split]] | None = field(default=None, compare=False)

    @property
    def full_pass(self) -> int:
        """Frames that it takes to pull every UE once, ceil(K / M)."""
        return -(-self.ues // self.slots)

    @property
    def most_pulled(self) -> int:
        """UEs that a frame can pull, min(M, K), since a UE is pulled once a frame."""
        return min(self.slots, self.ues)

    def splits(self, limit: float) -> Sequence[Split]:
        """Return for Q = 0, 1, ... the most push slots with which the expected cost of a frame is at most `limit`."""
        if self.outlook is not None:
            return self.outlook(limit)
        return [Split(pull, 0, 1.0, 0.0) for pull in range(min(self.most_pulled, math.floor(limit) - 1) + 1)]


class Strategy(Protocol[S]):
    """Decides whose update should be on the air. Its keyword parameters are its options, `strategy.options`."""

    needs_values: bool
    """Whether the PS must compute Shapley values of the updates that it received. A strategy may also have
    `needs_measurements = True`: its receipts then hold `measured`; `needs_load = True`: they hold `excess`;
    and `needs_reports = ("loss", "seconds")`: they hold these `reports`."""

    def __init__(self, cell: Cell, **options: Any) -> None: ...

    def init(self) -> S:
        """Return the state before the first round."""
        ...

    def schedule(self, state: S, round: int, rng: np.random.Generator) -> Grant:
        """Return the grant that the PS announces at the beginning of a frame."""
        ...

    def observe(self, state: S, receipt: Receipt, values: NDArray[np.float64]) -> S:
        """Return the state after a frame. values: (Y,) Shapley values in the order of `receipt.received`."""
        ...


@runtime_checkable
class Asking(Strategy[S], Protocol[S]):
    """A strategy that asks UEs for their local loss of the global model before it schedules a frame."""

    overhead: int
    """Slots, uplink and downlink, that asking takes before each frame."""

    def ask(self, state: S, round: int, rng: np.random.Generator) -> UEs:
        """Return the UEs to ask."""
        ...

    def hear(self, state: S, ues: UEs, losses: NDArray[np.float64]) -> S:
        """Return the state after their answers. losses: (n,) mean loss on the training samples of each UE asked."""
        ...


class Stateless:
    """A strategy that learns nothing from what is received; subclasses define `schedule`."""

    needs_values = False
    uses: ClassVar[Uses] = ()

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def observe(self, state: NoState, receipt: Receipt, values: NDArray[np.float64]) -> NoState:
        return state
