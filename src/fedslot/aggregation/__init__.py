"""Aggregation: how the PS combines received updates into the next model, found by name or by `package.module:Name`.

base.py             the interface: `Updates` in, `Aggregate` out, state carried along
average.py          data-weighted average, ModelAverage of Algorithm 1
fedavgm.py          server momentum
fedbuff.py          a buffer of updates
fedadam.py          server Adam
fedyogi.py          server Yogi
median.py           coordinate-wise median
trimmed_mean.py     coordinate-wise trimmed mean
krum.py             Krum and Multi-Krum
filtered.py         weights by noise, a filter by the layers' inputs, larger steps
trust.py            which updates `filtered` accepts, and how long each may be
own_training.py     the PS as one more UE: how much its own update counts in `filtered`
"""

from __future__ import annotations

from typing import Any

from fedslot.aggregation.average import average
from fedslot.aggregation.base import Aggregate, Aggregation, Updates, noise_estimates
from fedslot.messages import NoState
from fedslot.parts import kinds
from fedslot.parts.kind import Kind

__all__ = ["AGGREGATIONS", "Aggregate", "Aggregation", "NoState", "Updates", "average", "noise_estimates"]

AGGREGATIONS: Kind[Aggregation[Any]] = kinds.AGGREGATIONS
