"""Partitions of benchmarks: equal random shares, and the two kinds of label skew of NIID-Bench (Li et al. 2022)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.data.partition import check_classes
from fedslot.support.errors import InputError

Indices = NDArray[np.int64]

TRIES = 1000  # of drawing shares anew, until each UE has enough samples


def iid(labels: NDArray[Any], ues: int, rng: np.random.Generator) -> list[Indices]:
    """Return equal shares of the samples in random order, whatever their labels are."""
    if ues > len(labels):
        raise InputError("data.ues", ues, f"at most {len(labels)}, the training samples")
    return np.array_split(rng.permutation(len(labels)), ues)


def label_quantity(
    labels: Indices, ues: int, rng: np.random.Generator, *, labels_per_ue: Annotated[int, Field(ge=1, le=10**6)] = 2
) -> list[Indices]:
    """Return shares in which each UE has samples of `labels_per_ue` labels; UEs with a label have equally many of it.

    UE k has label k modulo the number of labels, so that no label is left out where there are enough UEs; its other
    labels are drawn at random.
    """
    check_classes(labels, "label-quantity")
    classes = np.unique(labels)
    if labels_per_ue > len(classes):
        raise InputError("labels_per_ue", labels_per_ue, f"at most {len(classes)}, the number of labels")
    owns = np.zeros((ues, len(classes)), dtype=bool)
    for ue in range(ues):
        first = ue % len(classes)
        others = np.delete(np.arange(len(classes)), first)
        owns[ue, [first, *rng.choice(others, labels_per_ue - 1, replace=False)]] = True
    shares: list[list[Indices]] = [[] for _ in range(ues)]
    for number, label in enumerate(classes):
        owners, samples = np.flatnonzero(owns[:, number]), rng.permutation(np.flatnonzero(labels == label))
        if len(owners) > len(samples):
            allowed = f"fewer: {len(owners)} UEs have label {label}, of which there are {len(samples)} samples"
            raise InputError("data.ues", ues, allowed)
        for owner, part in zip(owners.tolist(), np.array_split(samples, max(1, len(owners))), strict=False):
            shares[owner].append(part)
    return [np.concatenate(parts) for parts in shares]


def label_dirichlet(
    labels: Indices,
    ues: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Field(gt=0, le=1e9)] = 0.5,
    least: Annotated[int, Field(ge=1, le=10**9)] = 10,
) -> list[Indices]:
    """Return shares in which the samples of each label are divided by proportions from Dirichlet(alpha) over the UEs.

    A UE that already has more than its equal share of all samples gets none of the next label. All is drawn anew until
    each UE has at least `least` samples.
    """
    check_classes(labels, "label-dirichlet")
    if least * ues > len(labels):
        raise InputError("least", least, f"at most {len(labels) // ues}, the samples of an equal share")
    by_label = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(TRIES):
        shares: list[list[Indices]] = [[] for _ in range(ues)]
        sizes = np.zeros(ues, dtype=np.int64)
        for samples in by_label:
            proportions = rng.dirichlet(np.full(ues, alpha)) * (sizes * ues < len(labels))
            if proportions.sum() == 0:  # a tiny alpha gives zeros
                break
            cuts = (np.cumsum(proportions / proportions.sum())[:-1] * len(samples)).astype(np.int64)
            for share, part in zip(shares, np.split(rng.permutation(samples), cuts), strict=True):
                share.append(part)
            sizes += np.diff(cuts, prepend=0, append=len(samples))
        if sizes.min() >= least and sizes.sum() == len(labels):
            return [np.concatenate(parts) for parts in shares]
    allowed = f"less: {TRIES} draws with alpha {alpha:g} gave not all of {ues} UEs so many samples"
    raise InputError("least", least, allowed)
