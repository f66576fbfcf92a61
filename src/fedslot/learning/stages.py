"""Networks as stages that run over tiles of samples: see `tiles`.

A stage is a convolution, the maxima of 2x2 places, and ReLU; the latter two may be missing. A linear layer is a
convolution whose filters are as large as what they look at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedslot.learning.models import Model, chain, flattens
from fedslot.learning.registers import LANES
from fedslot.learning.tiles import MOST, Integers, Records, edge

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
            "at",  # where its inputs begin
            "across",  # from one line of its inputs to the next
            "outside",  # where what comes out begins, with zeros around it
            "inset",  # from there to the first place
            "line",  # from one line of it to the next
            "channel",  # from one channel of it to the next
        )
    ]
)


@dataclass(frozen=True)
class Grid:
    """Where channels of images lie in a workspace, with zeros around them. Counts floats."""

    channels: int
    height: int
    width: int
    before: tuple[int, int] = (0, 0)  # zeros above and left of an image
    behind: tuple[int, int] = (0, 0)  # below and right of it
    start: int = 0

    @property
    def line(self) -> int:
        """From one line to the next."""
        return (self.before[1] + self.width + self.behind[1]) * LANES

    @property
    def channel(self) -> int:
        """From one channel to the next."""
        return (self.before[0] + self.height + self.behind[0]) * self.line

    @property
    def end(self) -> int:
        return self.start + self.channels * self.channel

    def places(self, height: int, width: int) -> Integers:
        """What a filter sees that lies at the start: (channels, height, width)."""
        c, y, x = np.ogrid[: self.channels, :height, :width]
        found: Integers = c * self.channel + y * self.line + x * LANES
        return found


def _in_a_row(grids: list[Grid]) -> list[Grid]:
    """One after the other in a workspace."""
    ends = np.cumsum([0, *(grid.end for grid in grids)])
    return [replace(grid, start=int(start)) for grid, start in zip(grids, ends, strict=False)]


class _Table:
    """Collects records, and the places that they refer to."""

    def __init__(self) -> None:
        self.row, self.places, self._records = 0, list[Integers](), list[tuple[int, ...]]()

    def add(
        self, source: Grid, places: Integers, target: Grid, pool: int = 1, relu: bool = False, at: int | None = None
    ) -> None:
        """A stage from one grid to another, whose filters see some places of it, from `at` on."""
        fields = {
            "outputs": target.channels,
            "row": self.row,
            "begin": sum(map(len, self.places)),
            "taps": places.size,
            "height": target.height,
            "width": target.width,
            "pool": pool,
            "relu": int(relu),
            "at": source.start if at is None else at,
            "across": source.line,
            "outside": target.start,
            "inset": target.before[0] * target.line + target.before[1] * LANES,
            "line": target.line,
            "channel": target.channel,
        }
        self._records.append(tuple(fields[name] for name in RECORD.names or ()))
        self.places.append(places.flatten())
        self.row += target.channels * (places.size + 1)

    @property
    def records(self) -> Records:
        return np.array(self._records, RECORD)

    @property
    def taps(self) -> Integers:
        """Which weight of an output meets which place: one after the other."""
        return np.concatenate([np.arange(len(places)) for places in self.places])


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
    def linear(self) -> bool:
        """Whether the filters see all there is at once."""
        return self.filter == self.inputs[1:] and self.padding == (0, 0)

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

    @property
    def steep(self) -> Grid:
        """Outputs before their maxima, and as many zeros around them as filters see that run over them backwards."""
        _, height, width = self.outputs
        sides = height * (1 + self.pools), width * (1 + self.pools)
        if self.linear:
            return Grid(self.channels, *sides)
        before = [max(0, size - 1 - pad) for size, pad in zip(self.filter, self.padding, strict=True)]
        reach = [side + pad for side, pad in zip(self.inputs[1:], self.padding, strict=True)]
        behind = [max(0, there - side) for there, side in zip(reach, sides, strict=True)]
        return Grid(self.channels, *sides, (before[0], before[1]), (behind[0], behind[1]))


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
            elif type(part) is nn.Linear and now == (part.in_features,):
                inputs = last.outputs if last else (now[0], 1, 1)
                found.append(Stage(name, inputs, part.out_features, inputs[1:]))
                now = (part.out_features,)
            elif type(part) is nn.Conv2d and len(now) == 3 and now[0] == part.in_channels and _plain(part):
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
        names = {f"{stage.layer}.{kind}" for stage in found for kind in ("weight", "bias")}
        fits = all(min(stage.outputs) > 0 for stage in found) and names == set(model.shapes)
        # scores are the channels of a single place
        return cls(model, found) if found and fits and now == (found[-1].channels,) else None

    @cached_property
    def grids(self) -> list[Grid]:
        """Where the inputs of each stage lie, which are the outputs of the one before, and last the scores."""
        paddings = [*(stage.padding for stage in self.stages), (0, 0)]
        sizes = [self.stages[0].inputs, *(stage.outputs for stage in self.stages)]
        return _in_a_row([Grid(*size, padding, padding) for size, padding in zip(sizes, paddings, strict=True)])

    @cached_property
    def layout(self) -> Layout:
        """How compiled code finds its way."""
        table = _Table()
        for stage, (source, target) in zip(self.stages, pairwise(self.grids), strict=True):
            table.add(source, source.places(*stage.filter), target, 1 + stage.pools, stage.relu)
        return Layout(table.records, table.taps, np.concatenate(table.places), self.grids[-1].end)

    @cached_property
    def course(self) -> Course:
        """How compiled code finds its way there and back again."""
        table, sources = _Table(), list[Tensor]()
        steep = _in_a_row([stage.steep for stage in self.stages])
        for stage, source, target in zip(self.stages, self.grids, steep, strict=False):
            table.add(source, source.places(*stage.filter), target)
        table.row = 0
        numbered = self.model.unflatten(self._places)
        for stage, source, target in zip(self.stages, steep, self.grids, strict=False):
            weight = numbered[f"{stage.layer}.weight"]
            if stage.linear:  # each input is an output of its own
                every = Grid(int(np.prod(stage.inputs)), 1, 1, start=target.start)
                weights = weight.flatten(1).T
                table.add(source, source.places(1, 1), every)
            else:  # the filters run backwards over the slopes
                weights = weight.transpose(0, 1).flatten(1)
                y, x = (max(0, pad + 1 - size) for pad, size in zip(stage.padding, stage.filter, strict=True))
                places = source.places(*stage.filter)[:, ::-1, ::-1]
                table.add(source, places, target, at=source.start + y * source.line + x * LANES)
            sources.append(_by_group(nn.functional.pad(weights, (0, 1), value=-1).unsqueeze(0)).flatten())
        wide, turned = np.split(table.records, 2)
        places, rooms = np.concatenate(table.places), np.array([steep[-1].end, self.grids[-1].end])
        return Course(wide, turned, table.taps, places, torch.cat(sources).numpy(), rooms)

    def arrange(self, rows: Tensor) -> Tensor:
        """Bring the parameters of models (R, P) into the order of the compiled code: see `tiles.product`."""
        named = self.model.unflatten(rows)
        return torch.cat(
            [
                _by_group(torch.cat([named[f"{layer}.weight"].flatten(2), named[f"{layer}.bias"].unsqueeze(2)], dim=2))
                for layer in (stage.layer for stage in self.stages)
            ],
            dim=1,
        )

    def restore(self, rows: Tensor) -> Tensor:
        """Bring parameters (R, P) back into the order of the model."""
        return rows[:, self._places]

    @cached_property
    def _places(self) -> Tensor:
        """Where each parameter (P,) comes to lie in the order of the compiled code."""
        return torch.argsort(self.arrange(torch.arange(self.model.size).unsqueeze(0)).squeeze(0))

    def check(self, x: Tensor, y: Tensor) -> None:
        """Refuse what compiled code would read and write beside its arrays for."""
        classes = self.stages[-1].channels
        if not 0 < len(x) == len(y):
            raise ValueError(f"there must be as many labels as samples, not {len(y)} for {len(x)}")
        if not ((y >= 0) & (y < classes)).all():
            raise ValueError(f"labels must be from 0 to {classes - 1}, the classes of the network")

    def pad(self, x: Tensor) -> Tensor:
        """Samples (n, *shape) as images (n, channels, height, width), with zeros around them for the first stage."""
        (height, width), inputs = self.stages[0].padding, self.stages[0].inputs
        return nn.functional.pad(x.reshape(-1, *inputs), (width, width, height, height))


def _by_group(matrices: Tensor) -> Tensor:
    """Weights (R, outputs, inputs) in the order of `tiles.product`: (R, outputs * inputs)."""
    outputs = matrices.shape[1]
    edges = [edge(outputs, group) for group in range(-(-outputs // MOST) + 1)]
    return torch.cat([matrices[:, first:last].mT.flatten(1) for first, last in pairwise(edges)], dim=1)


class Layout(NamedTuple):
    """What compiled code knows of a network: its stages, which weights meet which inputs, and how much comes out."""

    records: Records
    taps: Integers
    places: Integers
    room: int


class Course(NamedTuple):
    """What it knows besides for training: see `tiles.descend`."""

    wide: Records
    turned: Records
    taps: Integers
    places: Integers
    sources: Integers
    rooms: Integers


def _plain(layer: nn.Conv2d) -> bool:
    """Whether a convolution goes place by place over an image with zeros around it, as most do."""
    one = (1, 1)
    alike = (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == (one, one, 1, "zeros")
    return alike and layer.bias is not None and not isinstance(layer.padding, str)


def _halves(layer: nn.MaxPool2d) -> bool:
    """Whether a part takes the maxima of 2x2 places, and does no more."""
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    pairs = tuple((size, size) if isinstance(size, int) else tuple(size) for size in sizes)
    return pairs == ((2, 2), (2, 2), (0, 0), (1, 1)) and not (layer.ceil_mode or layer.return_indices)
