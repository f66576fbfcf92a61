"""Local training of the received UEs of a round (ClientUpdate of Algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedslot.learning.autograd_training import AutogradTraining, cuda_devices
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, perceptron_layers
from fedslot.learning.stacked_training import StackedTraining
from fedslot.learning.tasks import Classification
from fedslot.support.errors import InputError
from fedslot.support.extras import how_to_install, is_installed
from fedslot.support.threads import ONE_THREAD, Threads

if TYPE_CHECKING:
    from fedslot.learning.compiled_training import CompiledTraining

Engine = Literal["torch", "compiled"]


class Trainer:
    """Trains UEs from the global model.

    x, y: (n, *shape) and (n,), the training samples of all UEs.
    engine: `torch`, `compiled` (Numba; perceptrons and SGD on a CPU only), or `auto`: compiled where that is possible.
    threads: share the UEs.
    """

    def __init__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        recipe: Recipe,
        engine: Engine | Literal["auto"] = "auto",
        threads: Threads = ONE_THREAD,
    ) -> None:
        self.model, self.x, self.y, self.recipe, self.threads = model, x, y, recipe, threads
        self.engine = choose_engine(model, recipe, engine)
        self._method: CompiledTraining | StackedTraining | AutogradTraining
        if self.engine == "compiled":
            from fedslot.learning.compiled_training import CompiledTraining  # loads Numba

            self._method = CompiledTraining(model, x, y, recipe)
        elif recipe.optimizer == "sgd" and perceptron_layers(model.module) and type(model.task) is Classification:
            self._method = StackedTraining(model, x, y, recipe)
        else:
            self._method = AutogradTraining(model, x, y, recipe)

    def __call__(self, start: Tensor, jobs: list[Job]) -> Tensor:
        """Return the local models (len(jobs), P), all trained from start (P,)."""
        models = start.new_empty(len(jobs), self.model.size)

        def train(stack: list[int]) -> None:
            models[stack] = self._method.train(start, [jobs[job] for job in stack])

        if not self._method.is_random:
            self.threads.map(train, self.stacks(jobs))
            return models
        # PyTorch has one random generator for all threads
        with torch.random.fork_rng(cuda_devices(start)):
            for stack in self.stacks(jobs):
                torch.manual_seed(jobs[stack[0]].dropout_seed)
                train(stack)
        return models

    def prepare(self) -> None:
        """Compile whatever training may need, so that no later training takes longer than it must."""
        if not isinstance(self._method, StackedTraining | AutogradTraining):
            self._method.prepare()

    def stacks(self, jobs: list[Job]) -> list[list[int]]:
        """Return the indices of jobs that are trained together, largest shares first; stacks are independent."""
        size = self._method.stack_size
        largest = sorted(range(len(jobs)), key=lambda index: -len(jobs[index].share))
        stacks = [largest[first : first + size] for first in range(0, len(jobs), size)]
        return [sorted(stack, key=lambda index: -self.recipe.steps(jobs[index])) for stack in stacks]


def choose_engine(model: Model, recipe: Recipe, engine: Engine | Literal["auto"]) -> Engine:
    """Return the engine that trains a network; refuse the compiled one where it cannot."""
    layers, obstacle = perceptron_layers(model.module), ""
    if type(model.task) is not Classification:
        obstacle = "only classification is compiled"
    elif recipe.optimizer != "sgd":
        obstacle = "only sgd is compiled"
    elif not layers or list(model.shapes) != [f"{name}.{part}" for name in layers for part in ("weight", "bias")]:
        obstacle = "only plain ReLU perceptrons are compiled"
    elif model.initial.device.type != "cpu":
        obstacle = "compiled code runs on a CPU only"
    elif not is_installed("numba"):
        obstacle = f"Numba is not installed (type: {how_to_install('fast')})"
    if engine == "compiled" and obstacle:
        raise InputError("training.engine", engine, f"auto or torch, since {obstacle}")
    return "torch" if engine == "torch" or obstacle else "compiled"
