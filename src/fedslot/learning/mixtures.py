"""Losses and accuracies of many averages of a few models: the utilities of coalitions.

The first layer of an averaged perceptron is the average of the first layers, so what it makes of the samples is
computed once per model and then averaged, not once per average. What is behind it is small, and is done for
many averages at a time as batched products. The result is the same as rebuilding every averaged model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedslot.learning.evaluation import Evaluator
from fedslot.learning.models import perceptron_layers
from fedslot.learning.threads import each

# averages and samples that are in hand at a time: together they stay within the processor's cache
MODELS, SAMPLES = 20, 500
FEW = 4  # averages of networks that are measured one by one

Measured = tuple[Tensor, Tensor]
"""Mean losses (C,) and accuracies (C,), float64."""


def mixtures(evaluator: Evaluator, rows: Tensor) -> Callable[[Tensor], Measured]:
    """Prepare to measure averages of the models `rows` (R, P): a function of weights (C, R) that sum to 1 by row."""
    layers = perceptron_layers(evaluator.model.module)
    if layers:
        return _Perceptrons(evaluator, rows, layers)
    return lambda weights: _one_by_one(evaluator, weights @ rows)


class _Perceptrons:
    """Averages of perceptrons. Samples run along the last axis, so that sums over classes are over whole rows."""

    def __init__(self, evaluator: Evaluator, rows: Tensor, layers: list[str]) -> None:
        named = evaluator.model.unflatten(rows)
        first, *self.later = layers
        self.named = {name: tensor for name, tensor in named.items() if not name.startswith(f"{first}.")}
        self.hidden = evaluator.model.shapes[f"{first}.weight"][0]
        self.labels = torch.split(evaluator.y, SAMPLES)
        x, features = evaluator.lit
        weight, bias = named[f"{first}.weight"].flatten(0, 1)[:, features], named[f"{first}.bias"].reshape(-1, 1)
        # (R, H * block) for each block of samples: averaging them is one matrix product
        self.inside = each(
            lambda block: torch.addmm(bias, weight, block.mT).view(len(rows), -1), torch.split(x, SAMPLES)
        )

    def __call__(self, weights: Tensor) -> Measured:
        measured = each(self._measure, torch.split(weights, MODELS))
        losses, accuracies = (torch.cat(parts) for parts in zip(*measured, strict=True))
        return losses, accuracies

    @torch.no_grad()  # by thread
    def _measure(self, weights: Tensor) -> Measured:
        mixed = {name: torch.tensordot(weights, tensor, dims=1) for name, tensor in self.named.items()}
        loss = torch.zeros(len(weights), dtype=torch.float64, device=weights.device)
        correct = torch.zeros_like(loss)
        for inside, labels in zip(self.inside, self.labels, strict=True):
            out = (weights @ inside).view(len(weights), self.hidden, len(labels))
            for name in self.later:
                out = torch.baddbmm(mixed[f"{name}.bias"].unsqueeze(2), mixed[f"{name}.weight"], out.relu_())
            right = out.gather(1, labels.expand(len(weights), 1, -1)).squeeze(1)
            top, best = out.max(1)
            correct += (best == labels).sum(1)
            # log-sum-exp less the right score
            losses = out.sub_(top.unsqueeze(1)).exp_().sum(1).log_().add_(top).sub_(right)
            loss += losses.sum(1, dtype=torch.float64)
        count = sum(map(len, self.labels))
        return loss / count, correct / count


def _one_by_one(evaluator: Evaluator, models: Tensor) -> Measured:
    def measure(some: Tensor) -> list[tuple[float, float]]:
        own = Evaluator(evaluator.model.copy(), evaluator.x, evaluator.y)
        return [own.evaluate(model) for model in some]

    # few at a time: each takes long, and no thread shall wait for another's many
    measured = [pair for pairs in each(measure, torch.split(models, FEW)) for pair in pairs]
    losses, accuracies = torch.tensor(measured, dtype=torch.float64).unbind(1)
    return losses, accuracies
