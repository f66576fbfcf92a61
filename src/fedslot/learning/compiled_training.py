"""Local SGD of perceptrons by Numba, one UE after the other, in ordinary or dual form: whichever takes less work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, mlp, perceptron_layers
from fedslot.learning.sgd_kernels import Floats, train, train_dual

CACHE = 1 << 26  # floats in cached Gram matrices: 256 MB
KERNELS: tuple[Any, ...] = (train, train_dual)


def is_warm() -> bool:
    """Return whether this machine has cached machine code; after a change of the source it may be that of before."""
    return all(any(Path(kernel.stats.cache_path or "").glob(f"*.{kernel.__name__}-*.nbi")) for kernel in KERNELS)


def warm() -> Iterator[str]:
    """Compile all kernels, or load them from the cache, and yield their names, each before its turn."""
    x, y = np.zeros((4, 3), dtype=np.float32), np.zeros(4, dtype=np.int64)
    model, recipe = Model(mlp((3,), 2)), Recipe(0.1, 0.0, 2)
    training = CompiledTraining(model, torch.from_numpy(x), torch.from_numpy(y), recipe)
    for kernel in KERNELS:
        yield kernel.__name__
        training.train_by(kernel, model.initial.clone().numpy(), Job(np.arange(4), 1, np.random.default_rng(0)))


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
        for parameters, job in zip(models.numpy(), jobs, strict=True):
            self.train_by(train_dual if self.prefers_dual(job) else train, parameters, job)
        return models

    def prepare(self) -> None:
        """Compile all kernels, so that no later training has to wait for its own."""
        for _ in warm():
            pass

    def train_by(self, kernel: Callable[..., None], parameters: Floats, job: Job) -> None:
        """Train the parameters (P,) of one UE in place, by one of the `KERNELS`."""
        hyper = np.float32(self.recipe.lr), np.float32(self.recipe.momentum), np.float32(self.recipe.proximal)
        x, y, orders, edges = self.x[job.share], self.y[job.share], job.shuffle(), self.recipe.edges(job)
        gram = (self._gram(job, x),) if kernel is train_dual else ()
        kernel(parameters, self.widths, x, y, *gram, orders, edges, hyper)

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
