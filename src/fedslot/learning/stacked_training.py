"""Local SGD of perceptrons, several UEs side by side as batched matrix products.

A step of a small network is so short that calling PyTorch takes most of its time; one call for several UEs shares that.
The backward pass is written out, since `torch.func` would take several times as long as the products.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, perceptron_layers

Tensors = dict[str, Tensor]


class StackedTraining:
    """Trains perceptrons on the samples x (n, *shape) with labels y (n,)."""

    is_random = False
    stack_size = 5  # UEs whose parameters and minibatches stay within the processor's cache together

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x.flatten(1), y, recipe
        self.layers = [(f"{name}.weight", f"{name}.bias") for name in perceptron_layers(model.module)]

    @torch.no_grad()
    def train(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Return the local models (S, P) of S jobs, trained from start (P,). Jobs with more steps come first."""
        recipe = self.recipe
        samples, weights = (part.to(start.device) for part in _minibatches(jobs, recipe))
        anchors = self.model.unflatten(start)
        parameters = {name: part.repeat(len(jobs), *(1 for _ in part.shape)) for name, part in anchors.items()}
        velocities = {name: torch.zeros_like(part) for name, part in parameters.items()}
        steps = np.array([recipe.steps(job) for job in jobs])
        for step in range(len(samples)):
            active = int((steps > step).sum())  # number of UEs that still train
            w, v = ({name: part[:active] for name, part in parts.items()} for parts in (parameters, velocities))
            index = samples[step, :active]
            x = self.x.index_select(0, index.flatten()).view(*index.shape, -1)
            self._accumulate(w, v, x, self.y[index], weights[step, :active])
            for name in parameters:
                if recipe.proximal:
                    v[name].add_(w[name] - anchors[name], alpha=recipe.proximal)
                w[name].sub_(v[name], alpha=recipe.lr)
        return torch.cat([part.flatten(1) for part in parameters.values()], dim=1)

    def _accumulate(self, w: Tensors, v: Tensors, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Set each velocity v to momentum * v + gradient of the loss, where w are the parameters.

        x: (S, b, features) minibatches. y: (S, b) labels. weights: (S, b) of samples in the loss of their UE.
        """
        momentum, inputs = self.recipe.momentum, [x]
        for weight, bias in self.layers:
            outputs = torch.baddbmm(w[bias].unsqueeze(1), inputs[-1], w[weight].mT)
            inputs.append(outputs.relu_() if weight != self.layers[-1][0] else outputs)
        # gradient of the cross-entropy by the logits: softmax minus one-hot
        gradient = inputs.pop().softmax(2)
        gradient.scatter_add_(2, y.unsqueeze(2), gradient.new_full((), -1.0).expand(*y.shape, 1))
        gradient *= weights.unsqueeze(2)
        for weight, bias in reversed(self.layers):
            into = inputs.pop()
            v[weight].baddbmm_(gradient.mT, into, beta=momentum)
            v[bias].mul_(momentum).add_(gradient.sum(1))
            if inputs:  # through the ReLU that made the inputs of this layer
                gradient = torch.ops.aten.threshold_backward(torch.bmm(gradient, w[weight]), into, 0)


def _minibatches(jobs: list[Job], recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return samples (T, S, b) of S jobs in T steps, and their weights (T, S, b) in the mean loss of a minibatch.

    A minibatch that is smaller than b repeats its first sample with weight 0.
    """
    edges = [recipe.edges(job) for job in jobs]
    shape = max(map(recipe.steps, jobs)), len(jobs), max(np.diff(cut).max() for cut in edges)
    samples, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    column = np.arange(shape[2])
    for number, (job, cut) in enumerate(zip(jobs, edges, strict=True)):
        sizes, steps = np.diff(cut)[:, None], recipe.steps(job)
        position = cut[:-1, None] + np.where(column < sizes, column, 0)
        samples[:steps, number] = job.share[job.shuffle()[:, position]].reshape(steps, -1)
        weights[:steps, number] = np.tile(np.where(column < sizes, 1 / sizes, 0), (job.epochs, 1))
    return torch.from_numpy(samples), torch.from_numpy(weights)
