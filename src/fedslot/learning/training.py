"""Local training: SGD with momentum from the global model, for all received UEs of a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.models import Model
from fedslot.learning.steps import Accumulate, best_way
from fedslot.learning.threads import each

CACHE = 1 << 19  # floats that a stack of UEs may take for its parameters and minibatches: 2 MB


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
    model.module.train()
    way = best_way(model, x, y)
    plans = [_minibatches(job, recipe.batches) for job in jobs]
    stacks = _stacks(plans, model.size, x[:1].numel(), way.stacks)
    updates = start.new_empty(len(jobs), model.size)

    def descend(stack: list[int]) -> None:
        updates[stack] = _descend(model, start, [plans[job] for job in stack], x, y, recipe, way.accumulate())

    if not way.draws:
        each(descend, stacks)
        return updates
    # PyTorch's generator is one for all, so networks that draw from it take turns
    with torch.random.fork_rng(devices=[]):
        for stack in stacks:
            torch.manual_seed(jobs[stack[0]].dropout_seed)
            descend(stack)
    return updates


def side_by_side(model: Model, jobs: list[Job], x: Tensor, y: Tensor, recipe: Recipe) -> list[list[int]]:
    """Which jobs `train` would train in one stack; it gives the jobs of a stack alone the same rows as among all."""
    plans = [_minibatches(job, recipe.batches) for job in jobs]
    stacks = _stacks(plans, model.size, x[:1].numel(), best_way(model, x, y).stacks)
    return [sorted(stack) for stack in stacks]


def _stacks(plans: list[list[NDArray[np.int64]]], parameters: int, features: int, stackable: bool) -> list[list[int]]:
    """Jobs to train side by side: of similar minibatches (little padding), few enough for the cache, longest first."""
    by_size = sorted(range(len(plans)), key=lambda job: -len(plans[job][0]))
    stacks: list[list[int]] = []
    while by_size:
        widest = len(plans[by_size[0]][0])
        count = max(1, CACHE // (parameters + widest * features)) if stackable else 1
        stacks.append(sorted(by_size[:count], key=lambda job: -len(plans[job])))
        by_size = by_size[count:]
    return stacks


def _descend(
    model: Model,
    start: Tensor,
    plans: list[list[NDArray[np.int64]]],
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    accumulate: Accumulate,
) -> Tensor:
    """Step through the minibatches of several UEs side by side; `plans` come longest first."""
    # a contiguous tensor per layer rather than views of one matrix: matrix products are faster so
    rows = {name: part.repeat(len(plans), *(1 for _ in part.shape)) for name, part in model.unflatten(start).items()}
    velocity = {name: torch.zeros_like(part) for name, part in rows.items()}
    done = 0
    for going in range(len(plans), 0, -1):  # those with the shortest plans drop out, one by one
        here = {name: part[:going] for name, part in rows.items()}
        speed = {name: part[:going] for name, part in velocity.items()}
        for step in range(done, len(plans[going - 1])):
            index, weight = _pad([plan[step] for plan in plans[:going]])
            index, weight = index.to(x.device), weight.to(x.device)
            accumulate(here, speed, recipe.momentum, _gather(x, index), y[index], weight)
            for name, part in here.items():
                part.sub_(speed[name], alpha=recipe.lr)
        done = len(plans[going - 1])
    return torch.cat([part.flatten(1) for part in rows.values()], dim=1)


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Samples (S, b, *shape) by index (S, b), in the memory order of x."""
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    stored = x.permute(0, 2, 3, 1) if channels_last else x
    # rows of a flat table are copied several times faster than entries of a deep one
    found = stored.flatten(1).index_select(0, index.flatten()).view(*index.shape, *stored.shape[1:])
    return found.permute(0, 1, 4, 2, 3) if channels_last else found


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
