"""The usual way to write such a simulator: a module, an optimiser and a loop per UE, a rebuilt model per coalition."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.messages import UEs
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.local_training import LocalTraining, Trained
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.support.rng import VALUATION, stream
from fedslot.valuation import GTG, Game, Valuation
from fedslot.valuation.game import coalition_weights


def simulation(scenario: Scenario) -> Simulation:
    """Return the simulation of a scenario with plain training, plain evaluation and GTG-Shapley."""
    usual = Simulation(scenario, lambda local: PlainTraining(local))
    usual.held_out = usual.ps.held_out = PlainHeldOut(usual)
    return usual


def train(model: Model, start: Tensor, jobs: list[Job], x: Tensor, y: Tensor, recipe: Recipe) -> Tensor:
    """Return local models (Y, P), trained one UE after the other."""
    models = []
    for job in jobs:
        network = copy.deepcopy(model.module).train()
        nn.utils.vector_to_parameters(start.clone(), network.parameters())
        optimizer = torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum)
        for _ in range(job.epochs):
            parts = min(recipe.batches, len(job.share))
            for batch in np.array_split(job.rng.permutation(job.share), parts):
                index = torch.from_numpy(batch)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(x[index]), y[index])
                loss.backward()
                optimizer.step()
        models.append(nn.utils.parameters_to_vector(network.parameters()).detach())
    return torch.stack(models)


@torch.no_grad()
def utilities(model: Model, models: Tensor, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return minus the losses (C,) of averaged models, each rebuilt and evaluated on all samples."""
    network = copy.deepcopy(model.module).eval()
    losses = []
    for weight in weights:
        nn.utils.vector_to_parameters(weight @ models, network.parameters())
        losses.append(nn.functional.cross_entropy(network(x), y))
    return -torch.stack(losses)


class PlainTraining:
    """Local training of the received UEs by `train`."""

    def __init__(self, local: LocalTraining) -> None:
        self.local, self.trainer = local, local.trainer
        self.x, self.y = local.trainer.x.contiguous(), local.trainer.y

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        jobs = self.local.jobs(received, round)
        models = train(self.trainer.model, start, jobs, self.x, self.y, self.trainer.recipe)
        return Trained(models, received, self.local.fleet.sizes[received])


class PlainEvaluator(Evaluator):
    """Loss and accuracy of one model at a time."""

    @torch.no_grad()
    def evaluate(self, flat: Tensor) -> tuple[float, float]:
        network = copy.deepcopy(self.model.module).eval()
        nn.utils.vector_to_parameters(flat, network.parameters())
        logits = network(self.x)
        loss = nn.functional.cross_entropy(logits, self.y)
        return float(loss), float((logits.argmax(1) == self.y).float().mean())


class PlainHeldOut(HeldOut):
    """Held-out evaluation with `PlainEvaluator`, valuation with GTG-Shapley over rebuilt models."""

    def __init__(self, simulation: Simulation) -> None:
        held_out = simulation.held_out
        vars(self).update(vars(held_out))  # also what aggregations and strategies may ask for, which is not timed
        self.model = simulation.model
        self.test, self.validation, self.utility = (
            PlainEvaluator(self.model, part.x.contiguous(), part.y)
            for part in (held_out.test, held_out.validation, held_out.utility)
        )

    def value(self, model: Tensor, updates: Tensor, sizes: NDArray[np.int64], round: int) -> Valuation:
        models, here = torch.cat([model.unsqueeze(0), updates]), self.utility

        def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
            weights = torch.from_numpy(coalition_weights(members, sizes)).to(models)
            return utilities(self.model, models, weights, here.x, here.y).double().numpy()

        return GTG()(Game(len(updates), utility), stream(self.scenario.seed, VALUATION, round))
