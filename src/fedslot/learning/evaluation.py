"""Loss and accuracy of a model on held-out samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedslot.learning.models import Model

SAMPLES = 8192  # that pass the network at once; bounds the memory
BLOCK = 500  # samples of a block, which stays within the processor's cache


@dataclass(frozen=True)
class Block:
    """Some samples, by those features alone that are not zero in all of them.

    The others, such as the black margin of images, take part in no product.

    x: (b, f + 1) samples, with a 1 behind them.
    y: (b,) labels.
    features: (f + 1,) which features they are, counting the 1 as one more.
    """

    x: Tensor
    y: Tensor
    features: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Block:
        """Make one of samples (b, *shape)."""
        ending = torch.cat([x.flatten(1), x.new_ones(len(x), 1)], dim=1)
        features = (ending != 0).any(0).nonzero().squeeze(1)
        return cls(ending[:, features], y, features)


class Evaluator:
    """Measures models on fixed samples x (V, *shape) with labels y (V,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model.copy(), x, y
        self.model.module.eval()
        _quicken(self.model.module)

    @cached_property
    def blocks(self) -> list[Block]:
        """All samples, sorted by label: samples of one kind have more features in common that are zero."""
        order = torch.argsort(self.y, stable=True)
        return [Block.of(self.x[some], self.y[some]) for some in torch.split(order, BLOCK)]

    @torch.no_grad()
    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of one model (P,)."""
        parameters = self.model.unflatten(flat)
        scores = torch.cat([self.model.logits(parameters, some) for some in torch.split(self.x, SAMPLES)])
        losses = nn.functional.cross_entropy(scores, self.y, reduction="none")
        correct = scores.argmax(1) == self.y
        return float(losses.mean(dtype=torch.float64)), float(correct.mean(dtype=torch.float64))


class _Halve(nn.Module):
    """The maximum of each 2x2 places, without keeping which one it was, as gradients would need."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = (side // 2 * 2 for side in x.shape[-2:])
        rows = torch.maximum(x[..., :height:2, :], x[..., 1:height:2, :])
        return torch.maximum(rows[..., :width:2], rows[..., 1:width:2])


def _quicken(module: nn.Module) -> None:
    """Replace parts of a chain of layers by faster ones that do the same, where no gradients are wanted."""
    if type(module) is not nn.Sequential:  # it may do anything with its parts
        return
    usual = nn.MaxPool2d(2)
    for name, part in module.named_children():
        if type(part) is nn.MaxPool2d and part.extra_repr() == usual.extra_repr() and not part.return_indices:
            setattr(module, name, _Halve())
        else:
            _quicken(part)
