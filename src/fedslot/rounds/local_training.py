"""The training of a round: each received UE on its own samples, or the PS on the samples that UEs sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.compression import compression_of
from fedslot.data.sources import Dataset, load, outline
from fedslot.fleet import Fleet
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer
from fedslot.messages import UEs
from fedslot.rounds.held_out import finite, tensors
from fedslot.rounds.liars import Liars
from fedslot.rounds.memory import check_memory
from fedslot.scenario import Scenario
from fedslot.support.rng import ALONE, DROPOUT, SHUFFLE, stream, torch_seed
from fedslot.support.threads import ONE_THREAD, Threads
from fedslot.updates import Chain, Memory, Sender

NO_MEMORY: Memory = MappingProxyType({})
LONE_MINIBATCH, JOINED_MINIBATCH = 10, 32
LONE_EPOCHS, LONE_PASSES = 500, 400_000  # largest number of epochs, and of samples that are trained on


@dataclass(frozen=True)
class Trained:
    """Models trained in a round.

    models: (R, P), one per received UE, or a single one where the PS trains on pooled data.
    ues: (R,) the UE that trained each; -1 stands for the PS.
    sizes: (R,) training samples behind each.
    bits: (R,) size of each update on the air, 0 for a model that the PS trained; None before it is sent.
    links: the states of the UEs' chains after these updates.
    metrics: what each UE measured, in a deployment.
    """

    models: Tensor
    ues: UEs
    sizes: NDArray[np.int64]
    bits: NDArray[np.int64] | None = None
    links: Memory = field(default_factory=dict)
    metrics: Sequence[Mapping[str, float]] = ()


class Training(Protocol):
    """Trains the received UEs of a round from the broadcast model (P,)."""

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained: ...


@dataclass(frozen=True)
class LocalTraining:
    """The part of a round that UEs do (ClientUpdate of Algorithm 1): train on their own samples, then send.

    Only received UEs are trained: a collided update influences nothing.
    """

    scenario: Scenario
    fleet: Fleet
    trainer: Trainer
    chain: Chain
    liars: Liars | None = None

    @classmethod
    def of(cls, scenario: Scenario) -> LocalTraining:
        """Prepare the local training of a scenario by itself, as a device or a worker of a cluster does it.

        Its updates are not compressed: that is done where they are sent.
        """
        data = load(scenario.data.dataset)
        model = make_model(scenario, data)
        check_memory(scenario, outline(scenario.data.dataset), model)
        fleet = Fleet.draw(scenario, data.y_train, data.ue_train)
        local = cls.make(scenario, fleet, model, data)
        return replace(local, chain=replace(local.chain, compression=None))

    @classmethod
    def make(
        cls, scenario: Scenario, fleet: Fleet, model: Model, data: Dataset, threads: Threads = ONE_THREAD
    ) -> LocalTraining:
        """Prepare the local training of a fleet; threads: share the UEs."""
        liars = Liars.of(scenario, fleet, data, model.initial)
        x, y = (data.x_train, data.y_train) if liars is None else liars.samples
        recipe, engine = recipe_of(scenario), scenario.training.engine
        trainer = Trainer(model, *tensors(model, x, y), recipe, engine, threads)
        compression = compression_of(scenario.compression, model.tensor_shapes)
        chain = Chain([part.make() for part in scenario.chain], [part.name for part in scenario.chain], compression)
        return cls(scenario, fleet, trainer, chain, liars)

    def __call__(self, start: Tensor, received: UEs, round: int, links: Memory = NO_MEMORY) -> Trained:
        """Train UEs and return what they send; links: the states of their chains, which the result has updated."""
        return self.send(start, self.train(start, received, round), round, links)

    def train(self, start: Tensor, received: UEs, round: int) -> Trained:
        """Train UEs on their own samples, without sending."""
        return Trained(self.trainer(start, self.jobs(received, round)), received, self.fleet.sizes[received])

    def send(self, start: Tensor, trained: Trained, round: int, links: Memory = NO_MEMORY) -> Trained:
        """Pass the models of UEs through the update chain; they are changed in place. Lies are told after the truth."""
        fleet, seed, liars = self.fleet, self.scenario.seed, self.liars

        def one(row: int) -> tuple[int, Tensor | None]:
            ue = int(trained.ues[row])
            sender = Sender(ue, round, seed, float(fleet.noise[ue]), int(trained.sizes[row]))
            chain = self.chain.compression_alone() if liars and liars.skips_chain(ue) else self.chain
            update, state = chain.send(start, trained.models[row], sender, links.get(ue))
            if update.model is not trained.models[row]:
                trained.models[row] = update.model
            return update.bits, state

        lying = liars.lying(trained.ues, round) if liars else np.zeros(len(trained.ues), dtype=bool)
        honest, liar = np.flatnonzero(~lying), np.flatnonzero(lying)
        before = trained.models.clone() if len(liar) else trained.models
        sent = dict(zip(honest.tolist(), self.trainer.threads.map(one, honest.tolist()), strict=True))
        if liars and len(liar):
            liars.lie(start, before, trained.models, trained.ues, lying, round)
            sent |= zip(liar.tolist(), self.trainer.threads.map(one, liar.tolist()), strict=True)
        finite(trained.models, self.scenario, round)
        states = {int(trained.ues[row]): state for row, (_, state) in sent.items() if state is not None and len(state)}
        bits = np.array([sent[row][0] for row in range(len(sent))], dtype=np.int64)
        return replace(trained, bits=bits, links={**links, **states})

    @torch.no_grad()
    def losses(self, model: Tensor, ues: UEs) -> NDArray[np.float64]:
        """Return the mean losses (n,) of a model (P,) on the training samples of each UE (n,)."""
        network, x, y = self.trainer.model.copy(), self.trainer.x, self.trainer.y
        network.module.eval()
        parameters = network.unflatten(model)
        shares = [torch.from_numpy(self.fleet.shares.share(ue)) for ue in ues.tolist()]
        return np.array([float(network.task.loss(network.logits(parameters, x[own]), y[own])) for own in shares])

    def norms(self, model: Tensor, round: int, ues: UEs) -> NDArray[np.float64]:
        """Return the Euclidean norms (n,) of the changes of a model (P,) by the local training of UEs (n,).

        This trains them all, before anyone knows which of them will be received.
        """
        changes = self.train(model, ues, round).models - model
        norms: NDArray[np.float64] = torch.linalg.vector_norm(changes.double(), dim=1).cpu().numpy()
        return norms

    def stacks(self, received: UEs, round: int) -> list[list[int]]:
        """Return which of the received UEs, by position, are trained in one batch; each batch can run anywhere."""
        return self.trainer.stacks(self.jobs(received, round))

    def jobs(self, received: UEs, round: int) -> list[Job]:
        """Return the local training of each received UE."""
        fleet, seed, liars = self.fleet, self.scenario.seed, self.liars
        return [
            Job(
                liars.share(ue, round) if liars else fleet.shares.share(ue),
                int(fleet.epochs[ue]),
                stream(seed, SHUFFLE, round, ue),
                torch_seed(seed, DROPOUT, round, ue),
            )
            for ue in received.tolist()
        ]


@dataclass(frozen=True)
class PooledTraining:
    """Received UEs send their samples, and the PS trains one model on all of them: no stragglers, no noise."""

    scenario: Scenario
    fleet: Fleet
    trainer: Trainer

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        if not len(received):
            return Trained(start.new_empty(0, len(start)), received, received, received)
        samples, seed = np.concatenate([self.fleet.shares.share(ue) for ue in received.tolist()]), self.scenario.seed
        key = round, self.fleet.ues  # the PS counts as one more UE
        job = Job(samples, self.scenario.epochs, stream(seed, SHUFFLE, *key), torch_seed(seed, DROPOUT, *key))
        return _train_at_ps(self.scenario, self.trainer, start, job, round)


class LoneTraining:
    """The PS trains on its own labelled samples, whatever is received: the control without any UE.

    SGD has the scenario's learning rate and momentum, minibatches of ten, and enough epochs to learn the samples by
    heart, which serves small networks best.
    """

    def __init__(self, scenario: Scenario, model: Model, labelled: Evaluator) -> None:
        self.scenario, self.samples = scenario, len(labelled.y)
        recipe = Recipe(scenario.training.lr, scenario.training.momentum, -(-self.samples // LONE_MINIBATCH))
        self.trainer = Trainer(model, labelled.x, labelled.y, recipe, scenario.training.engine, labelled.threads)

    def __call__(self, start: Tensor, received: UEs, round: int) -> Trained:
        return _train_at_ps(self.scenario, self.trainer, start, self._job(np.arange(self.samples)), round)

    def train(self, start: Tensor, shares: Sequence[NDArray[np.int64]]) -> Tensor:
        """Return models (len(shares), P), each trained on a share of the samples, in as many steps as on all."""
        return finite(self.trainer(start, [self._job(share) for share in shares]), self.scenario, 0)

    def epochs(self, start: Tensor, share: NDArray[np.int64]) -> Iterator[Tensor]:
        """Train on a share of the samples, and yield the model (P,) after each epoch."""
        job, model = self._job(share), start
        for _ in range(job.epochs):
            model = finite(self.trainer(model, [replace(job, epochs=1)]), self.scenario, 0)[0]
            yield model

    def _job(self, share: NDArray[np.int64]) -> Job:
        epochs, seed = max(1, min(LONE_EPOCHS, LONE_PASSES // self.samples)), self.scenario.seed
        return Job(share, epochs, stream(seed, ALONE), torch_seed(seed, ALONE))


class JoinedTraining:
    """The PS trains from the broadcast on a share of its own labelled samples, as one more UE that needs no slot.

    Its training is that of a UE, or a single epoch of minibatches of 32 where that takes more steps.
    """

    def __init__(self, scenario: Scenario, model: Model, labelled: Evaluator, share: NDArray[np.int64]) -> None:
        self.scenario, self.share = scenario, share
        recipe, self.epochs = recipe_of(scenario), scenario.epochs
        if self.epochs * recipe.minibatches(len(share)) * JOINED_MINIBATCH < len(share):
            recipe, self.epochs = replace(recipe, batches=-(-len(share) // JOINED_MINIBATCH)), 1
        self.trainer = Trainer(model, labelled.x, labelled.y, recipe, scenario.training.engine)

    def __call__(self, start: Tensor, round: int) -> Tensor | None:
        """Return the model (P,); None if it is not finite, so that the round goes on without it."""
        seed, key = self.scenario.seed, (round, self.scenario.data.ues)
        job = Job(self.share, self.epochs, stream(seed, SHUFFLE, *key), torch_seed(seed, DROPOUT, *key))
        model = self.trainer(start, [job])[0]
        return model if model.isfinite().all() else None


def _train_at_ps(scenario: Scenario, trainer: Trainer, start: Tensor, job: Job, round: int) -> Trained:
    model = finite(trainer(start, [job]), scenario, round)
    return Trained(model, np.array([-1]), np.array([len(job.share)]), np.array([0]))


def make_model(scenario: Scenario, data: Dataset) -> Model:
    """Build the network of a scenario for its data; refuse data for another task."""
    part, device, task = scenario.training.model, scenario.training.device, scenario.training.task.make()
    task.check(data.name, data.classes > 0)
    return Model.build(part.name, data.x_train.shape[1:], data.outputs, scenario.seed, device, part.options, task)


def recipe_of(scenario: Scenario) -> Recipe:
    """Return the recipe of a scenario's local training."""
    training, part = scenario.training, scenario.training.optimizer
    return Recipe(
        training.lr,
        training.momentum,
        training.batches,
        training.proximal,
        part.name,
        part.options,
        training.batch_size or 1,
    )
