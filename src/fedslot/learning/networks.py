"""Local training of networks of any kind.

Measured on a CPU: `torch.func` over a stack of UEs beats one after the other, but not for convolutions, since a stack
of different filters is a grouped convolution. What a stack cannot hold is trained one after the other too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedslot.learning.jobs import Job, Minibatches, Recipe, one_by_one
from fedslot.learning.models import Model

ROOM = 1 << 19  # floats that parameters and minibatches of a stack may take: 2 MB, to stay within the cache

Tensors = dict[str, Tensor]


class Stacked:
    """Trains several UEs side by side on the samples x (n, *shape) with labels y (n,)."""

    draws = False

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x, y, recipe

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Jobs that are trained side by side, by index: of similar size, few enough for the cache, most steps first."""
        if not jobs:
            return []
        by_size = sorted(range(len(jobs)), key=lambda index: -len(jobs[index].share))
        largest = self.model.size + self.recipe.widest(jobs[by_size[0]]) * self.x[:1].numel()
        parts = -(-len(jobs) // max(1, ROOM // largest))
        edges = [len(jobs) * part // parts for part in range(parts + 1)]
        return [
            sorted(by_size[begin:end], key=lambda index: -self.recipe.steps(jobs[index]))
            for begin, end in pairwise(edges)
        ]

    def descend(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Local models (len(jobs), P). jobs: a stack, those with most steps first."""
        steps, recipe = Minibatches.draw(jobs, self.recipe), self.recipe
        own = self.model.copy()  # a functional call swaps a module's parameters for its time: threads cannot share one
        own.module.train()
        slopes = vmap(_slope(own))
        # a contiguous tensor per layer rather than views of one matrix: matrix products are faster so
        parts = self.model.unflatten(start).items()
        rows = {name: part.repeat(len(jobs), *(1 for _ in part.shape)) for name, part in parts}
        velocity = {name: torch.zeros_like(part) for name, part in rows.items()}
        samples, weights = steps.sample.to(self.x.device), steps.weight.to(self.x.device)
        for step, going in enumerate(steps.going):
            index = samples[step, :going]
            here = {name: part[:going] for name, part in rows.items()}
            for name, slope in slopes(here, _take(self.x, index), self.y[index], weights[step, :going]).items():
                velocity[name][:going].mul_(recipe.momentum).add_(slope)
                here[name].sub_(velocity[name][:going], alpha=recipe.lr)
        return torch.cat([part.flatten(1) for part in rows.values()], dim=1)


class OneByOne:
    """Trains UEs one after the other on the samples x (n, *shape) with labels y (n,)."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> None:
        self.model, self.x, self.y, self.recipe = model, x, y, recipe
        self.draws = _draws(model, x)

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Each job by itself."""
        return one_by_one(jobs)

    def descend(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Local models (len(jobs), P)."""
        return torch.stack([self._descend(start, job) for job in jobs])

    def _descend(self, start: Tensor, job: Job) -> Tensor:
        module = self.model.copy().module.train()
        parameters: list[Tensor] = list(module.parameters())
        nn.utils.vector_to_parameters(start.clone(), parameters)
        velocity = [torch.zeros_like(part) for part in parameters]
        cuts = self.recipe.cuts(job).tolist()
        for order in job.orders():
            samples = torch.from_numpy(job.share[order]).to(self.x.device)
            for begin, end in pairwise(cuts):
                index = samples[begin:end]
                loss = nn.functional.cross_entropy(module(_take(self.x, index)), self.y[index])
                slopes = torch.autograd.grad(loss, parameters, materialize_grads=True)  # some may be of no use
                with torch.no_grad():
                    torch._foreach_mul_(velocity, self.recipe.momentum)
                    torch._foreach_add_(velocity, slopes)
                    torch._foreach_sub_(parameters, velocity, alpha=self.recipe.lr)
        return nn.utils.parameters_to_vector(parameters).detach()


def best_way(model: Model, x: Tensor, y: Tensor, recipe: Recipe) -> Stacked | OneByOne:
    """The faster way to train a network."""
    stacks = not model.convolves and _stackable(model, x, y)
    return (Stacked if stacks else OneByOne)(model, x, y, recipe)


def _slope(model: Model) -> Callable[[Tensors, Tensor, Tensor, Tensor], Tensors]:
    def loss(parameters: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model.logits(parameters, x), y, reduction="none") @ weight

    return grad(loss)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Samples (..., *shape) by index (...), in the memory order of x."""
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    stored = x.permute(0, 2, 3, 1) if channels_last else x
    # rows of a flat table are copied several times faster than entries of a deep one
    found = stored.flatten(1).index_select(0, index.flatten()).view(*index.shape, *stored.shape[1:])
    return found.movedim(-1, -3) if channels_last else found


def _draws(model: Model, x: Tensor) -> bool:
    """Whether a forward pass moves PyTorch's random generator."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        model.module.train()(x[:1])
        return not torch.equal(before, torch.get_rng_state())


def _stackable(model: Model, x: Tensor, y: Tensor) -> bool:
    """Whether `torch.func` can stack a network.

    Not if it draws random numbers, which must not depend on who else is in the stack, nor if it branches on
    its values, nor if it has parts that can only be taken one after the other.
    """
    model.module.train()
    weight = x.new_ones(1, 1)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("error")
        try:
            vmap(_slope(model))(model.unflatten(model.initial.unsqueeze(0)), x[None, :1], y[None, :1], weight)
        except (RuntimeError, UserWarning):
            return False
    return True
