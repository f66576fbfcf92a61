"""The PS's own training on its samples."""

from __future__ import annotations

import torch

from fedslot import Scenario
from fedslot.rounds.local_training import LoneTraining
from fedslot.rounds.simulation import Simulation


def _simulation() -> Simulation:
    return Simulation(Scenario.load("quickstart", {"data.validation_samples": 60, "training.epochs": 2}))


def test_the_labels_are_trained_on_always_in_the_same_order() -> None:
    simulation = _simulation()
    training, model = simulation.ps.training, simulation.model.initial
    change = training.train(model, 3)
    assert torch.equal(change, _simulation().ps.training.train(model, 8))
    labels = simulation.held_out.labels
    assert labels.evaluate(model + change)[0] < labels.evaluate(model)[0]
    assert training.train(model + change, 3) is change  # cached by version


def test_imitation_leads_to_the_predictions_of_the_other_model() -> None:
    simulation = _simulation()
    training, model, inputs = simulation.ps.training, simulation.model.initial, simulation.held_out.labels
    assert torch.equal(training.imitate(model, model), torch.zeros_like(model)) or (
        float(training.imitate(model, model).norm()) < 1e-5
    )
    target = LoneTraining(simulation.scenario, simulation.model, inputs).train(model, [torch.arange(60).numpy()])[0]
    imitated = model + training.imitate(model, target)

    def distance(one: torch.Tensor) -> float:
        return float((inputs.scores(one).softmax(1) - inputs.scores(target).softmax(1)).norm())

    assert distance(imitated) < distance(model)
