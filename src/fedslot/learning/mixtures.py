"""Losses and accuracies of averages of a few models, by tiles of samples: see `tiles` and `stages`.

The first layer of an averaged perceptron is the average of the first layers, so what it makes of the samples is
computed once per model and then averaged, not once per average. The result is the same as rebuilding every
averaged model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedslot.learning.registers import LANES
from fedslot.learning.stages import Stages
from fedslot.learning.tiles import Floats, Integers, first_layers, measure
from fedslot.threads import each

PIECES, LEAST = 8, 8  # of the samples, for threads to share; tiles that a piece has at least
ROWS = 6  # models that a thread brings into order at a time
AT_ONCE = 960  # averages whose weights are in memory
KEPT = 1 << 26  # floats of tiles, or of first layers, that are kept in memory; more are made whenever they are needed

Measure = Callable[[Tensor], Tensor]


class Tiled:
    """Samples x (V, *shape) with labels y (V,) in tiles, for a network of stages."""

    def __init__(self, stages: Stages, x: Tensor, y: Tensor) -> None:
        stages.check(x, y)
        self.stages, self.x, self.y = stages, x.detach(), y.long()
        first, *behind = stages.stages
        # whether averages of what the first layers make are what those behind take in
        self.averages = first.linear and all(stage.padding == (0, 0) for stage in behind[:1])
        order = np.arange(len(y))
        if self.averages:
            order = _alike((self.x.flatten(1) != 0).numpy().astype(np.float32), order)
        tiles = -(-len(y) // LANES)
        size = -(-tiles // max(1, min(PIECES, tiles // LEAST))) * LANES
        self.parts = torch.split(torch.from_numpy(order), size)
        self._pieces = [self._cut(part) for part in self.parts] if x.numel() <= KEPT else None

    def piece(self, number: int) -> _Piece:
        """Some of the samples."""
        return self._pieces[number] if self._pieces else self._cut(self.parts[number])

    def _cut(self, part: Tensor) -> _Piece:
        return _Piece.of(self.stages.pad(self.x[part]), self.y[part])

    def mixtures(self, rows: Tensor) -> Measure:
        """Prepare to measure averages of models (R, P)."""
        ordered = torch.cat(each(self.stages.arrange, torch.split(rows, ROWS)))
        width = self.stages.stages[0].size if self.averages else 0
        first, behind = ordered[:, :width].contiguous().numpy().reshape(-1), ordered[:, width:]
        models, units = len(rows) if self.averages else 0, self.stages.stages[0].channels

        def inputs(piece: _Piece) -> Floats:
            return first_layers(first, models, units, *piece.lit) if models else piece.x

        numbers = range(len(self.parts))
        few = models and models * units * len(self.y) <= KEPT
        known = each(lambda number: inputs(self.piece(number)), numbers) if few else None

        def measure_some(weights: Tensor) -> Tensor:
            parameters = (weights @ behind).numpy().reshape(-1)

            def on(number: int) -> NDArray[np.float64]:
                piece = self.piece(number)
                inside = known[number] if known else inputs(piece)
                return measure(*self.stages.layout, inside, piece.y, models, weights.numpy(), parameters)

            found = np.sum(each(on, numbers), axis=0)
            return torch.from_numpy(found.T / len(self.y))

        return lambda weights: torch.cat([measure_some(some) for some in torch.split(weights, AT_ONCE)], dim=1)


@dataclass(frozen=True)
class _Piece:
    """Some tiles.

    x: (tiles, features, LANES) samples, images with zeros around them.
    y: (tiles, LANES) labels, -1 where there is no sample.
    """

    x: Floats
    y: Integers

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> _Piece:
        """Make one of samples (n, *shape) and labels (n,)."""
        missing = -len(y) % LANES
        tiles = nn.functional.pad(x.flatten(1), (0, 0, 0, missing)).view(-1, LANES, x[0].numel()).mT
        return cls(
            np.ascontiguousarray(tiles.numpy()).reshape(-1), nn.functional.pad(y, (0, missing), value=-1).numpy()
        )

    @cached_property
    def lit(self) -> tuple[Floats, Integers, Integers, Integers]:
        """Only those features of each tile that are not zero: the samples, which features, their places, and starts."""
        tiles = self.x.reshape(len(self.y) // LANES, -1, LANES)
        lit = tiles.any(axis=2)
        taps = np.ascontiguousarray(np.nonzero(lit)[1])
        starts = np.concatenate([[0], np.cumsum(lit.sum(axis=1))])
        return tiles[lit].reshape(-1), taps, np.arange(len(taps)) * LANES, starts


def _alike(lit: Floats, rows: Integers) -> Integers:
    """Sort samples such that those of a tile are zero in the same features.

    Along the direction in which they differ most (by power iteration); then each quarter along its own, and so on. All
    numbers are whole and sums of them below 2^24, so float32 has them exactly, in whatever order they are added.
    """
    if len(rows) <= LANES:
        return rows
    some = lit[rows]
    direction: Floats = np.asarray(np.random.default_rng(0).integers(-9, 10, some.shape[1]), np.float32)
    most = min(1000, 2**24 // max(some.shape))
    for _ in range(3):
        direction = _whole(_whole(some @ direction, most) @ some, most)
    order = rows[np.argsort(some @ direction, kind="stable")]
    size = -(-len(rows) // (4 * LANES)) * LANES
    parts = [order[first : first + size] for first in range(0, len(rows), size)]
    return order if len(parts) == 1 else np.concatenate([_alike(lit, part) for part in parts])


def _whole(values: Floats, most: int) -> Floats:
    """Values around their middle, as whole numbers of this size at most."""
    around = values - (values.max() + values.min()) / 2
    largest = float(np.abs(around).max())
    whole: Floats = np.rint(around * (most / largest if largest else 0)).astype(np.float32)
    return whole
