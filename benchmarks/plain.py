"""The usual way, to compare with: one module, optimiser and loop per UE; one rebuilt model per coalition."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model


def train(model: Model, start: Tensor, jobs: list[Job], x: Tensor, y: Tensor, recipe: Recipe) -> Tensor:
    """Local models (Y, P), one UE after the other."""
    rows = []
    for job in jobs:
        network = copy.deepcopy(model.module).train()
        nn.utils.vector_to_parameters(start.clone(), network.parameters())
        optimiser = torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum)
        for _ in range(job.epochs):
            parts = min(recipe.batches, len(job.share))
            for batch in np.array_split(job.rng.permutation(job.share), parts):
                index = torch.from_numpy(batch)
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(network(x[index]), y[index])
                loss.backward()
                optimiser.step()
        rows.append(nn.utils.parameters_to_vector(network.parameters()).detach())
    return torch.stack(rows)


@torch.no_grad()
def utilities(model: Model, rows: Tensor, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Minus the losses (C,) of averaged models, each rebuilt and run over all samples."""
    network = copy.deepcopy(model.module).eval()
    found = []
    for weight in weights:
        nn.utils.vector_to_parameters(weight @ rows, network.parameters())
        found.append(-nn.functional.cross_entropy(network(x), y))
    return torch.stack(found)
