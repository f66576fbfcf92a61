"""Local training on a device. Your own data, model and training go here."""

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord

from fedslot import LocalTraining, Scenario, parse_overrides
from fedslot.deployment.flower import to_arrays, to_flat


def local_update(arrays: ArrayRecord, ue: int, round: int, config: Mapping[str, object]) -> tuple[ArrayRecord, int]:
    """Train the global model on this UE's samples; return the local model and the number of samples."""
    scenario = Scenario.load(str(config["scenario"]), parse_overrides(str(config["overrides"]).split()))

    # The scenario's own training: this UE's share of the data set, the simulator's SGD, the UE's noise. So both give
    # the same update. For your own data, model and training, replace these three lines by: load `arrays` into your
    # network (`arrays.to_torch_state_dict()`), train it on your samples, and return
    # `ArrayRecord(network.state_dict())` with the number of samples.
    training = LocalTraining.of(scenario)
    model = training.trainer.model
    trained = training(to_flat(model, arrays), np.array([ue]), round)

    return to_arrays(model, trained.models[0]), int(trained.sizes[0])
