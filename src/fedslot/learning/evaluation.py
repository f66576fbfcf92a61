"""Loss and accuracy of a model on held-out samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedslot.learning.models import Model

SAMPLES = 8192  # that pass the network at once; bounds the memory


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model, x, y

    @torch.no_grad()
    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of one model (P,)."""
        self.model.module.eval()
        parameters = self.model.unflatten(flat)
        scores = torch.cat([self.model.logits(parameters, some) for some in torch.split(self.x, SAMPLES)])
        losses = nn.functional.cross_entropy(scores, self.y, reduction="none")
        correct = scores.argmax(1) == self.y
        return float(losses.mean(dtype=torch.float64)), float(correct.mean(dtype=torch.float64))
