"""The PS's own model: how it is measured, how long it is reported, and that nothing else changes."""

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedslot import Callback, InputError, Scenario, run
from fedslot.aggregation.base import StatelessAggregation
from fedslot.data.sources import load
from fedslot.messages import NoState
from fedslot.rounds.held_out import HeldOut, held_out_counts
from fedslot.rounds.local_training import JoinedTraining
from fedslot.rounds.own_labels import FOLDS, OwnLabels, OwnModel, is_better, make_folds
from fedslot.rounds.ps import Step
from fedslot.rounds.simulation import Simulation
from fedslot.support.rng import stream

SMALL = {"rounds": 30, "data.validation_samples": 60, "training.ps": "alone", "strategy.name": "fedavg"}
FILTERED = {"strategy.name": "merit-push", "aggregation.name": "filtered"}


def _scenario(**fields: object) -> Scenario:
    return Scenario.load("quickstart", {**SMALL, **{key.replace("__", "."): value for key, value in fields.items()}})


def _steps(scenario: Scenario) -> list[Step]:
    return list(Simulation(scenario).rounds())


def _predictions(simulation: Simulation, model: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    """Predict by the network as a plain module."""
    module = simulation.model.copy().module.eval()
    torch.nn.utils.vector_to_parameters(model.clone(), module.parameters())
    with torch.no_grad():
        return module(x).argmax(dim=1).numpy()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
@example([(True, False), (True, True)])  # a difference of exactly one standard error is none
@example([(True, True)] * 9)
def test_better_is_by_a_standard_error_of_the_paired_differences(pairs):
    gains = [int(one) - int(other) for one, other in pairs]
    ones, others = (np.array(column) for column in zip(*pairs, strict=True))
    difference = fmean(gains) - stdev(gains) / len(gains) ** 0.5
    if abs(difference) > 1e-12:
        assert is_better(ones, others) == (difference > 0)
    assert not (is_better(ones, others) and is_better(others, ones))


@given(st.lists(st.integers(0, 3), min_size=FOLDS, max_size=60))
def test_folds_are_even_and_two_labels_of_a_class_are_apart(labels):
    folds = make_folds(np.array(labels))
    counts = np.bincount(folds, minlength=FOLDS)
    assert counts.max() - counts.min() <= 1
    for label in set(labels):
        own = folds[np.array(labels) == label]
        assert len(set(own)) == min(len(own), FOLDS)


def test_labels_without_meaning_are_learnt_by_heart_but_not_predicted():
    """So no label is predicted by a model that was trained on it."""
    scenario, data = _scenario(data__validation_samples=300), load("digits")
    simulation = Simulation(scenario)
    y = np.random.default_rng(1).permutation(data.y_test)
    held_out = HeldOut(scenario, simulation.model, data.x_test, y)
    own = OwnLabels(scenario, simulation.model, held_out).alone(simulation.model.initial)
    assert isinstance(own, OwnModel)
    assert held_out.validation.evaluate(own.model)[1] > 0.6
    assert own.correct.mean() == pytest.approx(0.1, abs=4 * (0.09 / 300) ** 0.5)
    assert own.loss > np.log(10)


def test_the_accuracy_on_labels_that_were_not_seen_is_about_that_on_test_samples():
    simulation = Simulation(_scenario(data__validation_samples=300))
    own = simulation.start().own
    loss, accuracy = simulation.held_out.test.evaluate(own.model)
    assert own.correct.mean() == pytest.approx(accuracy, abs=0.06)
    assert own.loss == pytest.approx(loss, rel=0.5)


@pytest.mark.parametrize(
    "fields", [{}, FILTERED, {"strategy.name": "push-pull"}, {"strategy.name": "power-of-choice"}], ids=str
)
def test_the_own_model_is_reported_until_the_federated_one_is_better_and_nothing_else_changes(fields):
    plain, own = (_steps(_scenario(**fields, training__ps=ps)) for ps in (None, "alone"))
    for one, other in zip(plain, own, strict=True):
        assert torch.equal(one.now.model, other.now.model)
        assert one.frame == other.frame
        assert one.round.slots_spent == other.round.slots_spent
    simulation = Simulation(_scenario(**fields))
    start, validation = simulation.start(), simulation.held_out.validation
    assert torch.equal(start.model, simulation.model.initial)
    assert torch.equal(start.report, start.own.model)
    switched = False
    for one, other in zip(plain, own, strict=True):
        correct = _predictions(simulation, one.now.report, validation.x) == validation.y.numpy()
        gains = correct.astype(float) - start.own.correct
        switched = switched or gains.mean() > gains.std(ddof=1) / 60**0.5
        assert torch.equal(other.now.report, one.now.report if switched else start.own.model)
        assert other.round.val_loss == (one.round.val_loss if switched else pytest.approx(start.own.loss))
        assert other.now.own.reported == (not switched)
    assert own[0].now.own.reported
    assert switched, "the test would see only one half of the rule"


def test_where_it_is_reported_it_is_that_of_ps_alone():
    row = run(_scenario(rounds=1)).rounds.iloc[0]
    alone = run(_scenario(strategy__name="ps-alone")).rounds.iloc[0]
    assert (row.test_loss, row.test_accuracy) == pytest.approx((alone.test_loss, alone.test_accuracy), rel=1e-3)
    assert row.slots_spent > alone.slots_spent == 0


def test_while_nothing_is_received_it_stays():
    """A model that is its own report must not be compared with itself: it knows its labels by heart."""
    steps = _steps(_scenario(rounds=4, fleet__computing={"slot": 1e-9}))
    assert len({step.round.test_loss for step in steps}) == len({step.round.val_loss for step in steps}) == 1
    assert all(step.now.own.reported for step in steps)


@pytest.mark.parametrize("labelled", [1, 12, 398])
def test_with_too_few_labels_of_a_class_the_rule_does_not_apply(labelled):
    """With 1 and 12 labels of ten classes, some class has less than two; of 398, those of one class are taken away."""
    scenario, data = _scenario(rounds=2, data__validation_samples=labelled), load("digits")
    simulation = Simulation(scenario)
    y = np.where(data.y_test == 4, 9, data.y_test) if labelled == 398 else data.y_test
    held_out = HeldOut(scenario, simulation.model, data.x_test, y)
    assert isinstance(OwnLabels(scenario, simulation.model, held_out).alone(simulation.model.initial), NoState)
    if labelled < 398:
        plain, own = (_steps(scenario.replace({"training.ps": ps})) for ps in (None, "alone"))
        assert torch.equal(plain[-1].now.report, own[-1].now.report)


@pytest.mark.parametrize(
    ("labelled", "validating"), [(2, 1), (50, 25), (999, 499), (1000, 500), (2500, 500), (2505, 501), (5000, 1000)]
)
def test_half_of_the_labels_validate_or_500_or_a_fifth(labelled, validating):
    counts = held_out_counts(_scenario(data__validation_samples=labelled, training__ps="start"), 10_000)
    assert (counts.labelled, counts.validating, counts.valued) == (labelled, validating, validating)


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"data.validation_samples": 1}, "data.validation_samples: 1 .* at least 2 with training.ps start"),
        ({"valuation.samples": 31}, "valuation.samples: 31 .* at most 30"),
    ],
)
def test_a_start_needs_labels_for_both(fields, refused):
    with pytest.raises(InputError, match=refused):
        Simulation(_scenario(**fields, training__ps="start"))


def test_labels_that_validate_are_not_trained_on():
    """Other labels change the epoch that is chosen, but none of the models among which it is."""
    simulation = Simulation(_scenario(training__ps="start"))
    held_out, initial = simulation.held_out, simulation.model.initial
    assert torch.equal(held_out.validation.x, held_out.labels.x[:30])
    assert torch.equal(held_out.utility.x, held_out.validation.x)
    assert len(held_out.inputs) == 60
    labels = OwnLabels(simulation.scenario, simulation.model, held_out)
    epochs = torch.stack(list(labels.training.epochs(initial, np.arange(30, 60))))
    losses = held_out.validation.losses(epochs)
    assert torch.equal(labels.warm(initial), epochs[np.argmin(losses)])
    assert 0 < np.argmin(losses) < len(epochs) - 1, "the loss rises again once the labels are learnt by heart"
    held_out.labels.y[:30] = held_out.validation.y.roll(7)
    others = OwnLabels(simulation.scenario, simulation.model, held_out).training
    assert torch.equal(torch.stack(list(others.epochs(initial, np.arange(30, 60)))), epochs)


def test_a_warm_start_is_broadcast_and_measured_on_the_other_labels():
    cold, warm = (Simulation(_scenario(**FILTERED, training__ps=ps)) for ps in ("alone", "start"))
    before, after = cold.start(), warm.start()
    test = warm.held_out.test
    assert test.evaluate(after.model)[1] > test.evaluate(before.model)[1] + 0.3
    assert torch.equal(after.report, before.report)
    np.testing.assert_array_equal(after.own.correct, before.own.correct[:30])


@pytest.mark.parametrize("name", ["ps-alone", "centralized"])
def test_where_the_ps_trains_anyway_it_has_no_effect(name):
    plain, own = (_steps(_scenario(rounds=2, strategy__name=name, training__ps=ps)) for ps in (None, "start"))
    assert torch.equal(plain[-1].now.report, own[-1].now.report)


class _Stop(Callback):
    def __init__(self, last: int) -> None:
        self.last = last

    def round(self, row: object, frame: object) -> bool:
        return row.round == self.last


def _rows(folder: Path) -> list[str]:
    return [line.rpartition(",")[0] for line in (folder / "rounds.csv").read_text().splitlines()]


class Echo(StatelessAggregation):
    """Takes the PS's own update for the next model."""

    def model(self, updates):
        assert updates.own_size == 30
        return updates.own


def test_the_ps_trains_as_one_more_ue():
    """By hand from the warm start: two epochs of three minibatches of the labels that do not validate."""
    fields = {"training__epochs": 2, "training__batches": 3, "aggregation__name": f"{__name__}:Echo"}
    simulation = Simulation(_scenario(**fields, training__ps="join", rounds=1))
    start, module = simulation.start().model, simulation.model.copy().module.train()
    torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=simulation.scenario.training.lr, momentum=0.5)
    labels, shuffle = simulation.held_out.labels, stream(0, "shuffle", 0, simulation.scenario.data.ues)
    for _ in range(2):
        for minibatch in np.array_split(shuffle.permutation(np.arange(30, 60)), 3):
            optimiser.zero_grad()
            cross_entropy(module(labels.x[minibatch]), labels.y[minibatch]).backward()
            optimiser.step()
    (step,) = simulation.rounds()
    trained = torch.nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(step.now.model, trained.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("share", "epochs", "batches"), [(3, 5, 5), (800, 5, 5), (801, 1, 26), (4000, 1, 125)])
def test_with_many_labels_the_ps_trains_one_epoch_of_minibatches_of_32(share, epochs, batches):
    simulation = Simulation(_scenario(training__epochs=5, training__batches=5))
    training = JoinedTraining(simulation.scenario, simulation.model, simulation.held_out.labels, np.arange(share))
    assert (training.epochs, training.trainer.recipe.batches) == (epochs, batches)


def test_the_ps_is_none_of_the_ues():
    steps = _steps(_scenario(**FILTERED, training__ps="join", rounds=6))
    received = sum(step.round.pulled + step.round.push_received for step in steps)
    assert steps[-1].now.aggregation.seen.sum() == received
    assert steps[-1].now.aggregation.products[0] > 1


@pytest.mark.parametrize("name", ["average", "fedadam"])
def test_other_aggregations_take_no_update_of_the_ps(name):
    with pytest.raises(InputError, match=f"training.ps: 'join' .* null, alone or start with {name}; use filtered"):
        _scenario(training__ps="join", aggregation__name=name)
    _scenario(training__ps="join", strategy__name="ps-alone")  # where it has no effect


@pytest.mark.parametrize("ps", ["alone", "start", "join"])
def test_a_run_goes_on_to_the_identical_result_before_and_after_the_switch(ps: str, tmp_path: Path):
    scenario = _scenario(**FILTERED, training__ps=ps)
    whole = run(scenario, tmp_path / "whole")
    accuracy = whole.rounds["test_accuracy"].to_list()
    switch = next(round for round, (one, other) in enumerate(pairwise(accuracy), 1) if one != other)
    assert switch > 2
    for threads, stop in ((2, 1), (1, switch + 1)):
        run(scenario, tmp_path / str(stop), callbacks=[_Stop(stop)])
        resumed = run(scenario, tmp_path / str(stop), resume=True, threads=threads)
        assert _rows(tmp_path / str(stop)) == _rows(tmp_path / "whole")
        assert np.array_equal(resumed.model, whole.model)


def test_rounds_go_on_from_a_snapshot():
    scenario = _scenario(rounds=6)
    steps = _steps(scenario)
    resumed = Simulation(scenario).rounds(steps[1].now)
    for one, other in zip(resumed, steps[2:], strict=True):
        assert {**asdict(one.round), "seconds": 0} == {**asdict(other.round), "seconds": 0}
