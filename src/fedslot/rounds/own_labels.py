"""The model that the PS trains alone, the rule that says how long it is reported, and the start from its labels.

Before the first round, the PS trains on its own labels, as under `ps-alone`. Its accuracy on labels that it has not
seen is measured by cross-validation: each label is predicted by a model that was trained on others. The federated
model predicts the same labels, and once it is right more often, by a standard error, it is reported for good.

Where federated training starts from a part of the labels, only the others validate, so that it has seen none of those
on which it is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedslot.learning.evaluation import Evaluator
from fedslot.learning.models import Model
from fedslot.messages import NoState
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.local_training import JoinedTraining, LoneTraining
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

FOLDS = 5  # of the cross-validation


@dataclass(frozen=True, eq=False)
class OwnModel:
    """The model that the PS trained alone.

    model: (P,) trained on all labels. correct: (V,) whether each label was predicted by a model not trained on it.
    loss: mean loss of these predictions. reported: whether the federated model was never better yet.
    """

    model: Tensor
    correct: NDArray[np.bool_]
    loss: float
    reported: bool = True

    def compare(self, federated: Tensor, validation: Evaluator) -> OwnModel:
        """Return this model after its comparison with a federated one (P,), which ends its time if it is worse."""
        correct = validation.scores(federated).argmax(dim=1) == validation.y
        return replace(self, reported=not is_better(correct.cpu().numpy(), self.correct))


class OwnLabels:
    """The PS's labels as samples to train on."""

    def __init__(self, scenario: Scenario, network: Model, held_out: HeldOut) -> None:
        if not network.task.classes:
            allowed = "null, since correct predictions decide which model is reported, and targets are numbers"
            raise InputError("training.ps", scenario.training.ps, allowed)
        self.validation, self.labels = held_out.validation, held_out.labels.y.cpu().numpy()
        self.training = LoneTraining(scenario, network, held_out.labels)
        self.share = np.arange(len(self.validation.y), len(self.labels))  # the labels that never validate
        self.joined = JoinedTraining(scenario, network, held_out.labels, self.share) if scenario.ps_joins else None

    def alone(self, start: Tensor) -> OwnModel | NoState:
        """Train from a model (P,) on all labels; no model if a class has too few for each fold to learn it."""
        scores, everything, folds = self.validation.scores(start), np.arange(len(self.labels)), make_folds(self.labels)
        shares = [everything[folds != fold] for fold in range(FOLDS)]
        if any(len(np.unique(self.labels[share])) < scores.shape[1] for share in shares):
            return NoState()
        model, *others = self.training.train(start, [everything, *shares])
        for fold, other in enumerate(others):
            validating = folds[: len(scores)] == fold
            scores[validating] = self.validation.scores(other)[validating]
        correct = scores.argmax(dim=1) == self.validation.y
        return OwnModel(model, correct.cpu().numpy(), float(cross_entropy(scores, self.validation.y)))

    def warm(self, start: Tensor) -> Tensor:
        """Train from a model (P,) on the labels that do not validate, up to the epoch of least validation loss."""
        return min(self.training.epochs(start, self.share), key=lambda model: self.validation.evaluate(model)[0])

    def join(self, start: Tensor, round: int) -> Tensor | None:
        """Train from the broadcast (P,) as one more UE, on the labels that do not validate; None if the PS does not."""
        return self.joined(start, round) if self.joined else None


def make_folds(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold (n,) of each label (n,): those of a class are dealt out to the folds in turn."""
    folds = np.empty_like(labels)
    folds[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % FOLDS
    return folds


def is_better(correct: NDArray[np.bool_], others: NDArray[np.bool_]) -> bool:
    """Return whether predictions are correct more often than others of the same labels, by a standard error.

    >>> is_better(np.array([True, True, True, True]), np.array([True, False, False, True]))
    True
    >>> is_better(np.array([True, True, False, True]), np.array([True, False, False, True]))
    False
    """
    gains = correct.astype(float) - others
    return bool(gains.mean() > gains.std(ddof=1) / math.sqrt(len(gains)))
