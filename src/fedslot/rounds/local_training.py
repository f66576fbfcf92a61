"""The training of a round: each received UE on its own samples, or the PS on the samples that UEs sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedslot.data.sources import Dataset, load
from fedslot.fleet import Fleet
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.messages import UEs
from fedslot.rounds.held_out import finite, tensors
from fedslot.rounds.round import add_noise, local_job
from fedslot.scenario import Scenario
from fedslot.support.rng import ALONE, DROPOUT, SHUFFLE, stream, torch_seed
from fedslot.support.threads import ONE_THREAD, Threads

LONE_MINIBATCH = 10
LONE_EPOCHS, LONE_PASSES = 500, 400_000  # largest number of epochs, and of samples that are trained on


@dataclass(frozen=True)
class Trained:
    """Models trained in a round.

    models: (R, P), one per received UE, or a single one where the PS trains on pooled data.
    ues: (R,) the UE that trained each; -1 stands for the PS.
    sizes: (R,) training samples behind each.
    """

    models: Tensor
    ues: UEs
    sizes: NDArray[np.int64]


class Training(Protocol):
    """Trains the received UEs of a round from the broadcast model (P,)."""

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained: ...


@dataclass(frozen=True)
class LocalTraining:
    """Every received UE trains on its own samples and adds its noise (ClientUpdate of Algorithm 1).

    Only received UEs are trained: a collided update influences nothing.
    """

    scenario: Scenario
    fleet: Fleet
    trainer: Trainer

    @classmethod
    def of(cls, scenario: Scenario) -> LocalTraining:
        """Prepare the local training of a scenario by itself, as a device or a worker of a cluster does it."""
        data = load(scenario.data.dataset)
        fleet = Fleet.draw(scenario, data.y_train, data.ue_train)
        return cls(scenario, fleet, make_trainer(scenario, make_model(scenario, data), data))

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        models = self.trainer(start, self._jobs(received, round))
        self.trainer.threads.map(
            lambda pair: add_noise(*pair, self.scenario, self.fleet, round), zip(models, received.tolist(), strict=True)
        )
        return Trained(finite(models, self.scenario, round), received, self.fleet.sizes[received])

    @torch.no_grad()
    def losses(self, model: Tensor, ues: UEs) -> NDArray[np.float64]:
        """Return the mean losses (n,) of a model (P,) on the training samples of each UE (n,)."""
        network, x, y = self.trainer.model.copy(), self.trainer.x, self.trainer.y
        network.module.eval()
        parameters = network.unflatten(model)
        shares = [torch.from_numpy(self.fleet.shares.share(ue)) for ue in ues.tolist()]
        return np.array([float(cross_entropy(network.logits(parameters, x[own]), y[own])) for own in shares])

    def stacks(self, received: UEs, round: int) -> list[list[int]]:
        """Return which of the received UEs, by position, are trained in one batch; each batch can run anywhere."""
        return self.trainer.stacks(self._jobs(received, round))

    def _jobs(self, received: UEs, round: int) -> list[Job]:
        return [local_job(self.scenario, self.fleet, ue, round) for ue in received.tolist()]


@dataclass(frozen=True)
class PooledTraining:
    """Received UEs send their samples, and the PS trains one model on all of them: no stragglers, no noise."""

    scenario: Scenario
    fleet: Fleet
    trainer: Trainer

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        ues, seed = received.tolist(), self.scenario.seed
        if not ues:
            return Trained(start.new_empty(0, len(start)), received, received)
        samples = np.concatenate([self.fleet.shares.share(ue) for ue in ues])
        key = round, self.fleet.ues  # the PS counts as one more UE
        job = Job(samples, self.scenario.epochs, stream(seed, SHUFFLE, *key), torch_seed(seed, DROPOUT, *key))
        models = self.trainer(start, [job])
        return Trained(finite(models, self.scenario, round), np.array([-1]), np.array([len(samples)]))


class LoneTraining:
    """The PS trains on its own labelled samples, whatever is received: the control without any UE.

    SGD has the scenario's learning rate and momentum, minibatches of ten, and enough epochs to learn the samples by
    heart, which serves small networks best.
    """

    def __init__(self, scenario: Scenario, model: Model, labelled: Evaluator) -> None:
        self.scenario, self.samples = scenario, len(labelled.y)
        recipe = Recipe(scenario.training.lr, scenario.training.momentum, -(-self.samples // LONE_MINIBATCH))
        self.trainer = Trainer(model, labelled.x, labelled.y, recipe, scenario.training.engine)

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        epochs, seed = max(1, min(LONE_EPOCHS, LONE_PASSES // self.samples)), self.scenario.seed
        job = Job(np.arange(self.samples), epochs, stream(seed, ALONE), torch_seed(seed, ALONE))
        models = self.trainer(start, [job])
        return Trained(finite(models, self.scenario, round), np.array([-1]), np.array([self.samples]))


def make_model(scenario: Scenario, data: Dataset) -> Model:
    """Build the network of a scenario for its data."""
    options = scenario.training
    model = options.model
    return Model.build(model.name, data.x_train.shape[1:], data.classes, scenario.seed, options.device, model.options)


def make_trainer(scenario: Scenario, model: Model, data: Dataset, threads: Threads = ONE_THREAD) -> Trainer:
    """Build the trainer of a scenario's network on its training samples."""
    samples, engine = tensors(model, data.x_train, data.y_train), scenario.training.engine
    return Trainer(model, *samples, recipe_of(scenario), engine, threads)


def recipe_of(scenario: Scenario) -> Recipe:
    """Return the recipe of a scenario's local training."""
    options = scenario.training
    chosen = options.optimizer
    return Recipe(options.lr, options.momentum, options.batches, options.proximal, chosen.name, chosen.options)
