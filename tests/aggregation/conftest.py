"""Rounds of updates for a model of any number of parameters."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedslot.aggregation import Updates
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model


def make_updates(local: Any, start: Any = None, sizes: Any = None) -> Updates:
    """Updates with local models (Y, P), by default from the zero model and from UEs of equal size."""
    local = torch.as_tensor(local, dtype=torch.float32)
    count, parameters = local.shape
    model, inputs = Model(nn.Linear(parameters, 1, bias=False)), torch.zeros(4, parameters)
    return Updates(
        model=model,
        start=torch.zeros(parameters) if start is None else torch.as_tensor(start, dtype=torch.float32),
        local=local,
        ues=np.arange(count),
        sizes=np.full(count, 10) if sizes is None else np.asarray(sizes),
        values=np.zeros(count),
        inputs=inputs,
        statistics=LayerStatistics(model, inputs),
        val_losses=lambda models: models.norm(dim=1).tolist(),
    )


@pytest.fixture(scope="session")
def updates() -> Callable[..., Updates]:
    """The function that makes a round's updates."""
    return make_updates
