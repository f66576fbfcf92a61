"""Losses and accuracies of many averages of a few models: the utilities of coalitions.

The first layer of an averaged perceptron is the average of the first layers, so what it makes of the samples is
computed once per model and then averaged, not once per average. What is behind it is small, and is done for
many averages at a time as batched products. The result is the same as rebuilding every averaged model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from fedslot.learning.evaluation import Evaluator
from fedslot.learning.models import perceptron_layers
from fedslot.threads import each

MODELS = 20  # averages that are in hand at a time: with a block of samples they stay within the processor's cache
FEW = 4  # averages of networks that are measured one by one


class Mixtures(Protocol):
    """Averages of R known models, given by weights (C, R) that sum to 1 by row."""

    def losses(self, weights: Tensor) -> Tensor:
        """Mean losses (C,), float64."""

    def accuracies(self, weights: Tensor) -> Tensor:
        """Accuracies (C,), float64."""


def mixtures(evaluator: Evaluator, rows: Tensor) -> Mixtures:
    """Prepare to measure averages of the models `rows` (R, P)."""
    layers = perceptron_layers(evaluator.model.module)
    return _Perceptrons(evaluator, rows, layers) if layers else _OneByOne(evaluator, rows)


class _Perceptrons:
    """Samples run along the last axis, so that sums over classes are over whole rows.

    Biases are weights of a further input, 1, which each layer passes on to the next.
    """

    def __init__(self, evaluator: Evaluator, rows: Tensor, layers: list[str]) -> None:
        named = evaluator.model.unflatten(rows)
        first, *self.behind = (
            _with_bias(named[f"{name}.weight"], named[f"{name}.bias"], pass_on=name != layers[-1]) for name in layers
        )
        self.blocks, self.height = evaluator.blocks, first.shape[1]
        by_feature = first.flatten(0, 1).mT.contiguous()
        # (R, height * samples) for each block of samples: averaging them is one matrix product
        self.inside = each(
            lambda block: (by_feature.index_select(0, block.features).mT @ block.x.mT).view(len(rows), -1), self.blocks
        )

    def losses(self, weights: Tensor) -> Tensor:
        return self._mean(weights, _losses)

    def accuracies(self, weights: Tensor) -> Tensor:
        return self._mean(weights, _correct)

    def _mean(self, weights: Tensor, judge: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Mean over samples of what `judge` makes of scores (C, classes, samples) and labels (samples,)."""

        @torch.no_grad()  # by thread
        def measure(some: Tensor) -> Tensor:
            behind = [torch.tensordot(some, layer, dims=1) for layer in self.behind]
            total = torch.zeros(len(some), dtype=torch.float64, device=some.device)
            for block, inside in zip(self.blocks, self.inside, strict=True):
                out = (some @ inside).view(len(some), self.height, -1)
                for layer in behind:
                    out = torch.bmm(layer, out.relu_())
                total += judge(out, block.y).sum(1, dtype=torch.float64)
            return total / sum(len(block.y) for block in self.blocks)

        return torch.cat(each(measure, torch.split(weights, MODELS)))


def _with_bias(weight: Tensor, bias: Tensor, *, pass_on: bool) -> Tensor:
    """Layers (R, outputs, inputs) that take a further input, 1, and may give a further output, 1."""
    found = torch.cat([weight, bias.unsqueeze(2)], dim=2)
    if not pass_on:
        return found
    one = torch.zeros_like(found[:, :1])
    one[:, :, -1] = 1
    return torch.cat([found, one], dim=1)


def _losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (C, samples): log-sum-exp less the right score. Overwrites the scores."""
    right = scores.gather(1, labels.expand(len(scores), 1, -1)).squeeze(1)
    top = scores.amax(1)
    return scores.sub_(top.unsqueeze(1)).exp_().sum(1).log_().add_(top).sub_(right)


def _correct(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.argmax(1) == labels


class _OneByOne:
    """Networks that are rebuilt."""

    def __init__(self, evaluator: Evaluator, rows: Tensor) -> None:
        self.evaluator, self.rows = evaluator, rows

    def losses(self, weights: Tensor) -> Tensor:
        return self._measure(weights)[:, 0]

    def accuracies(self, weights: Tensor) -> Tensor:
        return self._measure(weights)[:, 1]

    def _measure(self, weights: Tensor) -> Tensor:
        def measure(some: Tensor) -> list[tuple[float, float]]:
            own = Evaluator(self.evaluator.model, self.evaluator.x, self.evaluator.y)  # threads cannot share a network
            return [own.evaluate(model) for model in some @ self.rows]

        # few at a time: each takes long, and no thread shall wait for another's many
        measured = [pair for pairs in each(measure, torch.split(weights, FEW)) for pair in pairs]
        return torch.tensor(measured, dtype=torch.float64)
