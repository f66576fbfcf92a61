"""A cell of eight UEs, four slots and two epochs, for tests of deployments."""

from __future__ import annotations

import numpy as np
import torch

from fedslot import Scenario
from fedslot.aggregation import average
from fedslot.rounds.local_training import LocalTraining

SMALL = {
    "rounds": 6,
    "data.ues": 8,
    "frame.slots": 4,
    "frame.pull": 2,
    "push.contenders": 4,
    "push.probability": 0.8,
    "training.epochs": 2,
    "fleet.noise": 0.2,
    "valuation.name": "exact",
}

CLIPPED = [{"name": "clip", "options": {"norm": 0.2}}, "noise"]  # an update chain that changes most updates


def scenario(**changes: object) -> Scenario:
    return Scenario.load("quickstart", {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})


def model_without_ue_1() -> torch.Tensor:
    """Return the model after a first frame in which UE 1 of 0 to 3 sent nothing of use."""
    training = LocalTraining.of(scenario())
    trained = training(training.trainer.model.initial, np.array([0, 2, 3]), 0)
    return average(trained.models, trained.sizes)
