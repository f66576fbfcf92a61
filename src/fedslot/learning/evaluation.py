"""Loss and score of models, and of averages of models, on held-out samples.

Linear layers are linear in their parameters, so the outputs of an averaged perceptron's first layer are the average of
the models' outputs. These are computed once per model and then averaged, instead of once per average.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedslot.learning.models import Model, perceptron_layers
from fedslot.learning.side_by_side import SideBySide
from fedslot.support.threads import ONE_THREAD, Threads

GRADIENT_SAMPLES = 500
SAMPLES, IMAGES = 1000, 50  # per block, of perceptrons and of other networks
# per chunk, likewise; smaller pieces spend their time on calls, larger ones leave the processor's cache
AVERAGES, NETWORKS = 20, 5
MANY = 64  # models, above which averages leave out those that do not take part

Measure = Callable[[Tensor], Tensor]
Logits = Callable[[int, Tensor], Tensor]
"""Logits (c, classes, b) of averages with weights (c, R) on a block of b samples, which is given by its index."""


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, threads: Threads = ONE_THREAD) -> None:
        self.model, self.x, self.y, self.threads = model, x, y, threads
        self._layers, self._wide = perceptron_layers(model.module), SideBySide.of(model.copy().module)
        self._copies = threading.local()
        if not self._layers:
            self._x, self._labels = torch.split(x, IMAGES), torch.split(y, IMAGES)
            return
        # samples of one class are zero in the same features, such as the margin of an image; products leave these out
        parts = torch.split(y.argsort(stable=True), SAMPLES)
        self._labels = tuple(y[part] for part in parts)
        blocks = [x[part].flatten(1) for part in parts]
        self._nonzero = [block.any(0).nonzero().squeeze(1) for block in blocks]
        self._x = tuple(block[:, features] for block, features in zip(blocks, self._nonzero, strict=True))

    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Return the mean loss and the score of one model (P,)."""
        loss, score = self.averages(flat.unsqueeze(0))(flat.new_ones(1, 1))[:, 0].tolist()
        return loss, score

    def losses(self, models: Tensor) -> list[float]:
        """Return the mean losses of models (n, P), which are measured together."""
        losses: list[float] = self.averages(models)(torch.eye(len(models)).to(models))[0].tolist()
        return losses

    def gradient(self, flat: Tensor) -> Tensor:
        """Return the gradient (P,) of the mean loss of one model (P,), on the first 500 samples.

        The loss is the task's `loss_of_descent`.
        """
        module, x, y = self._own_module(), self.x[:GRADIENT_SAMPLES], self.y[:GRADIENT_SAMPLES]
        flat = flat.detach().requires_grad_()
        with torch.enable_grad():
            outputs = functional_call(module, self.model.unflatten(flat), (x,))
            (gradient,) = torch.autograd.grad(self.model.task.loss_of_descent(outputs, y), flat)
        return gradient

    @torch.no_grad()
    def scores(self, flat: Tensor) -> Tensor:
        """Return the logits (V, classes) of one model (P,) on all samples, in their order."""
        module, named = self._own_module(), self.model.unflatten(flat)
        blocks = torch.split(self.x, SAMPLES if self._layers else IMAGES)
        return torch.cat([functional_call(module, named, (block,)) for block in blocks])

    @torch.no_grad()
    def averages(self, models: Tensor) -> Measure:
        """Prepare to measure averages of models (R, P), such as those of coalitions.

        The result maps weights (C, R), which sum to 1 for each average, to mean losses and scores (2, C), float64.
        They are NaN if a model takes part that has a parameter which is not finite.
        """
        if not len(models):
            raise ValueError("there are no models to average")
        broken = ~models.isfinite().all(dim=1)
        models = models.masked_fill(broken.unsqueeze(1), 0)
        logits = self._perceptrons(models) or self._side_by_side(models) or self._rebuilt(models)

        @torch.no_grad()  # holds for one thread only
        def measure_piece(piece: tuple[int, Tensor]) -> Tensor:
            block, weights = piece
            return self.model.task.tally(logits(block, weights), self._labels[block])

        def measure(weights: Tensor) -> Tensor:
            if not len(weights):
                return torch.zeros(2, 0, dtype=torch.float64)
            chunks, blocks = torch.split(weights, AVERAGES if self._layers else NETWORKS), len(self._labels)
            pieces = self.threads.map(measure_piece, product(range(blocks), chunks))
            by_chunk = [torch.stack(pieces[number :: len(chunks)]).sum(0) for number in range(len(chunks))]
            measured = self.model.task.measure(torch.cat(by_chunk, dim=1).cpu(), len(self.y))
            return measured.masked_fill((weights[:, broken] != 0).any(dim=1).cpu(), torch.nan)

        return measure

    def _perceptrons(self, models: Tensor) -> Logits | None:
        """Compute logits of averaged perceptrons by batched products; None for other networks."""
        if not self._layers:
            return None
        named = self.model.unflatten(models)
        (weight, bias), *later = [(named[f"{name}.weight"], named[f"{name}.bias"]) for name in self._layers]
        hidden, first, first_bias = weight.shape[1], weight.flatten(0, 1), bias.reshape(-1, 1)

        @torch.no_grad()
        def first_layers(block: int) -> Tensor:
            """Return the pre-activations (R, hidden * b) of all models."""
            return torch.addmm(first_bias, first[:, self._nonzero[block]], self._x[block].mT).view(len(models), -1)

        outputs = self.threads.map(first_layers, range(len(self._x)))

        def logits(block: int, weights: Tensor) -> Tensor:
            # samples along the last axis, so that operations over classes are over whole vectors
            out = _averages(weights, outputs[block]).view(len(weights), hidden, -1)
            for weight, bias in later:
                mean_weight, mean_bias = torch.tensordot(weights, weight, 1), weights @ bias
                out = torch.baddbmm(mean_bias.unsqueeze(2), mean_weight, out.relu_())
            return out

        return logits

    def _side_by_side(self, models: Tensor) -> Logits | None:
        """Compute logits of averaged convolutional networks side by side; None for other networks."""
        wide = self._wide
        if wide is None:
            return None

        def logits(block: int, weights: Tensor) -> Tensor:
            # contiguous, as in _perceptrons
            return wide(self.model.unflatten(weights @ models), self._x[block]).mT.contiguous()

        return logits

    def _rebuilt(self, models: Tensor) -> Logits:
        """Compute logits of averages of any network, one after the other."""

        def logits(block: int, weights: Tensor) -> Tensor:
            module, averaged = self._own_module(), self.model.unflatten(weights @ models)
            named = [{name: part[number] for name, part in averaged.items()} for number in range(len(weights))]
            return torch.stack([functional_call(module, network, (self._x[block],)).mT for network in named])

        return logits

    def _own_module(self) -> nn.Module:
        """Return this thread's copy of the network, since functional calls replace a module's parameters."""
        if not hasattr(self._copies, "module"):
            self._copies.module = self.model.copy().module.eval()
        module: nn.Module = self._copies.module
        return module


def _averages(weights: Tensor, rows: Tensor) -> Tensor:
    """Return averages (C, n) of rows (R, n) with weights (C, R); of many rows, only those that take part are read."""
    taking = weights.any(dim=0)
    if len(rows) <= MANY or 2 * int(taking.sum()) > len(rows):
        return weights @ rows
    return weights[:, taking] @ rows[taking]
