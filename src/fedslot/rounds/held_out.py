"""Held-out samples of the PS: they test the model, validate it, and value the received updates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.learning.evaluation import MANY, Evaluator
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model
from fedslot.learning.tasks import ACCURACY
from fedslot.scenario import MOST_EXACT_PLAYERS, Scenario
from fedslot.support.errors import InputError, RefusedError, shorten
from fedslot.support.rng import HELD_OUT, VALUATION, stream
from fedslot.support.threads import ONE_THREAD, Threads
from fedslot.valuation import Game, Geometry, Valuation
from fedslot.valuation.game import coalition_weights, weights_by_missing

PARAMETERS = 8192  # per block of inner products
MOST_HALF = 500  # labels that validate beside those that the PS trains on: half of all, up to so many, or a fifth


class HeldOut:
    """Held-out samples x (n, *shape) with labels y (n,), split into a test set and a validation set.

    test: evaluates models on the test set. labels: on all labelled samples of the validation set. validation: on those
        of them that the PS does not train on, the first ones.
    inputs: labelled and unlabelled inputs that the PS has, (n, *shape). statistics: of the layers' inputs on these.
    utility: evaluates coalitions on the labelled samples, or on the `valuation.samples` first of them.
    """

    def __init__(
        self,
        scenario: Scenario,
        model: Model,
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        threads: Threads = ONE_THREAD,
    ) -> None:
        self.scenario, self.threads = scenario, threads
        options = scenario.valuation
        self.method = options.make()
        if options.utility == "accuracy" and model.task.score != ACCURACY:
            allowed = f"loss, since training.task reports the {model.task.score.label}"
            raise InputError("valuation.utility", options.utility, allowed)
        count, labelled, validating, unlabelled, samples = held_out_counts(scenario, len(y))
        order = stream(scenario.seed, HELD_OUT).permutation(len(y))

        def evaluator(part: NDArray[np.int64]) -> Evaluator:
            return Evaluator(model, *tensors(model, x[part], y[part]), threads)

        self.test, self.labels = evaluator(order[count:]), evaluator(order[:labelled])
        self.validation = self.labels if validating == labelled else evaluator(order[:validating])
        self.utility = self.validation if samples == validating else evaluator(order[:samples])
        self.inputs = self.labels.x
        if unlabelled:
            self.inputs = tensors(model, x[order[: labelled + unlabelled]], y[:0])[0]
        self.statistics = LayerStatistics(model, self.inputs)

    def value(self, model: Tensor, updates: Tensor, sizes: NDArray[np.int64], round: int) -> Valuation:
        """Value updates (Y, P) of a model (P,) from UEs with `sizes` (Y,) training samples."""
        if not len(updates):
            return no_values(0)
        options = self.scenario.valuation
        models, weigh = [model.unsqueeze(0), updates], coalition_weights
        if len(updates) > MANY:
            average = torch.from_numpy(sizes / sizes.sum()).to(updates) @ updates
            models, weigh = [*models, average.unsqueeze(0)], weights_by_missing
        measure = self.utility.averages(torch.cat(models))

        def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
            weights = torch.from_numpy(weigh(members, sizes)).to(model)
            losses, scores = measure(weights)
            worths = -losses if options.utility == "loss" else scores
            return finite(worths, self.scenario, round).cpu().numpy()

        # a capture channel can bring more than one update a slot
        if options.name == "exact" and len(updates) > MOST_EXACT_PLAYERS:
            raise RefusedError(f"round {round}: {len(updates)} UEs are too many for valuation.name exact")
        geometry = Geometry(sizes, self._inner_products(updates - model))
        valuation = self.method(Game(len(updates), utility, geometry), stream(self.scenario.seed, VALUATION, round))
        part = f"round {round}: valuation.name {options.name} must return"
        if not isinstance(valuation, Valuation):
            raise RefusedError(f"{part} a Valuation, not {shorten(valuation)}")
        arrays = [array for array in (valuation.values, valuation.errors) if isinstance(array, np.ndarray)]
        right = [array.shape == (len(updates),) and array.dtype.kind in "iuf" for array in arrays]
        if right != [True, True] or not np.isfinite(valuation.values).all():
            wanted = f"a finite value and a standard error for each of the {len(updates)} received UEs"
            raise RefusedError(f"{part} {wanted}")
        return valuation

    def _inner_products(self, steps: Tensor) -> NDArray[np.float64]:
        """Return the inner products (Y, Y) of steps (Y, P), summed in float64."""
        blocks = torch.split(steps, PARAMETERS, dim=1)
        products = self.threads.map(lambda block: block.double() @ block.double().mT, blocks)
        return np.asarray(torch.stack(products).sum(dim=0).cpu())


class HeldOutCounts(NamedTuple):
    """Numbers of held-out samples: of the validation set, its labelled and unlabelled ones, and those of utilities.

    validating: labelled samples that the PS does not train on.
    """

    validation: int
    labelled: int
    validating: int
    unlabelled: int
    valued: int


def held_out_counts(scenario: Scenario, samples: int) -> HeldOutCounts:
    """Divide the test samples of a data set as a scenario says; refuse more than there are."""
    validation = round(scenario.data.validation * samples)
    if not 0 < validation < samples:
        allowed = f"such that both parts of the {samples} test samples get one"
        raise InputError("data.validation", scenario.data.validation, allowed)
    labelled = scenario.data.validation_samples or validation
    if labelled > validation:
        raise InputError("data.validation_samples", labelled, f"at most {validation}, the size of the validation set")
    unlabelled = scenario.data.unlabelled_samples
    if unlabelled > validation - labelled:
        allowed = f"at most {validation - labelled}, the rest of the validation set"
        raise InputError("data.unlabelled_samples", unlabelled, allowed)
    validating = labelled
    if scenario.ps_starts:
        validating = max(labelled // 5, min(labelled // 2, MOST_HALF))
        if not validating:
            allowed = f"at least 2 with training.ps {scenario.training.ps}: one to train on, one to validate"
            raise InputError("data.validation_samples", labelled, allowed)
    valued = scenario.valuation.samples or validating
    if valued > validating:
        raise InputError("valuation.samples", valued, f"at most {validating}, the number of labelled samples")
    return HeldOutCounts(validation, labelled, validating, unlabelled, valued)


def no_values(ues: int) -> Valuation:
    """Return the valuation for strategies that do not go by value: zeros."""
    return Valuation(np.zeros(ues), np.zeros(ues), 0)


def finite(numbers: Tensor, scenario: Scenario, round: int) -> Tensor:
    """Return the same numbers; refuse them if training has diverged."""
    if not math.isfinite(numbers.sum()) and not torch.isfinite(numbers).all():
        scale = ", or scale the features" if scenario.data.dataset.endswith(".npz") else ""
        raise RefusedError(
            f"round {round}: training diverged, an update or its loss is no longer finite; "
            f"lower training.lr ({scenario.training.lr}) or fleet.noise ({scenario.fleet.noise}){scale}"
        )
    return numbers


def tensors(model: Model, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return samples and labels as tensors on the model's device."""
    device = model.initial.device
    samples = torch.tensor(x, device=device)
    if model.convolves and samples.dim() == 4:  # the memory order in which convolutions on a CPU are fastest
        samples = samples.contiguous(memory_format=torch.channels_last)
    return samples, torch.tensor(y, device=device)
