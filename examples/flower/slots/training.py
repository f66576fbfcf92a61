"""Local training in PyTorch. Your own samples and your own training go here."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import ArrayRecord

from fedslot import Scenario
from fedslot.data.sources import load
from fedslot.deployment.flower import to_arrays, to_flat
from fedslot.fleet import Fleet
from fedslot.held_out import tensors
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.rng import stream, torch_seed
from fedslot.scenario import parse_overrides


def local_update(arrays: ArrayRecord, ue: int, round: int, config: Mapping[str, object]) -> tuple[ArrayRecord, int]:
    """Train the global model on this UE's samples; the local model, and how many samples there are."""
    scenario = Scenario.load(str(config["scenario"]), parse_overrides(str(config["overrides"]).split()))
    seed, options = scenario.seed, scenario.training

    # This UE's share of the scenario's data set: x (n, *shape), y (n,). Real devices load what they have.
    data = load(scenario.data.dataset)
    fleet = Fleet.draw(scenario, data.y_train)
    share = fleet.shares.share(ue)
    x, y = data.x_train[share], data.y_train[share]

    # The simulator's training, so that both give the same update; any loop over any optimiser will do.
    model = Model.build(options.model, x.shape[1:], data.classes, seed, options.device)
    streams = stream(seed, "shuffle", round, ue), torch_seed(seed, "dropout", round, ue)
    job = Job(np.arange(len(y)), int(fleet.epochs[ue]), *streams)
    recipe = Recipe(options.lr, options.momentum, options.batches, options.proximal, options.optimizer)
    update = Trainer(model, *tensors(model, x, y), recipe, options.engine)(to_flat(model, arrays), [job])[0]

    # The scenario's noise on updates; real devices bring their own.
    if fleet.noise[ue] > 0:
        noise = stream(seed, "noise", round, ue).standard_normal(model.size, dtype=np.float32)
        update.add_(torch.from_numpy(noise).to(update), alpha=float(fleet.noise[ue]))
    return to_arrays(model, update), len(y)
