"""Local training of any network with any optimiser, one UE after the other, by PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, trained_parameters
from fedslot.parts import kinds
from fedslot.support.errors import InputError

OptimizerFactory = Callable[[Iterable[Tensor], float], torch.optim.Optimizer]


class AutogradTraining:
    """Trains a network on the samples x (n, *shape) with targets y (n,)."""

    stack_size = 1

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x, y, recipe
        self.make_optimizer = _optimizer_factory(model, recipe)
        self.is_random = _is_random(model, x, self.make_optimizer, recipe)

    def train(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Return the local models (len(jobs), P), trained from start (P,)."""
        return torch.stack([self._train(start, job) for job in jobs])

    def _train(self, start: Tensor, job: Job) -> Tensor:
        module = self.model.copy().module.train()  # threads cannot share a module
        parameters = trained_parameters(module)
        with torch.no_grad():
            nn.utils.vector_to_parameters(start.clone(), parameters)
        anchors = [parameter.detach().clone() for parameter in parameters]
        optimizer, mu = self.make_optimizer(parameters, self.recipe.lr), self.recipe.proximal
        edges = self.recipe.edges(job).tolist()
        for order in job.shuffle():
            samples = torch.from_numpy(job.share[order]).to(self.x.device)
            for begin, end in pairwise(edges):
                index = samples[begin:end]
                loss = self.model.task.loss(module(_take(self.x, index)), self.y[index])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                if mu:
                    for parameter, anchor in zip(parameters, anchors, strict=True):
                        drift = parameter.detach() - anchor
                        parameter.grad = mu * drift if parameter.grad is None else parameter.grad.add_(drift, alpha=mu)
                optimizer.step()
        return nn.utils.parameters_to_vector(parameters).detach()


def sgd(parameters: Iterable[Tensor], lr: float, momentum: float, /) -> torch.optim.Optimizer:
    """Return SGD with `training.momentum`."""
    return torch.optim.SGD(parameters, lr, momentum=momentum)


def _optimizer_factory(model: Model, recipe: Recipe) -> OptimizerFactory:
    name, options = recipe.optimizer, recipe.optimizer_options
    momentum = (recipe.momentum,) if name == "sgd" else ()
    kinds.OPTIMIZERS.make(name, options, trained_parameters(model.copy().module), recipe.lr, *momentum)
    bound = kinds.OPTIMIZERS.bind(name, options)
    return lambda parameters, lr: bound(parameters, lr, *momentum)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Return samples (b, *shape) by index (b,), in the memory order of x."""
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


def _is_random(model: Model, x: Tensor, factory: OptimizerFactory, recipe: Recipe) -> bool:
    """Return whether a step of training draws random numbers of PyTorch, as dropout does."""
    module = model.copy().module.train()
    optimizer = factory(trained_parameters(module), recipe.lr)
    devices = cuda_devices(x)
    with torch.random.fork_rng(devices):
        before = _generator_states(devices)
        module(x[:1]).sum().backward()
        try:
            optimizer.step()
        except Exception as error:
            allowed = f"a factory of optimisers whose step() needs nothing but gradients ({error})"
            raise InputError("training.optimizer", recipe.optimizer, allowed) from error
        return not all(map(torch.equal, before, _generator_states(devices)))


def cuda_devices(tensor: Tensor) -> list[torch.device]:
    """Return the devices besides the CPU whose random generators a computation with a tensor may use."""
    return [tensor.device] if tensor.is_cuda else []


def _generator_states(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
