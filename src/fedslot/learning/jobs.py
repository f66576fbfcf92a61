"""A job of local training: the samples of a UE, its epochs, and its minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Job:
    """Local training of one UE.

    share: (n,) indices of its training samples. rng: shuffles them before each epoch.
    dropout_seed: seeds the network's own random numbers, if it draws any.
    """

    share: Integers
    epochs: int
    rng: np.random.Generator
    dropout_seed: int = 0

    def shuffle(self) -> Integers:
        """Return a random order of the samples for each epoch, (epochs, n) positions in the share; draws anew."""
        return np.array([self.rng.permutation(len(self.share)) for _ in range(self.epochs)], dtype=np.int64)


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of local training.

    batches: minibatches per epoch, B. proximal: FedProx's mu; adds mu / 2 * |w - w_global|^2 to the loss.
    optimizer: `sgd`, or `package.module:factory`, called as factory(parameters, lr, **optimizer_options) ->
        torch.optim.Optimizer.
    """

    lr: float
    momentum: float
    batches: int
    proximal: float = 0.0
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)

    def edges(self, job: Job) -> Integers:
        """Return the positions (minibatches + 1,) that cut an epoch into minibatches, as `np.array_split` does."""
        parts = min(self.batches, len(job.share))
        size, larger = divmod(len(job.share), parts)
        part = np.arange(parts + 1)
        return part * size + np.minimum(part, larger)

    def steps(self, job: Job) -> int:
        """Return the number of gradient steps in a job."""
        return job.epochs * min(self.batches, len(job.share))
