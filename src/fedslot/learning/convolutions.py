"""Local training of small convolutional networks, one UE at a time, by tiles of samples: see `tiles` and `stages`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedslot.learning.jobs import Job, Recipe, one_by_one
from fedslot.learning.models import Model
from fedslot.learning.stages import Stages
from fedslot.learning.tiles import descend


class Convolutions:
    """Trains networks of stages on the samples x (n, *shape) with labels y (n,)."""

    draws = False

    def __init__(self, model: Model, stages: Stages, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        stages.check(x, y)
        self.model, self.stages, self.x, self.y, self.recipe = model, stages, x, y.long(), recipe

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Each job by itself."""
        return one_by_one(jobs)

    def descend(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Local models (len(jobs), P)."""
        rows = self.stages.arrange(start.unsqueeze(0)).repeat(len(jobs), 1)
        layout, course = self.stages.layout, self.stages.course
        lr, momentum = np.float32(self.recipe.lr), np.float32(self.recipe.momentum)
        for row, job in zip(rows.numpy(), jobs, strict=True):
            share = torch.from_numpy(job.share)
            x, y = self.stages.pad(self.x[share]).flatten(1).numpy(), self.y[share].numpy()
            descend(row, layout.records, *course, x, y, job.orders(), self.recipe.cuts(job), lr, momentum)
        return self.stages.restore(rows)
