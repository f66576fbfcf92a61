"""Compensation of stale updates: what the PS's own training would have changed since the version of an update.

Near an optimum, local training from w changes it by A (w* - w), so that a stale update misses -A (w_t - w_v). The PS
estimates this by training on its own samples: with u(w) its change of a model w,

    ps     d' = d + u(w_t) - u(w_v)     on its labels
    soft   d' = d - u(w_v -> w_t)       on its inputs, from w_v towards the predictions of w_t: no labels

Both are exact if the PS's samples are like those of the UEs, and neither has a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedslot.updates.staleness import Arrived, Staleness


class PSCompensation(Staleness):
    """Adds what the PS's own change of the model has become since the update's version: d + u(w_t) - u(w_v)."""

    def apply(self, arrived: Arrived) -> Tensor:
        own = arrived.own

        def missed(start: Tensor, version: int) -> Tensor:
            return own.train(arrived.model, arrived.round) - own.train(start, version)

        return _compensate(arrived, missed)


class SoftCompensation(Staleness):
    """Takes away what training towards the present model's predictions changes: d - u(w_v -> w_t); needs no labels."""

    damps = True

    def apply(self, arrived: Arrived) -> Tensor:
        return _compensate(arrived, lambda start, version: -arrived.own.imitate(start, arrived.model))


def _compensate(arrived: Arrived, missed: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Return the changes with what they missed; missed: returns that of a version, from its model (P,)."""
    changes = arrived.changes
    for version in set(arrived.versions.tolist()) - {arrived.round}:
        rows = torch.from_numpy(np.flatnonzero(arrived.versions == version)).to(changes.device)
        changes = changes.index_add(0, rows, missed(arrived.starts[rows[0]], version).expand(len(rows), -1))
    return changes
