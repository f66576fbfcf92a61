"""The aggregations of the simulator and Flower's strategies of the same name return the same models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedTrimmedAvg, FedYogi, Krum, MultiKrum
from flwr.supercore.task_identity import TaskIdentity  # private: without it there are no messages outside of a run

from fedslot.aggregation import AGGREGATIONS, Updates
from fedslot.deployment.flower.arrays import to_arrays, to_flat
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model

ROUNDS, UES = 8, 7
ADAPTIVE = {"lr": 0.2, "beta1": 0.8, "beta2": 0.95, "tau": 0.01}
FLOWERS_ADAPTIVE = {"eta": 0.2, "beta_1": 0.8, "beta_2": 0.95, "tau": 0.01}

PAIRS: list[tuple[str, dict[str, Any], type[FedAvg], dict[str, Any]]] = [
    ("average", {}, FedAvg, {}),
    ("fedavgm", {}, FedAvgM, {"server_momentum": 0.9}),
    ("fedavgm", {"lr": 0.5, "momentum": 0.0}, FedAvgM, {"server_learning_rate": 0.5}),
    ("fedadam", {}, FedAdam, {}),
    ("fedadam", ADAPTIVE, FedAdam, FLOWERS_ADAPTIVE),
    ("fedyogi", {}, FedYogi, {}),
    ("fedyogi", ADAPTIVE, FedYogi, FLOWERS_ADAPTIVE),
    ("median", {}, FedMedian, {}),
    ("trimmed-mean", {}, FedTrimmedAvg, {}),
    ("trimmed-mean", {"fraction": 0.3}, FedTrimmedAvg, {"beta": 0.3}),
    ("krum", {"byzantine": 2}, Krum, {"num_malicious_nodes": 2}),
    ("krum", {"byzantine": 1, "selected": 3}, MultiKrum, {"num_malicious_nodes": 1, "num_nodes_to_select": 3}),
]


@pytest.fixture(autouse=True, scope="module")
def _in_a_task() -> None:
    """Pretend to be a task of a run, since Flower creates messages only within one."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def set_global(strategy: FedAvg, arrays: ArrayRecord) -> None:
    """Set the global model in the strategies that need it, as `configure_train` does."""
    if isinstance(strategy, FedAvgM):
        strategy.current_arrays = arrays
    elif isinstance(strategy, FedAdam | FedYogi):
        strategy.current_arrays = {name: array.numpy() for name, array in arrays.items()}


def reply(model: Model, ue: int, local: Tensor, size: int) -> Message:
    metrics = MetricRecord({"num-examples": size})
    return Message(RecordDict({"arrays": to_arrays(model, local), "metrics": metrics}), 1000 + ue, "train")


@pytest.mark.parametrize(("name", "options", "kind", "flowers_options"), PAIRS)
def test_same_models_as_flower(
    name: str, options: dict[str, Any], kind: type[FedAvg], flowers_options: dict[str, Any]
) -> None:
    draw, generator = np.random.default_rng(5), torch.Generator().manual_seed(5)
    model = Model(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))
    aggregation, strategy = AGGREGATIONS.make(name, options), kind(**flowers_options)
    ours, state, theirs = model.initial, aggregation.init(model.initial, 7), model.initial
    for round in range(ROUNDS):
        before, sizes = ours, draw.integers(1, 100, UES)
        steps = torch.randn(model.size, generator=generator) + torch.randn(UES, model.size, generator=generator)

        inputs = torch.zeros(1, 5)
        known = np.arange(UES), sizes, np.zeros(UES), inputs, LayerStatistics(model, inputs)
        received = Updates(model, ours, ours + steps, *known, val_losses=lambda models: [0.0] * len(models))
        aggregate = aggregation.apply(state, received)
        ours, state = aggregate.broadcast, aggregate.state

        set_global(strategy, to_arrays(model, theirs))
        replies = [reply(model, ue, theirs + steps[ue], int(sizes[ue])) for ue in range(UES)]
        arrays, _ = strategy.aggregate_train(round + 1, replies)
        assert arrays is not None
        theirs = to_flat(model, arrays)

        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        assert (ours - before).abs().max() > 1e-3
