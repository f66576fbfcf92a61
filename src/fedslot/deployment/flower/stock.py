"""A stock strategy of Flower as the parameter server's aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from torch import Tensor

from fedslot.deployment.aggregation import Received
from fedslot.deployment.flower.arrays import to_arrays, to_flat
from fedslot.learning.models import Model

Aggregate = Callable[[int, list[Message]], tuple[ArrayRecord | None, MetricRecord | None]]

# Where Flower's strategies keep what they carry from round to round; there is no common way to ask them for it.
NAMED = ("m_t", "v_t")  # FedAdagrad, FedAdam, FedYogi: dictionaries of arrays
LISTED = ("momentum_vector",)  # FedAvgM: a list of arrays
MODEL = "current_arrays"  # the present model; `configure_train` sets it again if it is None


class StockAggregation:
    """Aggregates by a stock strategy.

    strategy: whose moments are carried from round to round. aggregate: its `aggregate_train`.
    sent: the message to each UE of the frame, to which its update is the reply.
    metrics: the UEs' metrics of the last round, aggregated by the strategy.
    """

    def __init__(self, strategy: FedAvg, aggregate: Aggregate, model: Model) -> None:
        self.strategy, self.aggregate, self.model = strategy, aggregate, model
        self.sent: dict[int, Message] = {}
        self.metrics: dict[str, Any] = {}

    def __call__(self, model: Tensor, received: Received, round: int) -> tuple[Tensor, Tensor]:
        arrays, metrics = self.aggregate(round + 1, self._replies(received))
        self.metrics = dict(metrics or {})
        new = model if arrays is None else to_flat(self.model, arrays)
        return new, new

    def _replies(self, received: Received) -> list[Message]:
        """Return the updates as messages, with the sizes that count and the metrics that all UEs have."""
        common = set.intersection(*(set(metrics) for metrics in received.metrics))
        replies = []
        for ue, flat, size, found in zip(
            received.ues.tolist(), received.models, received.sizes.tolist(), received.metrics, strict=True
        ):
            metrics = {name: found[name] for name in sorted(common)} | {self.strategy.weighted_by_key: size}
            arrays = to_arrays(self.model, flat)
            content = RecordDict({self.strategy.arrayrecord_key: arrays, "metrics": MetricRecord(metrics)})
            replies.append(Message(content, reply_to=self.sent[ue]))
        return replies

    def memory(self) -> dict[str, NDArray[Any]]:
        named = {
            f"{name}/{key}": np.array(array)
            for name in NAMED
            for key, array in (getattr(self.strategy, name, None) or {}).items()
        }
        listed = {
            f"{name}/{index}": np.array(array)
            for name in LISTED
            for index, array in enumerate(getattr(self.strategy, name, None) or [])
        }
        return named | listed

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        for name in NAMED + LISTED:
            parts = {key.partition("/")[2]: array for key, array in memory.items() if key.startswith(f"{name}/")}
            value = parts if name in NAMED else [parts[str(index)] for index in range(len(parts))]
            self._set(name, value or None)
        self._set(MODEL, None)

    def _set(self, name: str, value: object) -> None:
        if hasattr(self.strategy, name):
            setattr(self.strategy, name, value)
