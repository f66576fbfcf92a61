"""Local training of plain perceptrons: one UE at a time, by the way that takes fewer operations."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.descent import descend, descend_in_span
from fedslot.learning.jobs import Job, Recipe, one_by_one
from fedslot.learning.models import Model, perceptron_layers

KEPT = 1 << 26  # inner products that are kept, in floats: 256 MB

Floats = NDArray[np.float32]


class Perceptrons:
    """Trains perceptrons on the samples x (n, *shape) with labels y (n,)."""

    draws = False

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.x, self.y, self.recipe = np.ascontiguousarray(x.flatten(1).numpy()), y.numpy(), recipe
        outputs = [model.shapes[f"{name}.weight"][0] for name in perceptron_layers(model.module)]
        self.widths = np.array([self.x.shape[1], *outputs])
        if not ((self.y >= 0) & (self.y < outputs[-1])).all():  # compiled code would write beside its arrays
            raise ValueError(f"labels must be from 0 to {outputs[-1] - 1}, the classes of the network")
        self._products: OrderedDict[bytes, Floats] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    @staticmethod
    def suit(model: Model) -> bool:
        """Whether a model is a plain perceptron whose parameters lie as the compiled code expects them."""
        layers = perceptron_layers(model.module)
        usual = [f"{name}.{kind}" for name in layers for kind in ("weight", "bias")]
        return bool(layers) and list(model.shapes) == usual

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Each job by itself."""
        return one_by_one(jobs)

    def descend(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Local models (len(jobs), P)."""
        rows = start.repeat(len(jobs), 1)
        for row, job in zip(rows.numpy(), jobs, strict=True):
            x, y, order, cuts = self.x[job.share], self.y[job.share], job.orders(), self.recipe.cuts(job)
            lr, momentum = np.float32(self.recipe.lr), np.float32(self.recipe.momentum)
            if self.in_span(job):
                products = self._inner_products(job.share, x)
                descend_in_span(row, self.widths, x, y, products, order, cuts, lr, momentum)
            else:
                descend(row, self.widths, x, y, order, cuts, lr, momentum)
        return rows

    def in_span(self, job: Job) -> bool:
        """Whether training in the span of a job's samples takes fewer operations than the ordinary way."""
        keepable = len(self.widths) > 2 and len(job.share) ** 2 <= KEPT
        return keepable and self._operations_in_span(job) < self._operations(job)

    def _operations(self, job: Job) -> int:
        """Multiplications of the first layer, whose steps count as those of five samples: they pass much memory.

        The other layers take the same in both ways.
        """
        return 2 * (job.epochs * len(job.share) + 5 * self.recipe.steps(job)) * int(self.widths[0] * self.widths[1])

    def _operations_in_span(self, job: Job) -> float:
        """The same, where steps pass the whole share.

        Inner products count for a sixth: they are large products, fast, and mostly kept from earlier rounds.
        """
        samples, features, hidden = len(job.share), int(self.widths[0]), int(self.widths[1])
        once = samples * (samples * features / 6 + 2 * features * hidden)
        return once + samples * hidden * (job.epochs * samples + 5 * self.recipe.steps(job))

    def _inner_products(self, share: NDArray[np.int64], x: Floats) -> Floats:
        """Those (n, n) of samples that end in a 1, which stands for the bias; kept for the UE's next time."""
        key = share.tobytes()
        with self._lock:
            if key in self._products:
                self._products.move_to_end(key)
                return self._products[key]
        found: Floats = x @ x.T
        found += 1
        with self._lock:
            self._kept += found.size if key not in self._products else 0
            self._products[key] = found
            while self._kept > KEPT:
                self._kept -= self._products.popitem(last=False)[1].size
        return found
