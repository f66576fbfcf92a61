"""Convolutional networks of one architecture, computed side by side as one wide network.

A convolution with few channels leaves most of a processor's vector units idle. So the channels of all networks lie side
by side, and their convolutions become one with groups; each number is the same as in a network alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from fedslot.learning.models import MaxPool2x2, chain
from fedslot.learning.series import TimeFirst

ACTIVATIONS = {nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity, nn.Dropout}
POOLING = {MaxPool2x2, nn.MaxPool2d, nn.AvgPool2d}


class SideBySide:
    """A chain of convolutions, pooling and activations, then linear layers, for any number of networks at once."""

    def __init__(self, layers: list[tuple[str, nn.Module]]) -> None:
        self.layers = layers

    @classmethod
    def of(cls, module: nn.Module) -> SideBySide | None:
        """Return the layers of a network, in evaluation mode; None if it is not such a chain."""
        layers = chain(module)
        flat = [number for number, (_, part) in enumerate(layers) if type(part) is nn.Flatten]
        begin = int(bool(layers) and type(layers[0][1]) is TimeFirst)
        before = layers[begin : flat[0]] if len(flat) == 1 else []
        if not before or type(before[0][1]) is not nn.Conv2d or before[0][1].groups > 1:
            return None
        flatten, *after = [part for _, part in layers[flat[0] :]]
        whole = isinstance(flatten, nn.Flatten) and (flatten.start_dim, flatten.end_dim) == (1, -1)
        by_channel = all(type(part) in ACTIVATIONS | POOLING or _is_plain_convolution(part) for _, part in before)
        linear = all(type(part) in ACTIVATIONS | {nn.Linear} for part in after)
        return cls([(name, part.eval()) for name, part in layers]) if whole and by_channel and linear else None

    def __call__(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the logits (c, b, classes) of c networks with parameters (c, ...) on the same samples x (b, ...)."""
        networks, shared = len(next(iter(parameters.values()))), True
        for name, layer in self.layers:
            weight, bias = parameters.get(f"{name}.weight"), parameters.get(f"{name}.bias")
            if isinstance(layer, nn.Conv2d) and weight is not None:
                groups = 1 if shared else networks * layer.groups
                weight, bias = weight.flatten(0, 1), None if bias is None else bias.flatten()
                x, shared = conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, groups), False
            elif isinstance(layer, nn.Flatten):
                x = torch.unflatten(x, 1, (networks, -1)).transpose(0, 1).flatten(2)
            elif isinstance(layer, nn.Linear) and weight is not None:
                x = x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
            else:
                x = layer(x)
        return x


def _is_plain_convolution(part: nn.Module) -> bool:
    return type(part) is nn.Conv2d and part.padding_mode == "zeros"
