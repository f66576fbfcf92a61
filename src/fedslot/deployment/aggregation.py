"""Aggregation at the parameter server of a deployment: the scenario's own, or one that a transport brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.models import Model
from fedslot.messages import UEs
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.round import aggregate, gather, start_aggregation
from fedslot.runs.records import restore_state, state_arrays
from fedslot.scenario import Scenario


@dataclass(frozen=True)
class Received:
    """The updates that a frame brought, in the order of their slots.

    ues: (Y,) who sent them. models: (Y, P). sizes: (Y,) training samples that count for each.
    values: (Y,) values of this round. metrics: what each UE measured.
    """

    ues: UEs
    models: Tensor
    sizes: NDArray[np.int64]
    values: NDArray[np.float64]
    metrics: list[dict[str, float]]


class Aggregator(Protocol):
    """Makes the next global model from the received updates."""

    def __call__(self, model: Tensor, received: Received, round: int) -> tuple[Tensor, Tensor]:
        """Return the model (P,) to broadcast after `model` (P,), and the one to report. Y is at least 1."""
        ...

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that are carried from round to round, such as FedAdam's moments."""
        ...

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Continue with what `memory` returned: after a restart, or because a round failed."""
        ...


class ScenarioAggregation:
    """The aggregation that the scenario names, as in the simulator. initial: (P,) the first global model."""

    def __init__(self, scenario: Scenario, model: Model, held_out: HeldOut, initial: Tensor) -> None:
        self.scenario, self.model, self.held_out = scenario, model, held_out
        self.aggregation = scenario.aggregation.make()
        self.state = start_aggregation(self.aggregation, scenario, initial)

    def __call__(self, model: Tensor, received: Received, round: int) -> tuple[Tensor, Tensor]:
        parts = received.models, received.ues, received.sizes, received.values
        updates = gather(self.model, self.held_out, model, *parts)
        new = aggregate(self.aggregation, self.state, updates, self.scenario, round)
        self.state = new.state
        return new.broadcast, new.report

    def memory(self) -> dict[str, NDArray[Any]]:
        return state_arrays(self.state)

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        self.state = restore_state(self.state, memory)
