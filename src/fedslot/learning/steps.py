"""Steps of momentum for a stack of UEs with weights of their own; the fastest way for each kind of network.

Measured on a CPU: for a plain perceptron, batched matrix products written out are several times faster than
`torch.func` (whose overhead exceeds such small products); for other networks `torch.func` over the stack
beats one after the other; for convolutions it does not, since a stack of different filters is a grouped
convolution.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedslot.learning.models import Model, chain, flattens

Tensors = dict[str, Tensor]
Accumulate = Callable[[Tensors, Tensors, float, Tensor, Tensor, Tensor], None]
"""velocity <- momentum * velocity + gradient, in place, for a stack of S UEs.

Called with parameters (S, ...) and velocities (S, ...) by name, momentum, samples (S, b, *shape), labels (S, b)
and weights of the samples (S, b); the gradient is that of each UE's weighted sum of cross-entropy losses."""


@dataclass(frozen=True)
class Way:
    """How to train a network.

    accumulate: makes a step function; each thread must have its own.
    stacks: whether several UEs can be trained side by side.
    draws: whether the network draws random numbers in training (dropout).
    """

    accumulate: Callable[[], Accumulate]
    stacks: bool
    draws: bool = False


def best_way(model: Model, x: Tensor, y: Tensor) -> Way:
    """The fastest way to train a model. x, y: some samples to try it on."""
    layers = perceptron_layers(model.module)
    if layers:
        return Way(lambda: perceptrons(layers), stacks=True)
    # a functional call swaps a module's parameters for its time: threads cannot share one
    if model.convolves or not _stackable(model, x, y):
        return Way(lambda: one_network(model.copy()), stacks=False, draws=_draws(model, x))
    return Way(lambda: any_networks(model.copy()), stacks=True)


def perceptrons(layers: list[str]) -> Accumulate:
    """ReLU perceptrons as batched matrix products. layers: names, first to last."""

    def accumulate(
        parameters: Tensors, velocity: Tensors, momentum: float, x: Tensor, y: Tensor, weight: Tensor
    ) -> None:
        propagate(layers, parameters, velocity, momentum, x.flatten(2), y, weight)

    return accumulate


def propagate(
    layers: list[str],
    parameters: Tensors,
    velocity: Tensors,
    momentum: float,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    *,
    to_inputs: bool = False,
) -> Tensor:
    """Forward and backward pass through linear layers with ReLU between them; accumulates like `Accumulate`.

    returns: the loss's slope by the inputs x (S, b, f), or by the first layer's outputs unless `to_inputs`.
    """
    inputs = [x]
    for name in layers:
        outputs = torch.baddbmm(parameters[f"{name}.bias"].unsqueeze(1), inputs[-1], parameters[f"{name}.weight"].mT)
        inputs.append(outputs if name == layers[-1] else outputs.relu_())
    # the loss's slope by the scores: softmax - one-hot, weighted
    slope = inputs.pop().softmax(2)
    slope.scatter_add_(2, y.unsqueeze(2), slope.new_full((), -1.0).expand(*y.shape, 1))
    slope *= weight.unsqueeze(2)
    for name in reversed(layers):
        into = inputs.pop()
        velocity[f"{name}.weight"].baddbmm_(slope.mT, into, beta=momentum)
        velocity[f"{name}.bias"].mul_(momentum).add_(slope.sum(1))
        if inputs or to_inputs:
            slope = torch.bmm(slope, parameters[f"{name}.weight"])
        if inputs:
            slope = behind_relu(slope, into)
    return slope


def behind_relu(slope: Tensor, outputs: Tensor) -> Tensor:
    """The slope by a ReLU's inputs, given that by its outputs and the outputs themselves."""
    found: Tensor = torch.ops.aten.threshold_backward(slope, outputs, 0)
    return found


def any_networks(model: Model) -> Accumulate:
    """A stack of any networks, by `torch.func`."""
    slopes = vmap(_slope(model))

    def accumulate(
        parameters: Tensors, velocity: Tensors, momentum: float, x: Tensor, y: Tensor, weight: Tensor
    ) -> None:
        for name, slope in slopes(parameters, x, y, weight).items():
            velocity[name].mul_(momentum).add_(slope)

    return accumulate


def one_network(model: Model) -> Accumulate:
    """Any network, for a stack of one."""
    slopes = _slope(model)

    def accumulate(
        parameters: Tensors, velocity: Tensors, momentum: float, x: Tensor, y: Tensor, weight: Tensor
    ) -> None:
        alone = {name: tensor[0] for name, tensor in parameters.items()}
        for name, slope in slopes(alone, x[0], y[0], weight[0]).items():
            velocity[name][0].mul_(momentum).add_(slope)

    return accumulate


def _draws(model: Model, x: Tensor) -> bool:
    """Whether a forward pass moves PyTorch's random generator."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        model.module.train()(x[:1])
        return not torch.equal(before, torch.get_rng_state())


def _stackable(model: Model, x: Tensor, y: Tensor) -> bool:
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


def _slope(model: Model) -> Callable[[Tensors, Tensor, Tensor, Tensor], Tensors]:
    def loss(parameters: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model.logits(parameters, x), y, reduction="none") @ weight

    return grad(loss)


def perceptron_layers(module: nn.Module) -> list[str]:
    """Names of the linear layers of a plain ReLU perceptron; none if the network is anything else."""
    parts = chain(module)
    if parts and flattens(parts[0][1]):
        parts.pop(0)
    linear, relu = parts[::2], parts[1::2]
    plain = len(linear) == len(relu) + 1 and all(type(part) is nn.ReLU for _, part in relu)
    biased = all(type(part) is nn.Linear and part.bias is not None for _, part in linear)
    return [name for name, _ in linear] if plain and biased else []
