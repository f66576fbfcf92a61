"""Models as flat vectors: an update is a row, and a round's updates are one matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedslot.errors import InputError
from fedslot.plugins import find
from fedslot.rng import torch_seed

Factory = Callable[[tuple[int, ...], int], nn.Module]
FIELD = "training.model"


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The paper's multilayer perceptron: 50 and 25 hidden units, ReLU."""
    inputs = torch.Size(shape).numel()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 25), nn.ReLU(), nn.Linear(25, classes)
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The paper's small convolutional network: twice 8 filters 4x4 and a 2x2 maximum, then linear."""
    if len(shape) != 3 or min(shape[1:]) < 6:
        raise InputError(FIELD, "cnn", f"mlp for samples of shape {shape}; cnn takes images of 6x6 or more")
    channels, height, width = shape
    pooled = [((side - 1) // 2 - 1) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 8, 4, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 4, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * pooled[0] * pooled[1], classes),
    )


MODELS: dict[str, Factory] = {"mlp": mlp, "cnn": cnn}


class Model:
    """A network as a pure function of a flat parameter vector.

    module: the network; its own parameters serve only as a pattern.
    initial: (P,) float32, the first global model.
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        self.module = module.to(device)
        named = {name: tensor.detach() for name, tensor in module.named_parameters()}
        self.shapes = {name: tensor.shape for name, tensor in named.items()}
        self.initial = torch.cat([tensor.reshape(-1) for tensor in named.values()]).float()

    @classmethod
    def build(cls, name: str, shape: tuple[int, ...], classes: int, seed: int, device: str = "cpu") -> Model:
        """Make the model of a scenario: a known name, or a factory `package.module:factory`.

        The factory is called with (sample shape, number of classes) and returns an `nn.Module` that maps
        (batch, *shape) to (batch, classes).
        """
        factory = find(FIELD, name, MODELS)
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError):
            raise InputError("training.device", device, "a device that PyTorch finds here, e.g. cpu") from None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "initial-model"))
            module = factory(shape, classes)
        _check(name, module, shape, classes)
        return cls(module, device)

    @property
    def size(self) -> int:
        """Number of parameters, P."""
        return len(self.initial)

    @property
    def draws(self) -> bool:
        """Whether the network draws random numbers in training (dropout)."""
        return any(isinstance(part, nn.modules.dropout._DropoutNd) for part in self.module.modules())

    @property
    def convolves(self) -> bool:
        """Whether the network has convolutions."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self.module.modules())

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """View (..., P) parameters as tensors (..., *shape) by name; writing to them writes to `flat`."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: part.view(*flat.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def logits(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Class scores (batch, classes) of samples (batch, *shape)."""
        scores: Tensor = functional_call(self.module, parameters, (x,))
        return scores


def _check(name: str, module: object, shape: tuple[int, ...], classes: int) -> None:
    if not isinstance(module, nn.Module):
        raise InputError(FIELD, name, f"a factory of an nn.Module, not of a {type(module).__name__}")
    if any(True for _ in module.buffers()):
        # running statistics are no parameters: averaging them is not what Algorithm 1 does
        raise InputError(FIELD, name, "a network without buffers; use GroupNorm or LayerNorm for BatchNorm")
    if not any(True for _ in module.parameters()):
        raise InputError(FIELD, name, "a network with parameters to train")
    try:
        with torch.no_grad():
            scores = module.eval()(torch.zeros(2, *shape))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise InputError(FIELD, name, f"a network for samples of shape {shape} ({reason})") from None
    if scores.shape != (2, classes):
        raise InputError(FIELD, name, f"a network that gives {classes} scores, not {tuple(scores.shape[1:])}")
