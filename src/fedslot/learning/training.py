"""Local training: SGD with momentum from the global model, for all received UEs of a round."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from fedslot.learning.jobs import Job, Minibatches, Recipe
from fedslot.learning.kernel import KernelTraining
from fedslot.learning.models import Model
from fedslot.learning.steps import Accumulate, best_way, perceptron_layers
from fedslot.learning.threads import each

# floats that a stack of UEs may take: for parameters and minibatches 2 MB, for inner products 8 MB
ROOM, KERNEL_ROOM = 1 << 19, 1 << 21


class Trainer:
    """Trains UEs from the global model (ClientUpdate of Algorithm 1).

    x, y: (n, *shape) and (n,), the training samples of all UEs.
    """

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x, y, recipe
        self.way = best_way(model, x, y)
        layers = perceptron_layers(model.module)
        self.kernel = KernelTraining(model, layers, x, y) if len(layers) > 1 else None

    def __call__(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Train every job from the same start (P,); returns (len(jobs), P), one local model per row."""
        self.model.module.train()
        updates = start.new_empty(len(jobs), self.model.size)

        def descend(stack: list[int]) -> None:
            work = [jobs[job] for job in stack]
            if self.kernel and self.kernel.pays(work[0]):
                updates[stack] = self.kernel.descend(start, work, self.recipe)
            else:
                updates[stack] = self._descend(start, work, self.way.accumulate())

        stacks = self.stacks(jobs)
        if not self.way.draws:
            each(descend, stacks)
            return updates
        # PyTorch's generator is one for all, so networks that draw from it take turns
        with torch.random.fork_rng(devices=[]):
            for stack in stacks:
                torch.manual_seed(jobs[stack[0]].dropout_seed)
                descend(stack)
        return updates

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Jobs that are trained side by side, by index: of similar size, few enough for the cache, most steps first.

        Each is planned the same when it is alone, so they may be trained anywhere.
        """
        kernel = self.kernel
        inside = [index for index, job in enumerate(jobs) if kernel and kernel.pays(job)]
        others = [index for index in range(len(jobs)) if index not in set(inside)]
        found = [] if kernel is None else self._cut(jobs, inside, kernel.room, KERNEL_ROOM)
        return found + self._cut(jobs, others, self._room, ROOM if self.way.stacks else 0)

    def _room(self, job: Job) -> int:
        return self.model.size + self.recipe.widest(job) * self.x[:1].numel()

    def _cut(self, jobs: list[Job], some: list[int], room: Callable[[Job], int], limit: int) -> list[list[int]]:
        """Cut some jobs into even parts, the largest jobs first, each within the limit of room."""
        if not some:
            return []
        by_size = sorted(some, key=lambda index: -len(jobs[index].share))
        most = max(1, limit // room(jobs[by_size[0]]))
        parts = -(-len(by_size) // most)
        edges = [len(by_size) * part // parts for part in range(parts + 1)]
        return [
            sorted(by_size[begin:end], key=lambda index: -self.recipe.steps(jobs[index]))
            for begin, end in pairwise(edges)
        ]

    def _descend(self, start: Tensor, jobs: list[Job], accumulate: Accumulate) -> Tensor:
        """Step through the minibatches of several UEs side by side. jobs: those with most steps first."""
        steps, stack = Minibatches.draw(jobs, self.recipe), len(jobs)
        # a contiguous tensor per layer rather than views of one matrix: matrix products are faster so
        parts = self.model.unflatten(start).items()
        rows = {name: part.repeat(stack, *(1 for _ in part.shape)) for name, part in parts}
        velocity = {name: torch.zeros_like(part) for name, part in rows.items()}
        samples, weights = steps.sample.to(self.x.device), steps.weight.to(self.x.device)
        for step, going in enumerate(steps.going):
            here = {name: part[:going] for name, part in rows.items()}
            speed = {name: part[:going] for name, part in velocity.items()}
            index = samples[step, :going]
            x, y = _gather(self.x, index), self.y[index]
            accumulate(here, speed, self.recipe.momentum, x, y, weights[step, :going])
            torch._foreach_sub_(list(here.values()), list(speed.values()), alpha=self.recipe.lr)
        return torch.cat([part.flatten(1) for part in rows.values()], dim=1)


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Samples (S, b, *shape) by index (S, b), in the memory order of x."""
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    stored = x.permute(0, 2, 3, 1) if channels_last else x
    # rows of a flat table are copied several times faster than entries of a deep one
    found = stored.flatten(1).index_select(0, index.flatten()).view(*index.shape, *stored.shape[1:])
    return found.permute(0, 1, 4, 2, 3) if channels_last else found
