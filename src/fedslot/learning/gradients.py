"""Gradients for a stack of UEs with weights of their own; the fastest way for each kind of network.

Measured on a CPU: for a plain perceptron, batched matrix products written out are several times faster than
`torch.func` (whose overhead exceeds such small products); for other networks `torch.func` over the stack
beats one after the other; for convolutions it does not, since a stack of different filters is a grouped
convolution.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedslot.learning.models import Model, chain, flattens

Tensors = dict[str, Tensor]
Gradients = Callable[[Tensors, Tensor, Tensor, Tensor], Tensors]
"""Maps parameters (S, ...), samples (S, b, *shape), labels (S, b) and weights of the samples (S, b) to the
gradients (S, ...) of each UE's weighted sum of cross-entropy losses."""

STACK = 64  # UEs trained side by side; bounds the memory that many received UEs take


def best_gradients(model: Model, x: Tensor, y: Tensor) -> tuple[Gradients, int]:
    """How to get gradients of a model, and for how many UEs at a time. x, y: some samples to try it on."""
    layers = _perceptron(model.module)
    if layers:
        return perceptron_gradients(layers), STACK
    if model.convolves or not _stacks(model, x, y):
        return single_gradients(model), 1
    return vmap(_slope(model)), STACK


def perceptron_gradients(layers: list[str]) -> Gradients:
    """Forward and backward pass of ReLU perceptrons as batched matrix products. layers: names, first to last."""

    def gradients(parameters: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensors:
        inputs = [x.flatten(2)]
        for name in layers:
            weights, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
            outputs = torch.baddbmm(bias.unsqueeze(1), inputs[-1], weights.mT)
            inputs.append(outputs if name == layers[-1] else outputs.relu_())
        # the loss's slope by the scores: softmax - one-hot, weighted
        slope = inputs.pop().softmax(2)
        slope.scatter_add_(2, y.unsqueeze(2), slope.new_full((), -1.0).expand(*y.shape, 1))
        slope *= weight.unsqueeze(2)
        found = {}
        for name in reversed(layers):
            into = inputs.pop()
            found[f"{name}.weight"] = torch.bmm(slope.mT, into)
            found[f"{name}.bias"] = slope.sum(1)
            if inputs:
                slope = torch.bmm(slope, parameters[f"{name}.weight"]).mul_(into > 0)
        return found

    return gradients


def single_gradients(model: Model) -> Gradients:
    """Gradients of any network, for a stack of one."""
    slope = _slope(model)

    def gradients(parameters: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensors:
        found = slope({name: tensor[0] for name, tensor in parameters.items()}, x[0], y[0], weight[0])
        return {name: tensor.unsqueeze(0) for name, tensor in found.items()}

    return gradients


def _stacks(model: Model, x: Tensor, y: Tensor) -> bool:
    """Whether `torch.func` can stack a network.

    Not if it draws random numbers, which must not depend on who else is in the stack, nor if it branches on
    its values, nor if it has parts that can only be taken one after the other.
    """
    model.module.train()
    weight = x.new_ones(1, 1)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("error")
        try:
            vmap(_slope(model))(model.unflatten(model.initial.unsqueeze(0)), x[None, :1], y[None, :1], weight)
        except (RuntimeError, UserWarning):
            return False
    return True


def _slope(model: Model) -> Gradients:
    def loss(parameters: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model.logits(parameters, x), y, reduction="none") @ weight

    return grad(loss)


def _perceptron(module: nn.Module) -> list[str]:
    """Names of the linear layers of a plain ReLU perceptron; none if the network is anything else."""
    parts = chain(module)
    if parts and flattens(parts[0][1]):
        parts.pop(0)
    linear, relu = parts[::2], parts[1::2]
    plain = len(linear) == len(relu) + 1 and all(type(part) is nn.ReLU for _, part in relu)
    biased = all(type(part) is nn.Linear and part.bias is not None for _, part in linear)
    return [name for name, _ in linear] if plain and biased else []
