"""Loss and accuracy of models, and of averages of models, on held-out samples.

Linear layers and convolutions are linear in their parameters, so the first layer's outputs of an averaged model are the
average of the models' outputs. These are computed once per model and then averaged, instead of once per average.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d

from fedslot.learning.models import Model, chain, perceptron_layers
from fedslot.threads import ONE_THREAD, Threads

SAMPLES, IMAGES = 1000, 50  # per block, of perceptrons and of other networks
AVERAGES = 20  # per chunk; smaller pieces spend their time on calls, larger ones leave the processor's cache
CACHE = 1 << 27  # floats in cached outputs of first convolutions: 512 MB

Measure = Callable[[Tensor], Tensor]
Logits = Callable[[int, Tensor], Tensor]
"""Logits (c, classes, b) of averages with weights (c, R) on a block of b samples, which is given by its index."""


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, threads: Threads = ONE_THREAD) -> None:
        self.model, self.x, self.y, self.threads = model, x, y, threads
        self._layers = perceptron_layers(model.module)
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
        """Return the mean loss and the accuracy of one model (P,)."""
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
        logits = self._perceptrons(models) or self._convolved_once(models) or self._rebuilt(models)

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
            chunks, blocks = torch.split(weights, AVERAGES), len(self._labels)
            pieces = self.threads.map(measure_piece, product(range(blocks), chunks))
            by_chunk = [torch.stack(pieces[number :: len(chunks)]).sum(0) for number in range(len(chunks))]
            totals = torch.cat(by_chunk, dim=1).cpu() / len(self.y)
            return totals.masked_fill((weights[:, broken] != 0).any(dim=1).cpu(), torch.nan)

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
        """Compute logits of averages of any network, one after the other."""

        def logits(block: int, weights: Tensor) -> Tensor:
            module, averaged = self._own_module(), self.model.unflatten(weights @ models)
            return _call_each(module, averaged, self._x[block].expand(len(weights), *self._x[block].shape))

        return logits

    def _convolved_once(self, models: Tensor) -> Logits | None:
        """Compute logits one network after the other, after a cached first convolution; None for other networks."""
        name, first = next(iter(chain(self.model.module)), ("", None))
        if type(first) is not nn.Conv2d or first.bias is None or first.groups > 1 or first.padding_mode != "zeros":
            return None
        if len(models) == 1 or len(models) * len(self.y) * first(self.x[:1]).numel() > CACHE:
            return None
        named = self.model.unflatten(models)
        weight, bias = named.pop(f"{name}.weight").flatten(0, 1), named.pop(f"{name}.bias").flatten()

        @torch.no_grad()
        def convolve(block: int) -> Tensor:
            """Return the outputs (R, b, height, width, channels) of all models' first layers."""
            outputs = conv2d(self._x[block], weight, bias, first.stride, first.padding, first.dilation)
            return torch.unflatten(outputs, 1, (len(models), -1)).permute(1, 0, 3, 4, 2).contiguous()

        cached = self.threads.map(convolve, range(len(self._x)))

        def logits(block: int, weights: Tensor) -> Tensor:
            later = nn.Sequential(OrderedDict(chain(self._own_module())[1:]))
            outputs = torch.tensordot(weights, cached[block], 1).permute(0, 1, 4, 2, 3)
            return _call_each(later, {name: torch.tensordot(weights, part, 1) for name, part in named.items()}, outputs)

        return logits

    def _own_module(self) -> nn.Module:
        """Return this thread's copy of the network, since functional calls replace a module's parameters."""
        if not hasattr(self._copies, "module"):
            self._copies.module = self.model.copy().module.eval()
        module: nn.Module = self._copies.module
        return module


def _call_each(module: nn.Module, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Return the logits (c, classes, b) of networks with parameters (c, ...) on their inputs (c, b, ...)."""
    calls = range(len(inputs))
    named = [{name: part[call] for name, part in parameters.items()} for call in calls]
    return torch.stack([functional_call(module, named[call], (inputs[call],)).mT for call in calls])
