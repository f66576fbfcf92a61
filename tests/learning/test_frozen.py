"""Networks with frozen parts: these neither train nor are sent, and all else is as in a network of the others alone."""

import numpy as np
import pytest
import torch
from torch import nn

from fedslot import run
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model
from fedslot.learning.training import Trainer, choose_engine
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario

HIDDEN = 12


def adapted(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A perceptron whose first layer is frozen."""
    first = nn.Linear(int(np.prod(shape)), HIDDEN).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(HIDDEN, outputs))


@pytest.fixture
def samples() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(60, 1, 4, 4), torch.randint(3, (60,))


def _model() -> Model:
    torch.manual_seed(0)
    return Model(adapted((1, 4, 4), 3))


def test_only_what_trains_is_in_the_flat_vector():
    model = _model()
    assert list(model.shapes) == ["3.weight", "3.bias"]
    assert model.size == 3 * HIDDEN + 3
    assert model.tensor_shapes == [(3, HIDDEN), (3,)]
    changed = model.module_with(torch.ones(model.size))
    assert (changed[3].weight == 1).all()
    assert torch.equal(changed[1].weight, model.module[1].weight)


def test_training_is_that_of_the_last_layer_on_the_features_of_the_frozen_one(samples):
    model, (x, y) = _model(), samples
    recipe = Recipe(lr=0.1, momentum=0.5, batches=4, proximal=0.2)
    with torch.no_grad():
        features = model.module[:3](x)
    head = Model(nn.Sequential(nn.Linear(HIDDEN, 3)))
    head.initial = model.initial.clone()
    updates = [
        Trainer(each, inputs, y, recipe, "torch")(model.initial, [Job(np.arange(9, 50), 3, np.random.default_rng(1))])
        for each, inputs in ((model, x), (head, features))
    ]
    torch.testing.assert_close(*updates, rtol=1e-4, atol=1e-5)
    assert choose_engine(model, recipe, "auto") == "torch"


def test_evaluation_and_statistics_are_those_of_the_last_layer(samples):
    model, (x, y) = _model(), samples
    with torch.no_grad():
        features = model.module[:3](x)
    head = Model(nn.Sequential(nn.Linear(HIDDEN, 3)))
    head.initial = model.initial.clone()
    models, weights = torch.randn(3, model.size), torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found, expected = (
        Evaluator(each, inputs, y).averages(models)(weights) for each, inputs in ((model, x), (head, features))
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    whole, alone = LayerStatistics(model, x), LayerStatistics(head, features)
    assert whole.complete
    responses = [each.responses(models, model.initial) for each in (whole, alone)]
    torch.testing.assert_close(*[each @ each.mT for each in responses], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("aggregation", ["average", "filtered"])
def test_a_run_sends_the_bits_of_what_trains(aggregation):
    fields = {
        "rounds": 3,
        "training.model": adapted,
        "aggregation.name": aggregation,
        "fleet.noise": 0.001,
        "training.lr": 0.2,
    }
    result = run(Scenario.load("quickstart", fields))
    simulation = Simulation(result.scenario)
    parameters = 10 * HIDDEN + 10
    assert simulation.model.size == parameters
    received = result.rounds["pulled"] + result.rounds["push_received"]
    assert (result.rounds["bits"] == 32 * parameters * received).all()
    assert torch.equal(result.module()[1].weight, simulation.model.module[1].weight)
    assert result.rounds["test_loss"].is_monotonic_decreasing
