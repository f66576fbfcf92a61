"""Local SGD of perceptrons by Numba, one UE after the other, in ordinary or dual form: whichever takes less work."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np
from torch import Tensor

from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, perceptron_layers
from fedslot.learning.sgd_kernels import Floats, train, train_dual

CACHE = 1 << 26  # floats in cached Gram matrices: 256 MB


class CompiledTraining:
    """Trains perceptrons on the samples x (n, *shape) with labels y (n,)."""

    is_random = False
    stack_size = 1

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.x, self.y, self.recipe = np.ascontiguousarray(x.flatten(1).numpy()), y.numpy(), recipe
        outputs = [model.shapes[f"{name}.weight"][0] for name in perceptron_layers(model.module)]
        self.widths = np.array([self.x.shape[1], *outputs])
        if len(y) and not 0 <= self.y.min() <= self.y.max() < outputs[-1]:  # compiled code checks no index
            raise ValueError(f"labels must be from 0 to {outputs[-1] - 1}, the classes of the network")
        self._grams: OrderedDict[bytes, Floats] = OrderedDict()
        self._lock = Lock()

    def train(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Return the local models (len(jobs), P), trained from start (P,)."""
        models = start.repeat(len(jobs), 1)
        hyper = np.float32(self.recipe.lr), np.float32(self.recipe.momentum), np.float32(self.recipe.proximal)
        for parameters, job in zip(models.numpy(), jobs, strict=True):
            x, y, orders, edges = self.x[job.share], self.y[job.share], job.shuffle(), self.recipe.edges(job)
            if self.prefers_dual(job):
                train_dual(parameters, self.widths, x, y, self._gram(job, x), orders, edges, hyper)
            else:
                train(parameters, self.widths, x, y, orders, edges, hyper)
        return models

    def prefers_dual(self, job: Job) -> bool:
        """Return whether a job takes less work in dual form, counted in multiplications of the first layer.

        Each step also updates the first layer's parameters, or all dual ones, which is as costly as products with five
        samples. Gram matrices count for a sixth: they are one large product, mostly cached from earlier rounds.
        """
        n, features, hidden = len(job.share), int(self.widths[0]), int(self.widths[1])
        products = job.epochs * n + 5 * self.recipe.steps(job)
        dual = n * n * features / 6 + 2 * n * features * hidden + products * n * hidden
        return len(self.widths) > 2 and n * n <= CACHE and dual < 2 * products * features * hidden

    def _gram(self, job: Job, x: Floats) -> Floats:
        """Return the inner products (n, n) of the samples, each with a 1 for the bias; cached for later rounds."""
        key = job.share.tobytes()
        with self._lock:
            if key in self._grams:
                self._grams.move_to_end(key)
                return self._grams[key]
        gram: Floats = x @ x.T + np.float32(1)
        with self._lock:
            self._grams[key] = gram
            while sum(cached.size for cached in self._grams.values()) > CACHE:
                self._grams.popitem(last=False)
        return gram
