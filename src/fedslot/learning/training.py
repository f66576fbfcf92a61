"""Local training: SGD with momentum from the global model, for all received UEs of a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.gradients import Gradients, best_gradients
from fedslot.learning.models import Model


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


def train(model: Model, start: Tensor, jobs: list[Job], x: Tensor, y: Tensor, recipe: Recipe) -> Tensor:
    """Train every job from the same start (ClientUpdate of Algorithm 1).

    start: (P,) the global model.
    x, y: (n, *shape) and (n,), the training samples of all UEs.
    returns: (len(jobs), P), one local model per row.
    """
    updates = start.new_empty(len(jobs), model.size)
    model.module.train()
    gradients, stack = best_gradients(model, x, y)
    plans = [_minibatches(job, recipe.batches) for job in jobs]
    longest_first = sorted(range(len(jobs)), key=lambda job: -len(plans[job]))
    for begin in range(0, len(jobs), stack):
        chosen = longest_first[begin : begin + stack]
        with torch.random.fork_rng(devices=[], enabled=stack == 1):
            if stack == 1:  # a network that draws is trained one UE at a time
                torch.manual_seed(jobs[chosen[0]].dropout_seed)
            updates[chosen] = _descend(model, start, [plans[job] for job in chosen], x, y, recipe, gradients)
    return updates


def _descend(
    model: Model,
    start: Tensor,
    plans: list[list[NDArray[np.int64]]],
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    gradients: Gradients,
) -> Tensor:
    """Step through the minibatches of several UEs side by side; `plans` come longest first."""
    rows = start.repeat(len(plans), 1)
    velocity = torch.zeros_like(rows)
    for step in range(len(plans[0])):
        going = sum(len(plan) > step for plan in plans)
        index, weight = _pad([plan[step] for plan in plans[:going]])
        index, weight = index.to(x.device), weight.to(x.device)
        here, speed = rows[:going], velocity[:going]
        slopes = gradients(model.unflatten(here), x[index], y[index], weight)
        speed.mul_(recipe.momentum)
        for name, part in model.unflatten(speed).items():
            part.add_(slopes[name])
        here.sub_(speed, alpha=recipe.lr)
    return rows


def _minibatches(job: Job, batches: int) -> list[NDArray[np.int64]]:
    """The job's minibatches in order: each epoch shuffles the share and cuts it into (at most) B parts."""
    parts = min(batches, len(job.share))
    return [minibatch for _ in range(job.epochs) for minibatch in np.array_split(job.rng.permutation(job.share), parts)]


def _pad(minibatches: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Indices (S, b) and weights (S, b): 1 / size on the samples of each minibatch, 0 on the padding."""
    index = np.zeros((len(minibatches), max(map(len, minibatches))), dtype=np.int64)
    weight = np.zeros(index.shape, dtype=np.float32)
    for row, minibatch in enumerate(minibatches):
        index[row] = minibatch[0]  # the padding is the UE's own: another's samples have no place in its training
        index[row, : len(minibatch)] = minibatch
        weight[row, : len(minibatch)] = 1 / len(minibatch)
    return torch.from_numpy(index), torch.from_numpy(weight)
