"""Loss and accuracy of models, and of averages of models, on held-out samples.

The first layer of an averaged perceptron is the average of the first layers. So its pre-activations are computed once
per model and then averaged, instead of once per average: the same result as evaluating every averaged model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from fedslot.learning.models import Model, perceptron_layers
from fedslot.threads import ONE_THREAD, Threads

SAMPLES = 500  # per block; one block of samples and one chunk of averages fit into the processor's cache together
AVERAGES, REBUILT = 20, 4  # averages per chunk: of perceptrons, and of networks that take longer

Measure = Callable[[Tensor], Tensor]
Logits = Callable[[int, Tensor], Tensor]
"""Logits (c, classes, b) of averages with weights (c, R) on a block of b samples, which is given by its index."""


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, threads: Threads = ONE_THREAD) -> None:
        self.model, self.x, self.y, self.threads = model, x, y, threads
        self._layers = perceptron_layers(model.module)
        if not self._layers:
            self._x, self._labels = torch.split(x, SAMPLES), torch.split(y, SAMPLES)
            return
        # samples of one class are zero in the same features, such as the margin of an image; products leave these out
        parts = torch.split(y.argsort(stable=True), SAMPLES)
        self._labels = tuple(y[part] for part in parts)
        blocks = [x[part].flatten(1) for part in parts]
        self._nonzero = [block.any(0).nonzero().squeeze(1) for block in blocks]
        self._x = tuple(block[:, features] for block, features in zip(blocks, self._nonzero, strict=True))

    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of one model (P,)."""
        loss, accuracy = self.averages(flat.unsqueeze(0))(flat.new_ones(1, 1))[:, 0].tolist()
        return loss, accuracy

    @torch.no_grad()
    def averages(self, models: Tensor) -> Measure:
        """Prepare to measure averages of models (R, P), such as those of coalitions.

        The result maps weights (C, R), which sum to 1 for each average, to mean losses and accuracies (2, C), float64.
        They are NaN if a model takes part that has a parameter which is not finite.
        """
        if not len(models):
            raise ValueError("there are no models to average")
        broken = ~models.isfinite().all(dim=1)
        models = models.masked_fill(broken.unsqueeze(1), 0)
        logits, chunk = (self._perceptrons(models), AVERAGES) if self._layers else (self._rebuilt(models), REBUILT)

        @torch.no_grad()  # holds for one thread only
        def measure_piece(piece: tuple[int, Tensor]) -> Tensor:
            block, weights = piece
            labels, scores = self._labels[block], logits(block, weights)
            top, best = scores.max(1)
            right = scores.gather(1, labels.expand(len(weights), 1, -1)).squeeze(1)
            losses = scores.sub_(top.unsqueeze(1)).exp_().sum(1).log_().add_(top).sub_(right)  # log-sum-exp - right
            return torch.stack([losses.sum(1, dtype=torch.float64), (best == labels).sum(1, dtype=torch.float64)])

        def measure(weights: Tensor) -> Tensor:
            if not len(weights):
                return torch.zeros(2, 0, dtype=torch.float64)
            chunks, blocks = torch.split(weights, chunk), len(self._labels)
            pieces = self.threads.map(measure_piece, product(range(blocks), chunks))
            by_chunk = [torch.stack(pieces[number :: len(chunks)]).sum(0) for number in range(len(chunks))]
            totals = torch.cat(by_chunk, dim=1).cpu() / len(self.y)
            return totals.masked_fill((weights[:, broken] != 0).any(dim=1).cpu(), torch.nan)

        return measure

    def _perceptrons(self, models: Tensor) -> Logits:
        named = self.model.unflatten(models)
        (weight, bias), *later = [(named[f"{name}.weight"], named[f"{name}.bias"]) for name in self._layers]
        hidden, first, first_bias = weight.shape[1], weight.flatten(0, 1), bias.reshape(-1, 1)

        @torch.no_grad()
        def first_layers(block: int) -> Tensor:
            """Pre-activations (R, hidden * b) of all models."""
            return torch.addmm(first_bias, first[:, self._nonzero[block]], self._x[block].mT).view(len(models), -1)

        known = self.threads.map(first_layers, range(len(self._x)))

        def logits(block: int, weights: Tensor) -> Tensor:
            # samples along the last axis, so that operations over classes are over whole vectors
            out = (weights @ known[block]).view(len(weights), hidden, -1)
            for weight, bias in later:
                mean_weight, mean_bias = torch.tensordot(weights, weight, 1), weights @ bias
                out = torch.baddbmm(mean_bias.unsqueeze(2), mean_weight, out.relu_())
            return out

        return logits

    def _rebuilt(self, models: Tensor) -> Logits:
        def logits(block: int, weights: Tensor) -> Tensor:
            own = self.model.copy()  # threads cannot share a module
            own.module.eval()
            averaged = [own.unflatten(flat) for flat in weights @ models]
            return torch.stack([own.logits(parameters, self._x[block]).mT for parameters in averaged])

        return logits
