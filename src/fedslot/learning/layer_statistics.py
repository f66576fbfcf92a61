"""Second moments of the inputs of a network's layers, and what they tell about noise on updates.

The gradient of a layer's matrix is a sum of products of an error at its output with an input. So in a direction in
which inputs have little energy it is small, whatever the errors are, and an update has mostly noise there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fedslot.learning.models import Model

MOST_SAMPLES, MOST_IMAGES = 5000, 250  # samples that are looked at: by networks without and with convolutions
MOST_DEEPER = 250  # samples whose activations are measured in every round
MOST_INPUTS = 5000  # inputs of a layer, such as patches of images, whose moments are taken

Layer = nn.Linear | nn.Conv2d


@dataclass(frozen=True)
class Basis:
    """Principal directions of a layer's inputs, a 1 for the bias appended.

    vectors: (d, d), one direction per column. energies: (d,) mean squared input along each, ascending.
    """

    vectors: Tensor
    energies: Tensor

    @cached_property
    def scaled(self) -> Tensor:
        """The directions, each times the root of its energy."""
        return self.vectors * self.energies.sqrt()


class LayerStatistics:
    """The layers of a network as matrices, and the statistics of their inputs on samples of the PS.

    inputs: (n, *shape) samples without labels.
    """

    def __init__(self, model: Model, inputs: Tensor) -> None:
        self._model, self._inputs = model.copy(), inputs
        self._model.module.eval()
        layers = _layers(self._model.module)
        called = self._inputs_of(layers, self._model.initial, samples=1)
        self._layers = {name: layers[name] for name in called} if len(called) == len(layers) else {}
        self._first: Basis | None = None
        self._last: tuple[Tensor, list[Basis]] | None = None

    @property
    def complete(self) -> bool:
        """Whether every parameter belongs to a linear layer or a plain convolution, which the network calls."""
        return bool(self._layers)

    def matrices(self, flat: Tensor) -> list[Tensor]:
        """View models or updates (..., P) as one matrix (..., out, d) per layer, the bias in its last column."""
        named, matrices = self._model.unflatten(flat), []
        for name, layer in self._layers.items():
            weight = named[f"{name}weight"]
            matrix = weight.reshape(*weight.shape[: flat.dim()], -1)
            if layer.bias is not None:
                matrix = torch.cat([matrix, named[f"{name}bias"].unsqueeze(-1)], dim=-1)
            matrices.append(matrix)
        return matrices

    def flatten(self, matrices: list[Tensor]) -> Tensor:
        """Return the flat vectors (..., P) whose `matrices` are given."""
        flat = matrices[0].new_empty(*matrices[0].shape[:-2], self._model.size)
        named = self._model.unflatten(flat)
        for (name, layer), matrix in zip(self._layers.items(), matrices, strict=True):
            weight, inputs = named[f"{name}weight"], matrix.shape[-1] - (layer.bias is not None)
            weight.copy_(matrix[..., :inputs].reshape(weight.shape))
            if layer.bias is not None:
                named[f"{name}bias"].copy_(matrix[..., -1])
        return flat

    def bases(self, flat: Tensor) -> list[Basis]:
        """Return the principal directions of each layer's inputs under a model (P,)."""
        if self._last is None or self._last[0] is not flat:  # several parts ask in a round
            (name, layer), *deeper = self._layers.items()
            if self._first is None:
                most = MOST_SAMPLES if isinstance(layer, nn.Linear) else MOST_IMAGES
                self._first = _basis(layer, self._inputs_of({name: layer}, flat, most)[name])
            inputs = self._inputs_of(dict(deeper), flat, MOST_DEEPER)
            self._last = flat, [self._first, *(_basis(layer, inputs[name]) for name, layer in deeper)]
        return self._last[1]

    def responses(self, updates: Tensor, flat: Tensor) -> Tensor:
        """Return updates (Y, P) of a model (P,) in coordinates (Y, n) with the inner product of the layers' outputs.

        The inner product of two updates is then the mean inner product of the changes that they make to each layer's
        outputs, its inputs being those of the model. Networks with other layers keep their parameters as coordinates.
        """
        if not self.complete:
            return updates
        layers = zip(self.matrices(updates), self.bases(flat), strict=True)
        return torch.cat([(matrix @ basis.scaled).flatten(1) for matrix, basis in layers], 1)

    def noise_gain(self, flat: Tensor) -> float:
        """Return the expected squared length of the `responses` of noise with standard deviation 1 per parameter."""
        if not self.complete:
            return float(len(flat))
        layers = zip(self._layers.values(), self.bases(flat), strict=True)
        return float(sum(len(layer.weight) * basis.energies.sum() for layer, basis in layers))

    @torch.no_grad()
    def _inputs_of(self, layers: Mapping[str, Layer], flat: Tensor, samples: int) -> dict[str, Tensor]:
        """Return the inputs of layers under a model (P,), in the order in which the network calls them."""
        inputs: dict[str, Tensor] = {}

        def store(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
            return lambda _, given: inputs.update({name: given[0]})

        with ExitStack() as hooks:
            for name, layer in layers.items():
                hooks.callback(layer.register_forward_pre_hook(store(name)).remove)
            if layers:
                self._model.logits(self._model.unflatten(flat), self._inputs[:samples])
        return inputs


def _layers(module: nn.Module) -> dict[str, Layer]:
    """Return the linear layers and plain convolutions by the prefix of their parameters; none if others train.

    Frozen layers are left out; one of which only a part trains is like those of another kind.
    """
    layers: dict[str, Layer] = {}
    for name, part in module.named_modules():
        own = list(part.parameters(recurse=False))
        if not any(parameter.requires_grad for parameter in own):
            continue
        if not all(parameter.requires_grad for parameter in own):
            return {}
        # a plain convolution is a matrix product with the patches that `unfold` makes
        plain = type(part) is nn.Conv2d and part.groups == 1 and part.padding_mode == "zeros"
        if type(part) is nn.Linear or (plain and not isinstance(part.padding, str)):
            layers[f"{name}." if name else ""] = part
        else:
            return {}
    return layers


def _layer_inputs(layer: Layer, given: Tensor) -> Tensor:
    """Return inputs (n, d) that a layer multiplies by its matrix, patches if they are images, at even distances."""
    if isinstance(layer, nn.Conv2d):
        inputs = _patches(layer, given)
    else:
        inputs = given.reshape(-1, given.shape[-1])
        inputs = inputs[:: _stride(len(inputs))]
    return inputs if layer.bias is None else torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)


def _patches(layer: nn.Conv2d, images: Tensor) -> Tensor:
    """Return patches (n, d) of images (N, C, H, W) as the convolution sees them; only the chosen ones are copied."""
    assert not isinstance(layer.padding, str)  # see _layers
    down, across = layer.padding
    views = pad(images, (across, across, down, down))
    sizes = zip((2, 3), layer.kernel_size, layer.dilation, layer.stride, strict=True)
    for dim, kernel, dilation, stride in sizes:
        views = views.unfold(dim, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    count, _, height, width = views.shape[:4]
    chosen = torch.arange(0, count * height * width, _stride(count * height * width))
    image, position = chosen // (height * width), chosen % (height * width)
    return views.permute(0, 2, 3, 1, 4, 5)[image, position // width, position % width].flatten(1)


def _stride(count: int) -> int:
    """Return the step that takes at most `MOST_INPUTS` out of `count`."""
    return -(-count // MOST_INPUTS)


def _basis(layer: Layer, given: Tensor) -> Basis:
    """Return the principal directions of a layer's inputs.

    Few samples leave most directions without any energy. Ledoit and Wolf's (2004) shrinkage towards equal energies
    gives these what the samples cannot exclude.
    """
    inputs = _layer_inputs(layer, given).double()
    count, size = inputs.shape
    moments = inputs.mT @ inputs / count
    mean = moments.trace() / size
    spread = (moments - mean * torch.eye(size, dtype=moments.dtype, device=moments.device)).square().sum()
    error = (inputs.square().sum(dim=1).square().mean() - moments.square().sum()) / count
    shrinkage = float((error / spread).clamp(0, 1)) if spread > 0 and count > 1 else 1.0  # one input tells no error
    energies, vectors = torch.linalg.eigh(moments)
    energies = (1 - shrinkage) * energies.clamp(min=0) + shrinkage * mean
    return Basis(vectors.float(), energies.float())
