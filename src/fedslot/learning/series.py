"""Small networks for time series: samples (1, time, channels), as `.npz` files with inputs (n, time, channels) give."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from fedslot.learning.models import FIELD
from fedslot.support.errors import InputError

Size = Annotated[int, Field(ge=1, le=4096)]
KERNEL = 5  # steps of time


class TimeFirst(nn.Module):
    """Series (b, 1, time, channels) as images (b, channels, time, 1), for plain convolutions over time."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 3, 2, 1)


def cnn1d(shape: tuple[int, ...], classes: int, *, filters: Size = 16) -> nn.Module:
    """Return a convolutional network over time: two convolutions of 5 steps, each with ReLU and max pooling of 2 steps.

    filters: of the first convolution; the second has twice as many.
    """
    time, channels = _series("cnn1d", shape, least=4)
    return nn.Sequential(
        TimeFirst(),
        nn.Conv2d(channels, filters, (KERNEL, 1), padding=(KERNEL // 2, 0)),
        nn.ReLU(),
        nn.MaxPool2d((2, 1)),
        nn.Conv2d(filters, 2 * filters, (KERNEL, 1), padding=(KERNEL // 2, 0)),
        nn.ReLU(),
        nn.MaxPool2d((2, 1)),
        nn.Flatten(),
        nn.Linear(2 * filters * (time // 2 // 2), classes),
    )


class GRU(nn.Module):
    """A gated recurrent unit over time, whose last state a linear layer reads."""

    def __init__(self, channels: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x.squeeze(1))
        outputs: Tensor = self.out(states[:, -1])
        return outputs


def gru(shape: tuple[int, ...], classes: int, *, hidden: Size = 32) -> nn.Module:
    """Return a gated recurrent unit with `hidden` units, and a linear layer on its last state."""
    _, channels = _series("gru", shape, least=1)
    return GRU(channels, hidden, classes)


def _series(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int]:
    """Return the steps of time and the channels of a sample; refuse samples that are no series, or shorter ones."""
    if len(shape) != 3 or shape[0] != 1 or shape[1] < least:
        kind = f"a file with inputs (n, time, channels), {least} steps or more"
        raise InputError(FIELD, name, f"mlp or cnn for samples of shape {shape}; {name} takes series: {kind}")
    return shape[1], shape[2]
