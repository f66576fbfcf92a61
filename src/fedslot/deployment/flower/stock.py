"""A stock strategy of Flower as the parameter server's aggregation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from torch import Tensor

from fedslot.aggregation import Aggregate, Updates
from fedslot.deployment.flower.arrays import to_arrays, to_flat
from fedslot.learning.models import Model

Stock = Callable[[int, list[Message]], tuple[ArrayRecord | None, MetricRecord | None]]

# Where Flower's strategies keep what they carry from round to round; there is no common way to ask them for it.
HELD = ("m_t", "v_t", "momentum_vector")  # dictionaries of arrays (FedAdagrad, FedAdam, FedYogi), a list (FedAvgM)
MODEL = "current_arrays"  # the present model; `configure_train` sets it again if it is None


@dataclass(frozen=True, eq=False)
class Moments:
    """What a stock strategy carries from round to round.

    held: (3, P) the arrays that `HELD` names, flat; zeros where the strategy has none.
    begun: (3,) whether each was set: Flower's strategies begin with none.
    """

    held: NDArray[np.float32]
    begun: NDArray[np.bool_]


class StockAggregation:
    """Aggregates by a stock strategy.

    strategy: whose moments are carried from round to round. aggregate: its `aggregate_train`.
    sent: the message to each UE of the frame, to which its update is the reply. round: of that frame.
    metrics: the UEs' metrics of the last round, aggregated by the strategy.
    """

    def __init__(self, strategy: FedAvg, aggregate: Stock, model: Model) -> None:
        self.strategy, self.aggregate, self.model = strategy, aggregate, model
        self.sent: dict[int, Message] = {}
        self.round = 0
        self.metrics: dict[str, Any] = {}

    def init(self, model: Tensor, ues: int) -> Moments:
        return Moments(np.zeros((len(HELD), len(model)), dtype=np.float32), np.zeros(len(HELD), dtype=bool))

    def apply(self, state: Moments, updates: Updates) -> Aggregate[Moments]:
        self._set_moments(state)
        try:
            arrays, metrics = self.aggregate(self.round + 1, self._replies(updates))
            new = updates.start if arrays is None else to_flat(self.model, arrays)
            after = self._moments(self.init(updates.start, 0))
        finally:
            self._set(MODEL, None)
        self.metrics = dict(metrics or {})
        return Aggregate(new, new, after)

    def _replies(self, updates: Updates) -> list[Message]:
        """Return the updates as messages, with the sizes that count and the metrics that all UEs have."""
        common = set.intersection(*(set(metrics) for metrics in updates.metrics))
        replies = []
        for ue, flat, size, sent in zip(
            updates.ues.tolist(), updates.local, updates.sizes.tolist(), updates.metrics, strict=True
        ):
            metrics = {name: sent[name] for name in sorted(common)} | {self.strategy.weighted_by_key: size}
            arrays = to_arrays(self.model, flat)
            content = RecordDict({self.strategy.arrayrecord_key: arrays, "metrics": MetricRecord(metrics)})
            replies.append(Message(content, reply_to=self.sent[ue]))
        return replies

    def _moments(self, blank: Moments) -> Moments:
        """Return the strategy's moments as a state."""
        for row, name in enumerate(HELD):
            if parts := getattr(self.strategy, name, None):
                arrays = [parts[key] for key in self.model.shapes] if isinstance(parts, dict) else parts
                blank.held[row] = np.concatenate([np.ravel(array) for array in arrays])
                blank.begun[row] = True
        return blank

    def _set_moments(self, state: Moments) -> None:
        for name, flat, begun in zip(HELD, state.held, state.begun.tolist(), strict=True):
            named = self.model.unflatten(torch.from_numpy(flat.copy()))
            arrays = {key: named[key].numpy() for key in self.model.shapes}
            value = list(arrays.values()) if name == "momentum_vector" else arrays
            self._set(name, value if begun else None)

    def _set(self, name: str, value: object) -> None:
        if hasattr(self.strategy, name):
            setattr(self.strategy, name, value)
