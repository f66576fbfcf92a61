"""Tasks: what the outputs of a network and the targets of samples mean, by which loss it trains, and how it is scored.

A task measures models by sums over samples (`tally`), so that many models and blocks of samples are measured alike,
and the score of the whole is computed from these sums (`measure`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

FIELD = "training.task"
LOGIT_SCALES = [2.0 ** (power / 4) for power in range(-20, 8)]


@dataclass(frozen=True)
class Score:
    """The number by which models are reported and compared.

    name: in columns and measures. label: in texts. higher: whether higher is better. share: whether it is from 0 to 1.
    """

    name: str
    label: str
    higher: bool = True
    share: bool = True


ACCURACY = Score("accuracy", "accuracy")
SCORES = {
    "accuracy": ACCURACY,
    "macro-f1": Score("macro_f1", "macro F1"),
    "rmse": Score("rmse", "RMSE", higher=False, share=False),
    "mae": Score("mae", "MAE", higher=False, share=False),
    "r2": Score("r2", "R2", share=False),
}


class LearningTask(ABC):
    """A task; one of your own is a subclass. Its options are the keyword arguments of its constructor.

    classes: whether targets are classes; else they are numbers.
    """

    classes: ClassVar[bool] = False
    score: Score

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of outputs (b, outputs) for targets (b,), with its gradient."""

    def loss_of_descent(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss whose gradient tells updates of use from others."""
        return self.loss(outputs, targets)

    @abstractmethod
    def tally(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return sums (T, c) over b samples, in float64, for c models with outputs (c, outputs, b); first the losses.

        The outputs may be changed in place. targets: (b,).
        """

    def measure(self, sums: Tensor, samples: int) -> Tensor:
        """Return mean losses and scores (2, c) from the sums (T, c) over all samples."""
        return sums / samples

    def check(self, dataset: str, has_classes: bool) -> None:
        """Refuse a data set with targets of the other kind."""
        if self.classes and not has_classes:
            raise InputError(
                FIELD, "classification", f"regression, since y_train of {dataset} has numbers, not classes"
            )
        if has_classes and not self.classes:
            raise InputError(FIELD, "regression", f"classification, since y_train of {dataset} has classes")


class Classification(LearningTask):
    """Classes by the largest output, trained by cross-entropy.

    score: `accuracy`, or `macro-f1`, the mean over the classes of the F1 score of each, which rare classes count in as
    much as others; a class that neither occurs nor is predicted is left out.
    """

    classes = True

    def __init__(self, *, score: Literal["accuracy", "macro-f1"] = "accuracy") -> None:
        self.score = SCORES[score]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def loss_of_descent(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of outputs that are scaled such that it is least: their scale alone makes no step useful."""
        fixed = outputs.detach()
        scale = min(LOGIT_SCALES, key=lambda scale: float(self.loss(scale * fixed, targets)))
        return self.loss(scale * outputs, targets)

    def tally(self, outputs: Tensor, targets: Tensor) -> Tensor:
        classes = outputs.shape[1]
        top, best = outputs.max(1)
        right = outputs.gather(1, targets.expand(len(outputs), 1, -1)).squeeze(1)
        losses = outputs.sub_(top.unsqueeze(1)).exp_().sum(1).log_().add_(top).sub_(right)  # log-sum-exp - right
        correct = best == targets
        sums = torch.stack([losses.sum(1, dtype=torch.float64), correct.sum(1, dtype=torch.float64)])
        if self.score == ACCURACY:
            return sums
        counts = [
            functional.one_hot(best, classes).sum(1),  # of predictions, then of targets, and of correct predictions
            functional.one_hot(targets, classes).sum(0).expand(len(outputs), -1),
            (functional.one_hot(best, classes) * correct.unsqueeze(2)).sum(1),
        ]
        return torch.cat([sums[:1], *(count.mT.double() for count in counts)])

    def measure(self, sums: Tensor, samples: int) -> Tensor:
        if self.score == ACCURACY:
            return sums / samples
        predicted, actual, correct = sums[1:].chunk(3)
        occurs = predicted + actual
        f1 = torch.where(occurs > 0, 2 * correct / occurs.clamp(min=1), 0).sum(0) / (occurs > 0).sum(0)
        return torch.stack([sums[0] / samples, f1])


class Regression(LearningTask):
    """A number from the only output, trained by `mse`, the mean squared error, or `mae`, the mean absolute error.

    score: `rmse`, the root of the mean squared error; `mae`; or `r2`, the share of the targets' variance that the model
    explains, below 0 if it is worse than their mean.
    """

    def __init__(self, *, loss: Literal["mse", "mae"] = "mse", score: Literal["rmse", "mae", "r2"] = "rmse") -> None:
        self._of = functional.mse_loss if loss == "mse" else functional.l1_loss
        self._squared, self.score = loss == "mse", SCORES[score]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._of(outputs.squeeze(1), targets)

    def tally(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, wanted = outputs.squeeze(1).double() - targets, targets.double()
        absolute, squared = errors.abs().sum(1), errors.square().sum(1)
        constant = [part.sum().expand(len(outputs)) for part in (wanted, wanted.square())]
        return torch.stack([squared if self._squared else absolute, absolute, squared, *constant])

    def measure(self, sums: Tensor, samples: int) -> Tensor:
        loss, absolute, squared, mean, power = sums / samples
        variance = (power - mean.square()).clamp(min=1e-30)
        scores = {"mae": absolute, "rmse": squared.sqrt(), "r2": 1 - squared / variance}
        return torch.stack([loss, scores[self.score.name]])


CLASSIFICATION = Classification()


def score_of(scenario: Scenario) -> Score:
    """Return the number by which the models of a scenario are reported.

    >>> score_of(Scenario()).label
    'accuracy'
    """
    score: Score = scenario.training.task.make().score
    return score
