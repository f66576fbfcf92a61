"""Partition of the training samples among UEs: Dirichlet label mixes, power-law or equal sizes, or as given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedslot.support.errors import InputError, shorten
from fedslot.support.rng import PARTITION, SHARE, SIZES, stream

RAKING_SWEEPS = 50

Sizes = Literal["power-law", "equal"]


@dataclass(frozen=True)
class Partition:
    """A partition of the training samples: every sample belongs to one UE.

    samples: (n,) indices, those of UE 0 first, then those of UE 1, ... offsets: (K + 1,) where each UE's begin and end.
    """

    samples: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, owners: NDArray[np.int64]) -> Partition:
        """Return the partition in which each sample belongs to its owner, a UE from 0; owners: (n,)."""
        return cls(np.argsort(owners, kind="stable"), np.concatenate([[0], np.bincount(owners).cumsum()]))

    def share(self, ue: int) -> NDArray[np.int64]:
        """Return the indices of the training samples of one UE."""
        return self.samples[self.offsets[ue] : self.offsets[ue + 1]]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(K,) number of training samples of each UE."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Draws:
    """Shares that UEs draw independently, so that two UEs may hold the same sample; for any number of UEs.

    A share is drawn on demand, from the UE's own random stream; UEs that are never asked for cost nothing.

    by_label: indices of the training samples of each label. sizes: (K,) number of training samples of each UE.
    """

    by_label: list[NDArray[np.int64]]
    sizes: NDArray[np.int64]
    alpha: float
    seed: int

    def share(self, ue: int) -> NDArray[np.int64]:
        """Return the indices of the training samples of one UE, without repetition."""
        rng = stream(self.seed, SHARE, ue)
        mix = rng.dirichlet(np.full(len(self.by_label), self.alpha))
        counts = rng.multinomial(self.sizes[ue], mix)
        pairs = zip(self.by_label, counts, strict=True)
        samples = np.concatenate([rng.choice(own, min(n, len(own)), replace=False) for own, n in pairs])
        if lacking := int(self.sizes[ue]) - len(samples):
            others = np.setdiff1d(np.concatenate(self.by_label), samples)
            samples = np.concatenate([samples, rng.choice(others, lacking, replace=False)])
        return samples


Shares = Partition | Draws
"""Which training samples each UE holds: `share(ue)` has their indices, `sizes` (K,) their numbers."""


def draw(labels: NDArray[np.int64], ues: int, alpha: float, sizes: Sizes, mean_size: int, seed: int) -> Draws:
    """Return shares that UEs draw: a label mix from Dirichlet(alpha), and `mean_size` samples on average.

    labels: (n,) classes from 0. A UE that wants more samples of a label than there are gets all of them, and the rest
    from the other labels; none has more than n.
    """
    totals = np.bincount(labels)
    by_label = [np.flatnonzero(labels == label) for label in np.flatnonzero(totals)]
    weight = _weights(ues, sizes, stream(seed, SIZES))
    # the density 3x^2 has the mean 3/4
    scale = mean_size * (4 / 3 if sizes == "power-law" else 1)
    return Draws(by_label, np.clip(np.rint(scale * weight), 1, len(labels)).astype(np.int64), alpha, seed)


def dirichlet(
    labels: NDArray[np.int64], ues: int, seed: int, alpha: float, sizes: Sizes, samples_per_ue: int | None, /
) -> Shares:
    """Return shares with label mixes from Dirichlet(`data.alpha`), by `data.sizes` and `data.samples_per_ue`."""
    check_classes(labels, "dirichlet")
    if samples_per_ue is None:
        return split(labels, ues, alpha, sizes, seed)
    return draw(labels, ues, alpha, sizes, samples_per_ue, seed)


def own_shares(name: str, divided: object, samples: int, ues: int) -> Partition:
    """Return the shares that the user's own partition `name` made of the training samples.

    divided: (n,) the UE that has each sample, -1 for none; or a list of K arrays of indices.
    """
    if isinstance(divided, np.ndarray) and divided.shape == (samples,) and divided.dtype.kind in "iu":
        by_ue = [np.flatnonzero(divided == ue) for ue in range(ues)]
        right = divided.min() >= -1 and divided.max() < ues
    else:
        by_ue = [np.asarray(share) for share in divided] if isinstance(divided, list | tuple) else []
        right = len(by_ue) == ues and all(
            share.ndim == 1 and share.dtype.kind in "iu" and len(share) and 0 <= share.min() <= share.max() < samples
            for share in by_ue
        )
    if not right or not all(map(len, by_ue)):
        allowed = f"a function that gives each of {ues} UEs some of {samples} samples: an array of owners "
        raise InputError("data.partition", name, f"{allowed}or a list of arrays of indices, not {shorten(divided)}")
    samples_by_ue = np.concatenate(by_ue).astype(np.int64, copy=False)
    return Partition(samples_by_ue, np.cumsum([0, *map(len, by_ue)]))


def check_classes(labels: NDArray[Any], name: str) -> None:
    """Refuse a partition by classes of samples that have numbers as targets."""
    if labels.dtype.kind == "f":
        allowed = "iid, or your own, since the targets are numbers and not classes; or give the data ue_train"
        raise InputError("data.partition", name, allowed)


def check_ues(ues: int, samples: int) -> None:
    """Refuse more UEs than there are training samples to divide among them."""
    if ues > samples:
        allowed = f"at most {samples}, the training samples, unless data.samples_per_ue lets UEs share them"
        raise InputError("data.ues", ues, allowed)


def split(labels: NDArray[np.int64], ues: int, alpha: float, sizes: Sizes, seed: int) -> Partition:
    """Assign every training sample to one UE.

    Each UE draws a label mix from Dirichlet(alpha) and a size (density 3x^2 on (0, 1), or equal). The available
    samples seldom allow both exactly, so the expected table (UE x label) is raked to the class totals, which uses
    all samples, and then rounded; sizes and mixes are met approximately.

    labels: (n,) classes from 0.
    """
    check_ues(ues, len(labels))
    rng = stream(seed, PARTITION)
    totals = np.bincount(labels)
    weight = _weights(ues, sizes, rng)
    mixes = rng.dirichlet(np.full(len(totals), alpha), size=ues)
    counts = _round(_rake(mixes, weight / weight.sum() * len(labels), totals), totals)
    _fill_empty(counts)

    samples = np.empty(len(labels), dtype=np.int64)
    offsets = np.concatenate([[0], counts.sum(axis=1).cumsum()])
    for label in range(len(totals)):
        # each UE's samples are ordered by label
        starts, lengths = offsets[:-1] + counts[:, :label].sum(axis=1), counts[:, label]
        indices = np.arange(totals[label]) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)
        samples[indices] = rng.permutation(np.flatnonzero(labels == label))
    return Partition(samples, offsets)


def _weights(ues: int, sizes: Sizes, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return relative sizes (K,): with density 3x^2 on (0, 1), or all equal."""
    return np.cbrt(rng.random(ues)) if sizes == "power-law" else np.ones(ues)


def _rake(mixes: NDArray[np.float64], sizes: NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scale rows to the sizes and columns to the totals alternately; columns come last and are exact."""
    table = mixes + 1e-12  # a tiny alpha gives zeros, and every class needs at least one UE
    for _ in range(RAKING_SWEEPS):
        table *= (sizes / table.sum(axis=1))[:, None]
        # a class without samples has zero in both
        table *= totals / np.maximum(table.sum(axis=0), np.finfo(float).tiny)
    return table


def _round(table: NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round to integers by largest remainder in each column, so that the columns keep their totals."""
    counts = np.floor(table).astype(np.int64)
    for label, left in enumerate(totals - counts.sum(axis=0)):
        remainder = table[:, label] - counts[:, label]
        counts[np.argsort(-remainder, kind="stable")[:left], label] += 1
    return counts


def _fill_empty(counts: NDArray[np.int64]) -> None:
    """Give each UE without samples one sample of the UE that has most, in place."""
    for ue in np.flatnonzero(counts.sum(axis=1) == 0):
        richest = counts.sum(axis=1).argmax()
        label = counts[richest].argmax()
        counts[richest, label] -= 1
        counts[ue, label] += 1
