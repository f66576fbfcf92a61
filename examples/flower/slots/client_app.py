"""A device: it draws its slot by the mod, and trains on its own samples."""

import numpy as np
import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedslot import Scenario
from fedslot.data.sources import load
from fedslot.fleet import Fleet
from fedslot.flower import slot_access, to_arrays, to_flat
from fedslot.judging import tensors
from fedslot.learning.models import Model
from fedslot.learning.training import Job, Recipe, train
from fedslot.rng import stream, torch_seed
from fedslot.scenario import parse_overrides

app = ClientApp(mods=[slot_access])


@app.train()
def local_training(message: Message, context: Context) -> Message:
    config = context.run_config
    scenario = Scenario.load(str(config["scenario"]), parse_overrides(str(config["overrides"]).split()))
    seed, training = scenario.seed, scenario.training
    ue = int(context.node_config["partition-id"])
    round = int(message.content["config"]["server-round"]) - 1

    # Your own samples go here, x (n, *shape) and y (n,). This is the UE's share of the scenario's data set.
    data = load(scenario.data.dataset)
    fleet = Fleet.draw(scenario, data.y_train)
    share = fleet.shares.share(ue)
    x, y, epochs = data.x_train[share], data.y_train[share], int(fleet.epochs[ue])

    # Your own training goes here; this one is the simulator's, so that both give the same update.
    model = Model.build(training.model, x.shape[1:], data.classes, seed, training.device)
    job = Job(np.arange(len(y)), epochs, stream(seed, "shuffle", round, ue), torch_seed(seed, "dropout", round, ue))
    recipe = Recipe(training.lr, training.momentum, training.batches)
    start = to_flat(model, message.content["arrays"])
    update = train(model, start, [job], *tensors(model, x, y), recipe)[0]
    if fleet.noise[ue] > 0:  # emulated; real devices bring their own
        noise = stream(seed, "noise", round, ue).standard_normal(model.size, dtype=np.float32)
        update.add_(torch.from_numpy(noise).to(update), alpha=float(fleet.noise[ue]))

    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": to_arrays(model, update), "metrics": metrics}), reply_to=message)
