"""What UEs train on: their samples, epochs, and the minibatches that come of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Job:
    """Local training of one UE.

    share: (n,) indices of its training samples.
    epochs: how many epochs it completes.
    rng: shuffles the samples before each epoch.
    dropout_seed: seeds what the network itself draws, if it draws.
    """

    share: NDArray[np.int64]
    epochs: int
    rng: np.random.Generator
    dropout_seed: int = 0


@dataclass(frozen=True)
class Recipe:
    """SGD: learning rate, momentum, and minibatches per epoch, B."""

    lr: float
    momentum: float
    batches: int

    def parts(self, job: Job) -> int:
        """Minibatches of a job's epoch: at most one per sample."""
        return min(self.batches, len(job.share))

    def steps(self, job: Job) -> int:
        """Steps of a job's whole training."""
        return job.epochs * self.parts(job)

    def widest(self, job: Job) -> int:
        """Samples of a job's largest minibatch."""
        return -(-len(job.share) // self.parts(job))


@dataclass(frozen=True)
class Minibatches:
    """Step by step, what a stack of S UEs trains on; who has most steps comes first.

    place: (T, S, b) places within the UE's share. A minibatch that is shorter than b repeats its first sample.
    sample: (T, S, b) the same as indices of training samples.
    weight: (T, S, b) 1 / size on the samples of each minibatch, 0 on repetitions.
    going: T numbers, how many UEs have a step still.
    """

    place: Tensor
    sample: Tensor
    weight: Tensor
    going: list[int]

    @classmethod
    def draw(cls, jobs: list[Job], recipe: Recipe) -> Minibatches:
        """Shuffle each share once per epoch and cut it into B parts. jobs: those with most steps first."""
        steps = [recipe.steps(job) for job in jobs]
        shape = steps[0], len(jobs), max(map(recipe.widest, jobs))
        place, sample = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        weight = np.zeros(shape, dtype=np.float32)
        for row, job in enumerate(jobs):
            size = len(job.share)
            cuts = np.array_split(np.arange(size), recipe.parts(job))
            sizes, first = np.array([len(cut) for cut in cuts])[:, None], np.array([cut[0] for cut in cuts])[:, None]
            column = np.arange(shape[2])
            shuffled = np.stack([job.rng.permutation(size) for _ in range(job.epochs)])
            chosen = shuffled[:, first + np.where(column < sizes, column, 0)].reshape(steps[row], -1)
            place[: steps[row], row] = chosen
            sample[: steps[row], row] = job.share[chosen]
            weight[: steps[row], row] = np.tile(np.where(column < sizes, 1 / sizes, 0), (job.epochs, 1))
        going = (np.array(steps) > np.arange(shape[0])[:, None]).sum(axis=1).tolist()
        return cls(torch.from_numpy(place), torch.from_numpy(sample), torch.from_numpy(weight), going)
