"""Losses and accuracies of averages of a few models, by tiles of samples: see `tiles` and `stages`.

The first layer of an averaged perceptron is the average of the first layers, so what it makes of the samples is
computed once per model and then averaged, not once per average. The result is the same as rebuilding every
averaged model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fedslot.learning.stages import Stages
from fedslot.learning.tiles import LANES, Floats, first_layers, measure
from fedslot.threads import each

PIECES = 8  # of the samples, which threads share
AT_ONCE = 960  # averages whose weights are in memory

Measure = Callable[[Tensor], Tensor]


class Tiled:
    """Samples x (V, *shape) with labels y (V,) in tiles, for a network of stages."""

    def __init__(self, stages: Stages, x: Tensor, y: Tensor) -> None:
        first, classes = stages.stages[0], stages.stages[-1].channels
        if not ((y >= 0) & (y < classes)).all():  # compiled code would read beside its arrays
            raise ValueError(f"labels must be from 0 to {classes - 1}, the classes of the network")
        self.stages, self.samples = stages, len(y)
        self.perceptron = first.filter == first.inputs[1:]
        # samples of one kind have more features in common that are zero
        order = torch.argsort(y, stable=True) if self.perceptron else torch.arange(len(y))
        missing = -len(y) % LANES
        self.y = np.concatenate([y[order].numpy(), np.full(missing, -1)])
        self.tiles = len(self.y) // LANES
        self.pieces = list(pairwise(sorted({self.tiles * piece // PIECES for piece in range(PIECES + 1)})))
        height, width = first.padding
        images = x[order].reshape(-1, *first.inputs)
        padded = nn.functional.pad(images, (width, width, height, height, 0, 0, 0, missing))
        by_tile = padded.reshape(self.tiles, LANES, -1).mT.numpy()
        if self.perceptron:
            kinds = by_tile.any(axis=2)  # (tiles, features) that are not zero
            self.taps = np.ascontiguousarray(np.nonzero(kinds)[1])
            self.starts = np.concatenate([[0], np.cumsum(kinds.sum(axis=1))])
            self.x = by_tile[kinds].reshape(-1)
            self.places = np.arange(len(self.taps)) * LANES
        else:
            self.x = np.ascontiguousarray(by_tile).reshape(-1)

    def mixtures(self, rows: Tensor) -> Measure:
        """Prepare to measure averages of models (R, P)."""
        layout, ordered = self.stages.layout, rows[:, self.stages.order]
        inputs, behind, models = self.x, ordered, 0
        if self.perceptron:
            width = self.stages.stages[0].size
            first, behind, models = ordered[:, :width].contiguous(), ordered[:, width:], len(rows)
            inputs = self._first_layers(first.numpy().reshape(-1), models)

        def some(weights: Tensor) -> Tensor:
            out = np.empty((len(weights), self.tiles, 2))
            mix = nn.functional.pad(weights, (0, 1)).numpy().reshape(-1)
            parameters = (weights @ behind).numpy().reshape(-1)
            of_network = layout.records, layout.taps, layout.places, layout.room
            each(lambda piece: measure(*of_network, inputs, models, mix, parameters, self.y, *piece, out), self.pieces)
            return torch.from_numpy(out.sum(axis=1).T / self.samples)

        return lambda weights: torch.cat([some(part) for part in torch.split(weights, AT_ONCE)], dim=1)

    def _first_layers(self, weights: Floats, models: int) -> Floats:
        """What the first layers (models, units, features + 1) make of all samples: (tiles, units, models, LANES)."""
        units = self.stages.stages[0].channels
        out = np.empty(self.tiles * units * models * LANES, np.float32)
        of_samples = self.x, self.taps, self.places, self.starts
        each(lambda piece: first_layers(weights, models, units, *of_samples, *piece, out), self.pieces)
        return out
