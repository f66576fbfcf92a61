"""Loss and accuracy of a model on held-out samples."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from fedslot.learning.models import Model

SAMPLES = 8192  # that pass the network at once; bounds the memory


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model, x, y

    @cached_property
    def lit(self) -> tuple[Tensor, Tensor]:
        """Samples (V, f) by those features alone that are not zero in all of them, and those features (f,).

        The others, such as the black margin of images, take part in no product.
        """
        flat = self.x.flatten(1)
        features = (flat != 0).any(0).nonzero().squeeze(1)
        return flat[:, features], features

    @torch.no_grad()
    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of one model (P,)."""
        self.model.module.eval()
        parameters = self.model.unflatten(flat)
        scores = torch.cat([self.model.logits(parameters, some) for some in torch.split(self.x, SAMPLES)])
        losses = nn.functional.cross_entropy(scores, self.y, reduction="none")
        correct = scores.argmax(1) == self.y
        return float(losses.mean(dtype=torch.float64)), float(correct.mean(dtype=torch.float64))
