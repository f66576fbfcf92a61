"""Loss and accuracy on held-out samples: of one model, or of many mixtures of a few models at once."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedslot.learning.models import Model, chain, flattens

CHUNK = 2_000_000  # activations (floats) that a batch of mixtures may take; keeps it near the cache
SAMPLES = 8192  # samples that pass the network at once


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
        loss, accuracy = _measure(scores.unsqueeze(0), self.y)
        return float(loss[0]), float(accuracy[0])

    @torch.no_grad()
    def mixtures(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Mean losses (C,) and accuracies (C,) of the models `weights @ rows`.

        rows: (R, P) models; weights: (C, R), each row summing to 1.

        The first linear layer of a mixture is the mixture of the first layers, so what it makes of the
        samples is computed once per model and mixed, not once per mixture. The rest of the network is small.
        """
        self.model.module.eval()
        head = _linear_head(self.model.module, vectors=self.x.dim() == 2)
        if head is None:
            measured = [self.evaluate(mixed) for mixed in weights @ rows]
            losses, accuracies = torch.tensor(measured, dtype=torch.float64).unbind(1)
            return losses, accuracies
        first, tail = head
        named = self.model.unflatten(rows)
        inside = self.x.flatten(1) @ named[f"{first}.weight"].mT + named[f"{first}.bias"].unsqueeze(1)  # (R, V, H)
        rest = {name: tensor for name, tensor in named.items() if name.split(".")[0] != first}
        batch = max(1, CHUNK // inside[0].numel())
        chunks = [self._mixed(inside, rest, tail, some) for some in torch.split(weights, batch)]
        return torch.cat([loss for loss, _ in chunks]), torch.cat([accuracy for _, accuracy in chunks])

    def _mixed(
        self, inside: Tensor, rest: dict[str, Tensor], tail: nn.Module, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        mixed_inside = torch.tensordot(weights, inside, dims=1)  # (C, V, H)
        mixed_rest = {name: torch.tensordot(weights, tensor, dims=1) for name, tensor in rest.items()}
        scores = vmap(lambda parameters, h: functional_call(tail, parameters, (h,)))(mixed_rest, mixed_inside)
        return _measure(scores, self.y)


def _linear_head(module: nn.Module, vectors: bool) -> tuple[str, nn.Module] | None:
    """The name of the first layer and the network behind it, if it is a plain chain that begins linearly.

    vectors: whether the samples are vectors as they come.
    """
    parts = chain(module)
    if parts and flattens(parts[0][1]):
        parts.pop(0)
    elif not vectors:
        return None
    match parts:
        case [(first, layer), *behind] if type(layer) is nn.Linear and layer.bias is not None:
            return first, nn.Sequential(OrderedDict(behind))  # the parts keep their names, so the parameters do
    return None


def _measure(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean losses (C,) and accuracies (C,) of scores (C, V, classes)."""
    correct = scores.gather(2, y.expand(len(scores), -1).unsqueeze(2)).squeeze(2)
    losses = (scores.logsumexp(2) - correct).mean(1, dtype=torch.float64)
    accuracies = (scores.argmax(2) == y).mean(1, dtype=torch.float64)
    return losses, accuracies
