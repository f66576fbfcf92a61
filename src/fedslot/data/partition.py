"""How the UEs share the training samples: Dirichlet label mixes, power-law or equal sizes, no sample twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.errors import InputError
from fedslot.rng import stream

RAKING_SWEEPS = 50


@dataclass(frozen=True)
class Partition:
    """Who owns which training samples.

    samples: (n,) indices of training samples, those of UE 0 first, then those of UE 1, ...
    offsets: (K + 1,) where each UE's samples begin and end.
    """

    samples: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def share(self, ue: int) -> NDArray[np.int64]:
        """Indices of the training samples of one UE."""
        return self.samples[self.offsets[ue] : self.offsets[ue + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(K,) number of training samples of each UE."""
        return np.diff(self.offsets)


def split(
    labels: NDArray[np.int64],
    ues: int,
    alpha: float,
    sizes: Literal["power-law", "equal"],
    seed: int,
) -> Partition:
    """Deal every training sample to one of the UEs.

    Each UE draws a label mix from Dirichlet(alpha) and a size (density 3x^2 on (0, 1), or equal). The two
    can seldom be met exactly with the samples at hand, so the expected table (UE x label) is raked to the
    class totals, which uses all samples, and then rounded; sizes and mixes are met as nearly as that allows.

    labels: (n,) classes from 0.
    """
    if ues > len(labels):
        raise InputError("data.ues", ues, f"at most {len(labels)}, the number of training samples")
    rng = stream(seed, "partition")
    totals = np.bincount(labels)
    weight = np.cbrt(rng.random(ues)) if sizes == "power-law" else np.ones(ues)
    mixes = rng.dirichlet(np.full(len(totals), alpha), size=ues)
    counts = _whole(_rake(mixes, weight / weight.sum() * len(labels), totals), totals)
    _feed_the_empty(counts)

    samples = np.empty(len(labels), dtype=np.int64)
    offsets = np.concatenate([[0], counts.sum(axis=1).cumsum()])
    for label in range(len(totals)):
        # within each UE's stretch, its samples of this label stand behind those of the labels before
        starts = offsets[:-1] + counts[:, :label].sum(axis=1)
        places = _ranges(starts, counts[:, label])
        samples[places] = rng.permutation(np.flatnonzero(labels == label))
    return Partition(samples, offsets)


def _rake(mixes: NDArray[np.float64], sizes: NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scale rows to the sizes and columns to the totals in turn; the columns come last and are exact."""
    table = mixes + 1e-12  # a tiny alpha gives zeros; no class may be left without a taker
    for _ in range(RAKING_SWEEPS):
        table *= (sizes / table.sum(axis=1))[:, None]
        # a class without samples has zero in both
        table *= totals / np.maximum(table.sum(axis=0), np.finfo(float).tiny)
    return table


def _whole(table: NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round to whole samples, column by column by largest remainder, so that the columns keep their totals."""
    counts = np.floor(table).astype(np.int64)
    for label, left in enumerate(totals - counts.sum(axis=0)):
        remainder = table[:, label] - counts[:, label]
        counts[np.argsort(-remainder, kind="stable")[:left], label] += 1
    return counts


def _feed_the_empty(counts: NDArray[np.int64]) -> None:
    """Give each UE without samples one from the UE that has most, in place."""
    for ue in np.flatnonzero(counts.sum(axis=1) == 0):
        richest = counts.sum(axis=1).argmax()
        label = counts[richest].argmax()
        counts[richest, label] -= 1
        counts[ue, label] += 1


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate `range(start, start + length)` for all pairs."""
    ends = lengths.cumsum()
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
