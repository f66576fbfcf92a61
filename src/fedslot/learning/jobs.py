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

    batches: minibatches per epoch, B; None: minibatches have `batch_size` samples, the last of an epoch has the rest.
    proximal: FedProx's mu; adds mu / 2 * |w - w_global|^2 to the loss.
    optimizer: `sgd`, or `package.module:factory`, called as factory(parameters, lr, **optimizer_options) ->
        torch.optim.Optimizer.
    """

    lr: float
    momentum: float
    batches: int | None
    proximal: float = 0.0
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 1

    def minibatches(self, samples: int) -> int:
        """Return the number of minibatches in an epoch with a number of samples."""
        return -(-samples // self.batch_size) if self.batches is None else min(self.batches, samples)

    def edges(self, job: Job) -> Integers:
        """Return the positions (minibatches + 1,) that cut an epoch into minibatches.

        A number of minibatches are of almost equal sizes, as `np.array_split` makes them.
        """
        samples, parts = len(job.share), self.minibatches(len(job.share))
        part = np.arange(parts + 1)
        if self.batches is None:
            return np.minimum(part * self.batch_size, samples)
        size, larger = divmod(samples, parts)
        return part * size + np.minimum(part, larger)

    def steps(self, job: Job) -> int:
        """Return the number of gradient steps in a job."""
        return job.epochs * self.minibatches(len(job.share))
