"""Loss and accuracy of models, and of averages of models, on held-out samples."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from fedslot.learning.mixtures import Measure, Tiled
from fedslot.learning.models import Model
from fedslot.learning.stages import Stages
from fedslot.threads import each

SAMPLES = 8192  # that pass a network at once; bounds the memory
FEW = 4  # models that a thread rebuilds at a time: each takes long, and no thread shall wait for another's many


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor) -> None:
        stages = Stages.of(model, tuple(x.shape[1:])) if x.device.type == "cpu" else None
        self.x, self.y = x, y
        self.way: _Way = Tiled(stages, x, y) if stages else _Rebuilt(model, x, y)

    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of one model (P,)."""
        loss, accuracy = self.mixtures(flat.unsqueeze(0))(flat.new_ones(1, 1))[:, 0].tolist()
        return loss, accuracy

    def mixtures(self, rows: Tensor) -> Measure:
        """Prepare to measure averages of models (R, P), of which there is one at least: the utilities of coalitions.

        The result maps weights (C, R), which sum to 1 by row, to mean losses and accuracies (2, C), float64; to NaN
        where a model takes part that is not finite.
        """
        if not len(rows):
            raise ValueError("there are no models to average")
        rows, wrong = rows.detach(), ~rows.isfinite().all(dim=1)
        measure = self.way.mixtures(rows.masked_fill(wrong.unsqueeze(1), 0) if wrong.any() else rows)

        def measure_all(weights: Tensor) -> Tensor:
            if not len(weights):
                return torch.zeros(2, 0, dtype=torch.float64)
            return measure(weights.detach()).masked_fill((weights[:, wrong] != 0).any(dim=1).cpu(), torch.nan)

        return measure_all


class _Way(Protocol):
    def mixtures(self, rows: Tensor) -> Measure: ...


class _Rebuilt:
    """Networks of any kind on any device: every averaged model is rebuilt."""

    def __init__(self, model: Model, x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model.copy(), x, y
        self.model.module.eval()

    def mixtures(self, rows: Tensor) -> Measure:
        @torch.no_grad()  # by thread
        def measure(weights: Tensor) -> list[tuple[float, float]]:
            own = self.model.copy()  # threads cannot share a network
            return [self._evaluate(own, model) for model in weights @ rows]

        def measure_all(weights: Tensor) -> Tensor:
            pairs = [pair for some in each(measure, torch.split(weights, FEW)) for pair in some]
            return torch.tensor(pairs, dtype=torch.float64).T

        return measure_all

    def _evaluate(self, model: Model, flat: Tensor) -> tuple[float, float]:
        parameters = model.unflatten(flat)
        scores = torch.cat([model.logits(parameters, some) for some in torch.split(self.x, SAMPLES)])
        losses = nn.functional.cross_entropy(scores, self.y, reduction="none")
        correct = scores.argmax(1) == self.y
        return float(losses.mean(dtype=torch.float64)), float(correct.mean(dtype=torch.float64))
