"""The PS's own training on its samples, which estimates what stale updates missed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fedslot.learning.jobs import Job
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.local_training import recipe_of
from fedslot.scenario import Scenario
from fedslot.support.rng import ALONE, stream, torch_seed


class PSTraining:
    """Trains models on the PS's samples by the recipe of the UEs, always in the same order.

    Changes of the versions that were asked for last are cached: each is needed as often as it arrives.
    """

    def __init__(self, scenario: Scenario, model: Model, held_out: HeldOut) -> None:
        self.scenario, self.model, self.inputs = scenario, model, held_out.inputs
        self.recipe = recipe_of(scenario)
        labels = held_out.labels
        self.trainer = Trainer(model, labels.x, labels.y, self.recipe, scenario.training.engine)
        self._changes: dict[int, Tensor] = {}

    def train(self, start: Tensor, version: int) -> Tensor:
        if version not in self._changes:
            oldest = version - self.scenario.staleness.most
            self._changes = {known: change for known, change in self._changes.items() if known >= oldest}
            self._changes[version] = self.trainer(start, [self._job(len(self.trainer.y))])[0] - start
        return self._changes[version]

    def imitate(self, start: Tensor, target: Tensor) -> Tensor:
        module, recipe = self.model.copy().module.eval(), self.recipe
        with torch.no_grad():
            wanted = functional_call(module, self.model.unflatten(target), (self.inputs,))
        wanted = wanted.softmax(dim=1) if self.model.task.classes else wanted.squeeze(-1)
        job, model, velocity = self._job(len(self.inputs)), start.detach().clone(), torch.zeros_like(start)
        edges = recipe.edges(job).tolist()
        for order in job.shuffle():
            for first, last in pairwise(edges):
                batch = torch.from_numpy(order[first:last]).to(self.inputs.device)
                weights = model.detach().requires_grad_()
                with torch.enable_grad():
                    logits = functional_call(module, self.model.unflatten(weights), (self.inputs[batch],))
                    (gradient,) = torch.autograd.grad(self.model.task.loss(logits, wanted[batch]), weights)
                velocity = recipe.momentum * velocity + gradient
                model = model - recipe.lr * velocity
        return model - start

    def _job(self, samples: int) -> Job:
        seed = self.scenario.seed
        return Job(np.arange(samples), self.scenario.epochs, stream(seed, ALONE), torch_seed(seed, ALONE))
