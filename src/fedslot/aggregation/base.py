"""The protocol of an aggregation: two pure functions on explicit state.

The state is a frozen dataclass of tensors, NumPy arrays and plain numbers, which is how a checkpoint saves it.
`docs/how-to/own-parts.md` has a skeleton to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model
from fedslot.messages import NoState, UEs

S = TypeVar("S")

NORMAL_MEDIAN = 0.6745  # median of |z| for a standard normal z


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates that the PS received in a round, with their known properties. All local models are finite.

    model: the network; `model.unflatten` views flat vectors (..., P) as tensors (..., *shape) by parameter name.
    start: (P,) the model that was broadcast.
    local: (Y, P) the local models received, Y >= 1.
    ues: (Y,) the UEs that sent them; -1 for a model that the PS trained on pooled data.
    sizes: (Y,) training samples of each UE.
    values: (Y,) values of this round; zeros where the strategy needs none.
    inputs: (V, *shape) inputs that the PS has, without labels. statistics: of the layers' inputs on these samples.
    val_losses: returns the validation losses of models (n, P).
    metrics: what each UE measured and sent with its update, in a deployment; empty in a simulation.
    own: (P,) the model that the PS trained from `start` on labels of its own, if it does (`training.ps: join`).
    own_size: the number of these labels.
    val_gradient: returns the gradient (P,) of the validation loss at a model (P,). Nothing else uses labels.
    changes: (Y, P) changes as they arrived, before `local` was compensated for staleness; None: `steps`.
    least_step: the least factor of a step; below 1 where compensated updates may overshoot.
    noise_of: estimates the noise (Y,) of steps (Y, P) that were compressed, where that takes more than their medians.
    """

    model: Model
    start: Tensor
    local: Tensor
    ues: UEs
    sizes: NDArray[np.int64]
    values: NDArray[np.float64]
    inputs: Tensor
    statistics: LayerStatistics
    val_losses: Callable[[Tensor], list[float]]
    metrics: Sequence[Mapping[str, float]] = ()
    own: Tensor | None = None
    own_size: int = 0
    val_gradient: Callable[[Tensor], Tensor] | None = None
    noise_of: Callable[[NDArray[np.float32]], NDArray[np.float64] | None] | None = None
    changes: Tensor | None = None
    least_step: float = 1.0

    @cached_property
    def steps(self) -> Tensor:
        """Change of the model by each UE, `local - start`, (Y, P)."""
        return self.local - self.start

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """(Y,) Euclidean norm of each step."""
        return _float64(torch.linalg.vector_norm(self.steps, dim=1))

    @cached_property
    def noise(self) -> NDArray[np.float64]:
        """(Y,) estimated standard deviation of each update's noise, with the error of its compression."""
        steps = self.steps if self.changes is None else self.changes
        compressed = None if self.noise_of is None else self.noise_of(steps.cpu().numpy())
        return noise_estimates(steps) if compressed is None else compressed

    @cached_property
    def gains(self) -> NDArray[np.float64]:
        """(Y,) cosine between each step and the descent of the validation loss; 1 where this is not known."""
        if self.val_gradient is None:
            return np.ones(len(self.ues))
        gradient = self.val_gradient(self.start)
        products = _float64(-(self.steps @ gradient)) / max(float(gradient.norm()), 1e-30)
        return products / np.maximum(self.norms, 1e-30)

    @cached_property
    def responses(self) -> Tensor:
        """(Y, n) steps in coordinates in which their inner products are those of the changes of the layers' outputs."""
        return self.statistics.responses(self.steps, self.start)


@dataclass(frozen=True, eq=False)
class Aggregate(Generic[S]):
    """The result of an aggregation.

    broadcast: (P,) the model from which the UEs train next. report: (P,) the model that is evaluated and saved.
    val_loss: validation loss of the reported model, if the aggregation measured it.
    accepted: (Y,) which updates it used, if not all; if none, the models before the round stay.
    """

    broadcast: Tensor
    report: Tensor
    state: S
    val_loss: float | None = None
    accepted: NDArray[np.bool_] | None = None


class Aggregation(Protocol[S]):
    """Makes the next global model from the updates that were received."""

    def __init__(self, **options: Any) -> None: ...

    def init(self, model: Tensor, ues: int) -> S:
        """Return the state before the first round, whose broadcast is `model` (P,), in a cell of `ues` UEs."""
        ...

    def apply(self, state: S, updates: Updates) -> Aggregate[S]:
        """Return the models after a round in which at least one update was received."""
        ...


class StatelessAggregation:
    """An aggregation without memory, whose model is both broadcast and reported; subclasses define `model`."""

    def init(self, model: Tensor, ues: int) -> NoState:
        return NoState()

    def apply(self, state: NoState, updates: Updates) -> Aggregate[NoState]:
        model = self.model(updates)
        return Aggregate(model, model, state)

    def model(self, updates: Updates) -> Tensor:
        raise NotImplementedError


def noise_estimates(steps: Tensor) -> NDArray[np.float64]:
    """Return the estimated standard deviation (Y,) of Gaussian noise on updates (Y, P).

    It is the median of |step - m| / 0.6745, m the median of the step. Most parameters hardly change in a round, so that
    this is that of the noise; without noise it is small. Honest steps have m near 0; liars who shift all parameters
    alike would seem noisy without it, and be allowed longer steps.
    """
    middle, numbers = (steps.shape[1] - 1) // 2, steps.cpu().numpy()
    around = numbers - np.partition(numbers, middle, axis=1)[:, middle, None]
    medians: NDArray[np.float64] = np.partition(np.abs(around), middle, axis=1)[:, middle].astype(np.float64)
    return medians / NORMAL_MEDIAN


def _float64(numbers: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = numbers.double().cpu().numpy()
    return array
