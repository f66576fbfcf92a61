"""The PS's held-out samples: they test the model, validate it, and value what was received."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.errors import InputError, RefusedError
from fedslot.learning.aggregation import coalition_weights
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.models import Model
from fedslot.rng import stream
from fedslot.scenario import MOST_EXACT_PLAYERS, Scenario
from fedslot.threads import each
from fedslot.valuation import Game, Geometry, Valuation, make_method

PARAMETERS = 8192  # whose products are summed at a time


class Judges:
    """Held-out samples x (n, *shape), y (n,): one part tests, one part validates, some of which judge coalitions."""

    def __init__(self, scenario: Scenario, model: Model, x: NDArray[np.float32], y: NDArray[np.int64]) -> None:
        self.scenario = scenario
        options = scenario.valuation
        self.method = make_method(options.method, options.model_dump(), options.options)
        count = round(scenario.data.validation * len(y))
        if not 0 < count < len(y):
            allowed = f"such that both parts of the {len(y)} test samples get one"
            raise InputError("data.validation", scenario.data.validation, allowed)
        judging = scenario.valuation.samples or count
        if judging > count:
            raise InputError("valuation.samples", judging, f"at most {count}, the number of validation samples")
        order = stream(scenario.seed, "held-out").permutation(len(y))
        parts = order[count:], order[:count], order[:judging]
        self.test, self.validation, self.jury = (Evaluator(model, *tensors(model, x[part], y[part])) for part in parts)

    def value(self, model: Tensor, updates: Tensor, sizes: NDArray[np.int64], round: int) -> Valuation:
        """Shapley values of updates (Y, P) of a model (P,) from UEs with `sizes` (Y,) samples."""
        if not len(updates):
            return no_values(0)
        options = self.scenario.valuation
        rows = torch.cat([model.unsqueeze(0), updates])
        measure = self.jury.mixtures(rows)
        geometry = Geometry(sizes, _inner_products(updates - model))

        def utility(members: NDArray[np.bool_]) -> NDArray[np.float64]:
            weights = torch.from_numpy(coalition_weights(members, sizes)).to(model)
            losses, accuracies = measure(weights)
            found = -losses if options.utility == "loss" else accuracies
            return finite(found, self.scenario, round).cpu().numpy()

        game, rng = Game(len(updates), utility, geometry), stream(self.scenario.seed, "valuation", round)
        # a capture channel can bring more than one update a slot
        if options.method == "exact" and game.players > MOST_EXACT_PLAYERS:
            raise RefusedError(f"round {round}: {game.players} UEs are too many for valuation.method exact")
        return self.method(game, rng)


def _inner_products(rows: Tensor) -> NDArray[np.float64]:
    """Those of rows (R, P) with one another, summed in float64."""
    parts = each(lambda part: part.double() @ part.double().mT, torch.split(rows, PARAMETERS, dim=1))
    found: NDArray[np.float64] = torch.stack(parts).sum(dim=0).cpu().numpy()
    return found


def no_values(ues: int) -> Valuation:
    """What strategies get that do not go by value."""
    return Valuation(np.zeros(ues), np.zeros(ues), 0)


def finite(numbers: Tensor, scenario: Scenario, round: int) -> Tensor:
    """The same numbers; refused if training has diverged."""
    if not math.isfinite(numbers.sum()) and not torch.isfinite(numbers).all():
        raise RefusedError(
            f"round {round}: training diverged, an update or its loss is no longer finite; "
            f"lower training.lr ({scenario.training.lr}) or fleet.noise ({scenario.fleet.noise})"
        )
    return numbers


def tensors(model: Model, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Samples and labels where the model computes."""
    device = model.initial.device
    samples = torch.tensor(x, device=device)
    if model.convolves and samples.dim() == 4:  # the order in which convolutions on a CPU are fastest
        samples = samples.contiguous(memory_format=torch.channels_last)
    return samples, torch.tensor(y, device=device)
