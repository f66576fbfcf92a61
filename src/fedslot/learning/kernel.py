"""Perceptrons trained in the span of their samples.

Gradient steps move the first layer only along samples: W = W0 - lr * sum_j a_j x_j. So what it makes of sample i is
W0 x_i - lr * sum_j (x_i . x_j) a_j: once the inner products of a UE's samples are known, a step costs products
as wide as the share has samples, not as the samples have features, and the gradient by W costs none at all.
The inner products do not change, so they are kept for the next time that the UE trains. The result is
that of ordinary training, up to rounding.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.jobs import Job, Minibatches, Recipe
from fedslot.learning.models import Model
from fedslot.learning.steps import behind_relu, propagate

KEPT = 1 << 26  # inner products that are kept, in floats: 256 MB


class KernelTraining:
    """Trains stacks of perceptrons on the samples x (n, *shape) with labels y (n,). layers: names, first to last."""

    def __init__(self, model: Model, layers: list[str], x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model, x.flatten(1), y
        self.first, *self.later = layers
        self.hidden = model.shapes[f"{self.first}.weight"][0]
        self._grams: OrderedDict[bytes, Tensor] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    def pays(self, job: Job) -> bool:
        """Whether this way takes fewer operations than the ordinary one.

        Inner products count for a sixth: they are large products, fast, and mostly kept from earlier rounds.
        """
        samples, features, hidden = len(job.share), self.x.shape[1], self.hidden
        ordinary = 2 * job.epochs * features * hidden
        return samples * (features / 6 + job.epochs * hidden) + 2 * features * hidden < ordinary

    def room(self, job: Job) -> int:
        """Floats that a job takes while it trains."""
        return len(job.share) * (len(job.share) + 3 * self.hidden)

    def descend(self, start: Tensor, jobs: list[Job], recipe: Recipe) -> Tensor:
        """Local models (S, P) of a stack of jobs. jobs: those with most steps first."""
        steps = Minibatches.draw(jobs, recipe)
        stack, width, hidden = len(jobs), max(len(job.share) for job in jobs), self.hidden
        parameters = self.model.unflatten(start)
        weight, bias = parameters[f"{self.first}.weight"], parameters[f"{self.first}.bias"]
        samples = [self.x.index_select(0, torch.from_numpy(job.share).to(self.x.device)) for job in jobs]
        # inner products, and beside them what the start makes of the samples: one row of a flat table per sample
        table = start.new_zeros(stack, width, width + hidden)
        for row, (job, x) in enumerate(zip(jobs, samples, strict=True)):
            table[row, : len(x), : len(x)] = self._gram(job.share, x)
            table[row, : len(x), width:] = torch.addmm(bias, x, weight.mT)
        table = table.view(-1, width + hidden)
        moved, speed = (start.new_zeros(stack, width, hidden) for _ in range(2))  # sum of a_j, and its velocity
        later = {
            name: part.repeat(stack, *(1 for _ in part.shape))
            for name, part in parameters.items()
            if not name.startswith(f"{self.first}.")
        }
        velocity = {name: torch.zeros_like(part) for name, part in later.items()}

        labels = self.y[steps.sample.to(self.y.device)]
        rows = (steps.place + width * torch.arange(stack).unsqueeze(1)).to(start.device)
        weights = steps.weight.to(start.device)
        for step, going in enumerate(steps.going):
            here = {name: part[:going] for name, part in later.items()}
            pace = {name: part[:going] for name, part in velocity.items()}
            index = rows[step, :going].flatten()
            known = table.index_select(0, index).view(going, -1, width + hidden)
            inside = torch.baddbmm(known[..., width:], known[..., :width], moved[:going], alpha=-recipe.lr).relu_()
            slope = propagate(
                self.later,
                here,
                pace,
                recipe.momentum,
                inside,
                labels[step, :going],
                weights[step, :going],
                to_inputs=True,
            )
            slope = behind_relu(slope, inside)
            speed[:going].mul_(recipe.momentum).view(-1, hidden).index_add_(0, index, slope.view(-1, hidden))
            moved[:going].add_(speed[:going])
            torch._foreach_sub_(list(here.values()), list(pace.values()), alpha=recipe.lr)

        later[f"{self.first}.weight"] = torch.stack(
            [torch.addmm(weight, a[: len(x)].mT, x, alpha=-recipe.lr) for a, x in zip(moved, samples, strict=True)]
        )
        later[f"{self.first}.bias"] = bias - recipe.lr * moved.sum(1)
        return torch.cat([later[name].flatten(1) for name in parameters], dim=1)

    def _gram(self, share: NDArray[np.int64], x: Tensor) -> Tensor:
        """Inner products (n, n) of samples that end in a 1, which stands for the bias."""
        key = share.tobytes()
        with self._lock:
            if key in self._grams:
                self._grams.move_to_end(key)
                return self._grams[key]
        gram = (x @ x.mT).add_(1)
        with self._lock:
            self._kept += gram.numel() if key not in self._grams else 0
            self._grams[key] = gram
            while self._kept > KEPT:
                self._kept -= self._grams.popitem(last=False)[1].numel()
        return gram
