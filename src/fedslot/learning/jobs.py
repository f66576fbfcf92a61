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

    def orders(self) -> NDArray[np.int64]:
        """Shuffle the share once per epoch: (epochs, n) places within it. Each call draws anew."""
        size = len(self.share)
        return np.array([self.rng.permutation(size) for _ in range(self.epochs)], dtype=np.int64).reshape(-1, size)


def one_by_one(jobs: list[Job]) -> list[list[int]]:
    """Each job by itself, by index, the longest first: then no thread is left with a long one at the end."""
    longest = sorted(range(len(jobs)), key=lambda index: -len(jobs[index].share) * jobs[index].epochs)
    return [[index] for index in longest]


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

    def cuts(self, job: Job) -> NDArray[np.int64]:
        """Where the minibatches of an epoch begin and end: (parts + 1,) places, of even sizes, larger first."""
        size, rest = divmod(len(job.share), self.parts(job))
        part = np.arange(self.parts(job) + 1)
        return part * size + np.minimum(part, rest)


@dataclass(frozen=True)
class Minibatches:
    """Step by step, what a stack of S UEs trains on; who has most steps comes first.

    sample: (T, S, b) indices of training samples. A minibatch that is shorter than b repeats its first sample.
    weight: (T, S, b) 1 / size on the samples of each minibatch, 0 on repetitions.
    going: T numbers, how many UEs have a step still.
    """

    sample: Tensor
    weight: Tensor
    going: list[int]

    @classmethod
    def draw(cls, jobs: list[Job], recipe: Recipe) -> Minibatches:
        """Shuffle each share once per epoch and cut it into B parts. jobs: those with most steps first."""
        steps = [recipe.steps(job) for job in jobs]
        shape = steps[0], len(jobs), max(map(recipe.widest, jobs))
        sample, weight = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        for row, job in enumerate(jobs):
            cuts = recipe.cuts(job)
            sizes, column = np.diff(cuts)[:, None], np.arange(shape[2])
            chosen = job.orders()[:, cuts[:-1, None] + np.where(column < sizes, column, 0)].reshape(steps[row], -1)
            sample[: steps[row], row] = job.share[chosen]
            weight[: steps[row], row] = np.tile(np.where(column < sizes, 1 / sizes, 0), (job.epochs, 1))
        going = (np.array(steps) > np.arange(shape[0])[:, None]).sum(axis=1).tolist()
        return cls(torch.from_numpy(sample), torch.from_numpy(weight), going)
