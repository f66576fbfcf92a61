"""The interface of attacks: a lying UE trains honestly, or on poisoned samples, and then sends the steps of its attack.

A scenario says who lies, and when (`fleet.attack`); an attack says what is sent. It has no state, so what it draws
comes from the generators of `Knowledge`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.support.rng import ATTACK, stream

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Inputs (n, *shape) and their labels (n,)."""


@dataclass(frozen=True)
class Knowledge:
    """What the liars of a round know together, of all received UEs.

    own: (n, P) steps of the n liars from the broadcast model, as trained. ues: (n,) their numbers.
    sent: (Y, P) the steps of all, those of honest UEs as they are sent, with noise, and `own`. trained: (Y, P) the same
        before the update chain, which is more than can be heard on the air.
    """

    own: Tensor
    ues: NDArray[np.int64]
    sent: Tensor
    trained: Tensor
    round: int
    seed: int

    def rng(self, ue: int) -> np.random.Generator:
        """Return a generator for one liar in this round."""
        return stream(self.seed, ATTACK, self.round, ue)

    def common_rng(self) -> np.random.Generator:
        """Return a generator that is the same for all liars in all rounds."""
        return stream(self.seed, ATTACK)


class Attack(ABC):
    """An attack; one of your own is a subclass. Its options are the keyword arguments of its constructor."""

    @abstractmethod
    def steps(self, knowledge: Knowledge) -> Tensor:
        """Return the steps (n, P) from the broadcast model that the liars send."""


class Poisoning(Attack):
    """An attack on the liars' training samples; what they learn from these is sent `scale` times as long."""

    scale: float = 1.0

    @abstractmethod
    def poison(self, samples: Samples, classes: int, rng: np.random.Generator) -> Samples:
        """Return the samples, as many, on which a liar trains in place of its own. classes: number of classes."""

    @abstractmethod
    def goal(self, samples: Samples, classes: int) -> Samples:
        """Return test samples with the labels that the attack wants; the accuracy on them is `attack_success`."""

    def steps(self, knowledge: Knowledge) -> Tensor:
        return self.scale * knowledge.own
