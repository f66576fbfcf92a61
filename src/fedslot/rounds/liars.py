"""The lying UEs of a scenario: the samples on which they train, and what they send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.attacks import Attack, Knowledge, Poisoning, Samples
from fedslot.data.sources import Dataset
from fedslot.fleet import Fleet
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.models import Model
from fedslot.messages import UEs
from fedslot.rounds.held_out import tensors
from fedslot.scenario import AttackPart, Scenario
from fedslot.support.errors import InputError, RefusedError, shorten
from fedslot.support.limits import longest_step
from fedslot.support.rng import ATTACK, stream
from fedslot.support.threads import Threads

BELOW = 1 - 1e-5  # of the longest step, so that rounding makes none longer


@dataclass(frozen=True)
class Liars:
    """The UEs of `fleet.attack`.

    samples: training samples of all UEs, then the poisoned ones. poisoned: positions of these by liar.
    longest: the longest step that the PS of a deployment accepts. classes: of the data set.
    """

    section: AttackPart
    attack: Attack
    fleet: Fleet
    seed: int
    samples: Samples
    poisoned: Mapping[int, NDArray[np.int64]]
    longest: float
    classes: int

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, data: Dataset, initial: Tensor) -> Liars | None:
        """Return the liars of a scenario; None if all UEs are honest. initial: (P,) the model before training."""
        section = scenario.fleet.attack
        if section is None:
            return None
        attack, samples, poisoned = section.make(), (data.x_train, data.y_train), {}
        if isinstance(attack, Poisoning):
            if not data.classes:
                allowed = "an attack on updates, such as sign-flip: poisoned samples have classes, not numbers"
                raise InputError("fleet.attack", section.name, allowed)
            parts, count, shape = [samples], len(data.y_train), data.x_train.shape[1:]
            for ue in np.flatnonzero(fleet.liars).tolist():
                own = fleet.shares.share(ue)
                rng = stream(scenario.seed, ATTACK, ue)
                part = attack.poison((data.x_train[own], data.y_train[own]), data.classes, rng)
                _check_samples(f"attack {section.name} must return from poison()", part, shape, data.classes, len(own))
                parts.append(part)
                poisoned[ue] = np.arange(count, count + len(own))
                count += len(own)
            samples = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        return cls(section, attack, fleet, scenario.seed, samples, poisoned, longest_step(initial), data.classes)

    def share(self, ue: int, round: int) -> NDArray[np.int64]:
        """Return the positions in `samples` of those on which a UE trains in a round."""
        if ue in self.poisoned and self.fleet.lies(ue, round):
            return self.poisoned[ue]
        return self.fleet.shares.share(ue)

    def skips_chain(self, ue: int) -> bool:
        """Return whether a UE's updates do not pass the update chain."""
        return bool(self.fleet.liars[ue]) and not self.section.chain

    def lying(self, ues: UEs, round: int) -> NDArray[np.bool_]:
        """Return which UEs (n,) lie in a round."""
        return np.array([self.fleet.lies(ue, round) for ue in ues.tolist()], dtype=bool)

    def lie(
        self, start: Tensor, trained: Tensor, models: Tensor, ues: UEs, lying: NDArray[np.bool_], round: int
    ) -> None:
        """Replace the models of liars by lies.

        start: (P,) the broadcast model. trained: (Y, P) what UEs (Y,) have trained. models: (Y, P) what the honest ones
        send, and what liars have trained. lying: (Y,) which of them lie.
        """
        rows = torch.from_numpy(lying)
        own = models[rows] - start
        steps = self.attack.steps(Knowledge(own, ues[lying], models - start, trained - start, round, self.seed))
        if not isinstance(steps, Tensor) or steps.shape != own.shape or steps.dtype != own.dtype:
            part = f"round {round}: attack {self.section.name}"
            raise RefusedError(f"{part} must return from steps() a tensor {tuple(own.shape)} of {own.dtype}")
        if self.section.at_limit:
            lengths = torch.linalg.vector_norm(steps.double(), dim=1, keepdim=True)
            steps = (steps * (BELOW * self.longest / lengths.clamp(min=1e-30))).to(own)
        models[rows] = start + steps

    def goal(self, model: Model, test: Evaluator, threads: Threads) -> Evaluator | None:
        """Return what evaluates models by the goal of the attack, on test samples; None if it has no goal."""
        if not isinstance(self.attack, Poisoning):
            return None
        x, y = test.x.cpu().numpy(), test.y.cpu().numpy()
        wanted = self.attack.goal((x, y), self.classes)
        _check_samples(f"attack {self.section.name} must return from goal()", wanted, x.shape[1:], self.classes)
        return Evaluator(model, *tensors(model, *wanted), threads)


def _check_samples(must: str, given: object, shape: tuple[int, ...], classes: int, count: int | None = None) -> None:
    """Refuse samples of another form, or of another number than `count`; None: any number above 0."""
    x, y = given if isinstance(given, tuple) and len(given) == 2 else (None, None)
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.dtype == np.float32 and y.dtype.kind in "iu":
        right = x.shape == (len(y), *shape) and y.shape == (len(x),) and len(y) == (count or len(y)) > 0
        if right and np.isfinite(x).all() and 0 <= y.min() <= y.max() < classes:
            return
    number = "some" if count is None else count
    wanted = f"inputs ({number}, {', '.join(map(str, shape))}) of float32 and their labels from 0 to {classes - 1}"
    raise RefusedError(f"{must} {wanted}, not {shorten(given)}")
