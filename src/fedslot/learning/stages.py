"""Networks as stages that run over tiles of samples: see `tiles`.

A stage is a convolution, the maxima of 2x2 places, and ReLU; the latter two may be missing. A linear layer is a
convolution whose filters are as large as what they look at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fedslot.learning.models import Model, chain, flattens
from fedslot.learning.tiles import LANES, MOST, Integers, Records, edge

# what compiled code knows of a stage; places and sizes count floats
RECORD = np.dtype(
    [
        (name, np.int64)
        for name in (
            "outputs",  # channels
            "row",  # where its weights begin
            "begin",  # of its taps and places
            "taps",  # how many: weights of an output without its bias
            "height",  # of what comes out
            "width",
            "pool",  # 2 for maxima of 2x2 places, else 1
            "relu",
            "across",  # from one line of its inputs to the next
            "outside",  # where what comes out begins, with zeros around it
            "inset",  # from there to the first place
            "line",  # from one line of it to the next
            "channel",  # from one channel of it to the next
        )
    ]
)


@dataclass(frozen=True)
class Stage:
    """A layer by name; inputs (channels, height, width), outputs likewise."""

    layer: str
    inputs: tuple[int, int, int]
    channels: int
    filter: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    pools: bool = False
    relu: bool = False

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.channels * (self.inputs[0] * self.filter[0] * self.filter[1] + 1)

    @property
    def outputs(self) -> tuple[int, int, int]:
        height, width = (
            (side + 2 * pad - size + 1) // (1 + self.pools)
            for side, pad, size in zip(self.inputs[1:], self.padding, self.filter, strict=True)
        )
        return self.channels, height, width


@dataclass(frozen=True)
class Stages:
    """A whole network."""

    model: Model
    stages: list[Stage]

    @classmethod
    def of(cls, model: Model, shape: tuple[int, ...]) -> Stages | None:
        """Find the stages of a network for samples of some shape; none if it has anything else."""
        found, now = list[Stage](), tuple(shape)
        for name, part in chain(model.module):
            last = found[-1] if found else None
            if flattens(part):
                now = (int(np.prod(now)),)
            elif type(part) is nn.Linear and len(now) == 1 and part.bias is not None:
                inputs = last.outputs if last else (now[0], 1, 1)
                found.append(Stage(name, inputs, part.out_features, inputs[1:]))
                now = (part.out_features,)
            elif type(part) is nn.Conv2d and len(now) == 3 and _plain(part):
                (height, width), (above, beside) = part.kernel_size, map(int, part.padding)
                found.append(Stage(name, now, part.out_channels, (height, width), (above, beside)))
                now = found[-1].outputs
            elif type(part) is nn.ReLU and last:
                found[-1] = replace(last, relu=True)
            elif type(part) is nn.MaxPool2d and last and len(now) == 3 and not last.pools and _halves(part):
                found[-1] = replace(last, pools=True)
                now = found[-1].outputs
            else:
                return None
        return cls(model, found) if found else None

    @cached_property
    def layout(self) -> Layout:
        """How compiled code finds its way."""
        records, taps, places = np.zeros(len(self.stages), RECORD), list[Integers](), list[Integers]()
        row = begin = end = 0
        paddings = [*(stage.padding for stage in self.stages[1:]), (0, 0)]  # of those that come next
        for record, stage, (above, beside) in zip(records, self.stages, paddings, strict=True):
            sides = [side + 2 * pad for side, pad in zip(stage.inputs[1:], stage.padding, strict=True)]
            grid = np.arange(stage.inputs[0] * sides[0] * sides[1]).reshape(-1, *sides) * LANES
            places.append(grid[:, : stage.filter[0], : stage.filter[1]].flatten())
            taps.append(np.arange(len(places[-1])))
            channels, height, width = stage.outputs
            line = (width + 2 * beside) * LANES
            record["outputs"], record["row"], record["begin"], record["taps"] = channels, row, begin, len(taps[-1])
            record["height"], record["width"], record["pool"] = height, width, 1 + stage.pools
            record["relu"], record["across"] = stage.relu, sides[1] * LANES
            record["outside"], record["inset"] = end, above * line + beside * LANES
            record["line"], record["channel"] = line, (height + 2 * above) * line
            row, begin = row + channels * (len(taps[-1]) + 1), begin + len(taps[-1])
            end += channels * int(record["channel"])
        return Layout(records, np.concatenate(taps), np.concatenate(places), end)

    def arrange(self, rows: Tensor) -> Tensor:
        """Bring the parameters of models (R, P) into the order of the compiled code: see `tiles.product`."""
        named, parts = self.model.unflatten(rows), list[Tensor]()
        for stage in self.stages:
            weight, bias = named[f"{stage.layer}.weight"].flatten(2), named[f"{stage.layer}.bias"].unsqueeze(2)
            edges = [edge(stage.channels, group) for group in range(-(-stage.channels // MOST) + 1)]
            both = torch.cat([weight, bias], dim=2)
            parts += [both[:, first:last].mT.flatten(1) for first, last in pairwise(edges)]
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Layout:
    """What compiled code knows of a network: its stages, which weights meet which inputs, and how much comes out."""

    records: Records
    taps: Integers
    places: Integers
    room: int


def _plain(layer: nn.Conv2d) -> bool:
    """Whether a convolution goes place by place over an image with zeros around it, as most do."""
    one = (1, 1)
    alike = (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == (one, one, 1, "zeros")
    return alike and layer.bias is not None and not isinstance(layer.padding, str)


def _halves(layer: nn.MaxPool2d) -> bool:
    """Whether a part takes the maxima of 2x2 places, and does no more."""
    return repr(layer) == repr(nn.MaxPool2d(2)) and not layer.return_indices
