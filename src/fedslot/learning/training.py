"""Local training: SGD with momentum from the global model, for all received UEs of a round."""

from __future__ import annotations

import torch
from torch import Tensor

from fedslot.learning.convolutions import Convolutions
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.networks import OneByOne, Stacked, best_way
from fedslot.learning.perceptrons import Perceptrons
from fedslot.learning.stages import Stages
from fedslot.threads import each


class Trainer:
    """Trains UEs from the global model (ClientUpdate of Algorithm 1).

    x, y: (n, *shape) and (n,), the training samples of all UEs.
    """

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x, y, recipe
        self.way: Perceptrons | Convolutions | Stacked | OneByOne
        here = x.device.type == "cpu"
        stages = Stages.of(model, tuple(x.shape[1:])) if here and model.convolves else None
        if here and Perceptrons.suit(model):
            self.way = Perceptrons(model, x, y, recipe)
        elif stages:
            self.way = Convolutions(model, stages, x, y, recipe)
        else:
            self.way = best_way(model, x, y, recipe)

    def __call__(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Train every job from the same start (P,); returns (len(jobs), P), one local model per row."""
        updates = start.new_empty(len(jobs), self.model.size)

        def descend(stack: list[int]) -> None:
            updates[stack] = self.way.descend(start, [jobs[job] for job in stack])

        if not self.way.draws:
            each(descend, self.stacks(jobs))
            return updates
        # PyTorch's generator is one for all, so networks that draw from it take turns
        with torch.random.fork_rng(devices=[]):
            for stack in self.stacks(jobs):
                torch.manual_seed(jobs[stack[0]].dropout_seed)
                descend(stack)
        return updates

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Jobs that are trained together, by index. Each is planned the same when it is alone, so anywhere will do."""
        return self.way.stacks(jobs)
