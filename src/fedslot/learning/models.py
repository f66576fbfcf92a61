"""Models as flat vectors: an update is a vector (P,), and a round's updates are one matrix (Y, P)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedslot.learning.tasks import CLASSIFICATION, LearningTask
from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.support.errors import InputError
from fedslot.support.rng import INITIAL_MODEL, torch_seed

FIELD = "training.model"


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the paper's multilayer perceptron: 50 and 25 hidden units, ReLU."""
    inputs = torch.Size(shape).numel()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 25), nn.ReLU(), nn.Linear(25, classes)
    )


class MaxPool2x2(nn.Module):
    """2x2 max pooling; without gradients by maxima of pairs, in half the time where channels come last in memory."""

    def forward(self, x: Tensor) -> Tensor:
        """Halve the height and width of images (b, channels, height, width)."""
        if x.requires_grad:
            return nn.functional.max_pool2d(x, 2)
        height, width = (side // 2 * 2 for side in x.shape[2:])
        pairs = torch.maximum(x[:, :, 0:height:2], x[:, :, 1:height:2])
        return torch.maximum(pairs[..., 0:width:2], pairs[..., 1:width:2])


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the paper's small convolutional network: twice 8 filters 4x4 and 2x2 max pooling, then linear."""
    if len(shape) != 3 or min(shape[1:]) < 7:
        raise InputError(FIELD, "cnn", f"mlp for samples of shape {shape}; cnn takes images of 7x7 or more")
    channels, height, width = shape
    pooled = [((side - 1) // 2 - 1) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 8, 4, padding=1),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Conv2d(8, 8, 4, padding=1),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * pooled[0] * pooled[1], classes),
    )


def lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the CNN of NIID-Bench: 6 and 16 filters 5x5, each with ReLU and 2x2 max pooling, then 120 and 84 units."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise InputError(FIELD, "lenet", f"mlp for samples of shape {shape}; lenet takes images of 16x16 or more")
    channels, height, width = shape
    pooled = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(16 * pooled[0] * pooled[1], 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


MODELS: Kind[nn.Module] = kinds.MODELS


class Model:
    """A network as a pure function of a flat vector of the parameters that train.

    module: the network; of its own parameters only the frozen ones are read again, which are never sent.
    initial: (P,) float32, the first global model. task: what its outputs mean.
    """

    def __init__(
        self, module: nn.Module, device: str | torch.device = "cpu", task: LearningTask = CLASSIFICATION
    ) -> None:
        self.module, self.task = module.to(device), task
        named = {name: part.detach() for name, part in module.named_parameters() if part.requires_grad}
        self.shapes = {name: tensor.shape for name, tensor in named.items()}
        self.initial = torch.cat([tensor.reshape(-1) for tensor in named.values()]).float()

    @classmethod
    def build(
        cls,
        name: str,
        shape: tuple[int, ...],
        classes: int,
        seed: int,
        device: str = "cpu",
        options: Mapping[str, Any] = MappingProxyType({}),
        task: LearningTask = CLASSIFICATION,
    ) -> Model:
        """Make the model of a scenario: a known name, or a factory `package.module:factory`.

        The factory is called with (sample shape, number of classes) and the options, and returns an `nn.Module` that
        maps (batch, *shape) to (batch, classes).
        """
        MODELS.find(name)
        try:
            torch.zeros(1, device=device).item()
        except (RuntimeError, AssertionError):
            raise InputError("training.device", device, "a device that PyTorch finds here, e.g. cpu") from None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, INITIAL_MODEL))
            module = MODELS.make(name, options, shape, classes)
        _check(name, module, shape, classes)
        return cls(module, device, task)

    def copy(self) -> Model:
        """Return a copy with its own module, for another thread."""
        return type(self)(copy.deepcopy(self.module), self.initial.device, self.task)

    @property
    def tensor_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors, in the order in which a flat vector holds them."""
        return [tuple(shape) for shape in self.shapes.values()]

    @property
    def size(self) -> int:
        """Number of parameters, P."""
        return len(self.initial)

    @property
    def convolves(self) -> bool:
        """Whether the network has convolutions."""
        return any(isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in self.module.modules())

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """View (..., P) parameters as tensors (..., *shape) by name; writing to them writes to `flat`."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: part.view(*flat.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def module_with(self, flat: Tensor) -> nn.Module:
        """Return a copy of the network with the parameters (P,), for evaluation."""
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            nn.utils.vector_to_parameters(flat, trained_parameters(module))
        return module.eval()

    def logits(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Return the logits (batch, classes) of samples (batch, *shape)."""
        scores: Tensor = functional_call(self.module, parameters, (x,))
        return scores


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that train, in the order of the flat vector; the others are frozen."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def chain(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the parts of an `nn.Sequential` with their names, first to last; empty for any other network.

    It is empty, too, if a parameter is frozen or in two places, or if a part is modified.
    """
    frozen = len(trained_parameters(module)) < sum(1 for _ in module.parameters())
    tied = sum(1 for _ in module.named_parameters(remove_duplicate=False)) > sum(1 for _ in module.parameters())
    if type(module) is not nn.Sequential or tied or frozen or any(map(_is_modified, module.modules())):
        return []
    everything = module.named_modules(remove_duplicate=False)  # named_children() omits a part's second use
    return [(name, part) for name, part in everything if name and "." not in name]


def perceptron_layers(module: nn.Module) -> list[str]:
    """Return the names of the linear layers of a plain ReLU perceptron, first to last; empty for other networks."""
    parts = chain(module)
    if parts and type(parts[0][1]) is nn.Flatten and (parts[0][1].start_dim, parts[0][1].end_dim) == (1, -1):
        parts.pop(0)
    linear, relu = parts[::2], parts[1::2]
    alternate = len(linear) == len(relu) + 1 and all(type(part) is nn.ReLU for _, part in relu)
    biased = all(type(part) is nn.Linear and part.bias is not None for _, part in linear)
    return [name for name, _ in linear] if alternate and biased else []


def _is_modified(part: nn.Module) -> bool:
    """Return whether a part has hooks or a forward method of its own, and so may not compute what its class does."""
    # PyTorch has no public way to list hooks
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return any(hooks) or "forward" in vars(part)


def _check(name: str, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    if buffers := [buffer for buffer, _ in module.named_buffers()]:
        # running statistics are no parameters: averaging them is not what Algorithm 1 does
        words = f"a network without buffers, such as its {buffers[0]}; use GroupNorm or LayerNorm for BatchNorm"
        raise InputError(FIELD, name, words)
    if any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for part in module.modules()):
        # its statistics would depend on the blocks in which samples are evaluated
        raise InputError(FIELD, name, "a network without BatchNorm; use GroupNorm or LayerNorm")
    trainable = [part for _, part in module.named_modules(remove_duplicate=False) if [*part.parameters(recurse=False)]]
    if len(trainable) != len(set(trainable)):
        raise InputError(FIELD, name, "a network that has no layer in two places; functional calls mix them up")
    if not trained_parameters(module):
        raise InputError(FIELD, name, "a network with parameters to train")
    try:
        with torch.no_grad():
            scores = module.eval()(torch.zeros(2, *shape))
    except Exception as error:
        raise InputError(FIELD, name, f"a network for samples of shape {shape} ({error})") from error
    if not isinstance(scores, Tensor):
        raise InputError(FIELD, name, f"a network that gives a tensor of scores, not a {type(scores).__name__}")
    if scores.shape != (2, classes):
        raise InputError(FIELD, name, f"a network that gives {classes} scores, not {tuple(scores.shape[1:])}")
