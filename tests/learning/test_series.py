"""Networks for time series, against layers of PyTorch over one dimension, and runs with them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedslot import run
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model
from fedslot.learning.series import cnn1d, gru
from fedslot.learning.side_by_side import SideBySide
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

TIME, CHANNELS = 13, 3
SHAPE = (1, TIME, CHANNELS)


def test_cnn1d_is_a_network_of_convolutions_over_time():
    torch.manual_seed(0)
    module, x = cnn1d(SHAPE, 4, filters=5), torch.randn(7, *SHAPE)
    plain = nn.Sequential(
        nn.Conv1d(CHANNELS, 5, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(5, 10, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(10 * 3, 4),
    )
    with torch.no_grad():
        for own, given in zip(plain.parameters(), module.parameters(), strict=True):
            own.copy_(given.reshape(own.shape))
    torch.testing.assert_close(module(x), plain(x.squeeze(1).mT))


def test_gru_reads_the_last_state():
    torch.manual_seed(0)
    module, x = gru(SHAPE, 2, hidden=6), torch.randn(5, *SHAPE)
    cell = nn.GRUCell(CHANNELS, 6)
    with torch.no_grad():
        for own, given in zip(cell.parameters(), module.gru.parameters(), strict=True):
            own.copy_(given)
    state = torch.zeros(5, 6)
    for step in range(TIME):
        state = cell(x[:, 0, step], state)
    torch.testing.assert_close(module(x), module.out(state))


@pytest.mark.parametrize("factory", [cnn1d, gru])
def test_averages_are_those_of_each_network_alone(factory):
    """Recurrent layers keep lists of their parameters, which a functional call must replace as well."""
    torch.manual_seed(0)
    model = Model(factory(SHAPE, 4))
    x, y = torch.randn(30, *SHAPE), torch.randint(4, (30,))
    models, weights = 0.5 * torch.randn(3, model.size), torch.tensor([[1.0, 0, 0], [0.2, 0.3, 0.5]])
    losses, scores = Evaluator(model, x, y).averages(models)(weights)
    for row, loss, score in zip(weights, losses, scores, strict=True):
        outputs = model.module_with(row @ models)(x).detach()
        assert float(loss) == pytest.approx(float(nn.functional.cross_entropy(outputs, y)), rel=1e-4)
        assert float(score) == pytest.approx(float((outputs.argmax(1) == y).float().mean()))


def test_convolutions_over_time_are_known_layers_and_recurrent_ones_are_not():
    x = torch.randn(20, *SHAPE)
    assert SideBySide.of(cnn1d(SHAPE, 4)) is not None
    assert LayerStatistics(Model(cnn1d(SHAPE, 4)), x).complete
    assert not LayerStatistics(Model(gru(SHAPE, 4)), x).complete


@pytest.mark.parametrize(("name", "shape"), [("cnn1d", (1, 3, 2)), ("cnn1d", (3, 8, 8)), ("gru", (5,))])
def test_other_samples_are_refused(name, shape):
    with pytest.raises(InputError, match=rf"training.model: '{name}' .* {name} takes series: a file with inputs"):
        Model.build(name, shape, 2, 0)


@pytest.fixture(scope="module")
def waves(tmp_path_factory) -> str:
    """Sines of three frequencies, at any phase, in two noisy channels: no single step of time tells the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    phase, time = rng.uniform(0, 2 * np.pi, size=900), np.arange(24)
    wave = np.sin((0.3 + 0.4 * y[:, None]) * time + phase[:, None])
    x = np.stack([wave, -wave], axis=2) + 0.2 * rng.normal(size=(900, 24, 2))
    file = tmp_path_factory.mktemp("data") / "waves.npz"
    np.savez(
        file, x_train=x[:600].astype(np.float32), y_train=y[:600], x_test=x[600:].astype(np.float32), y_test=y[600:]
    )
    return str(file)


@pytest.mark.parametrize(
    ("model", "aggregation"), [("cnn1d", "average"), ("cnn1d", "filtered"), ("gru", "average"), ("gru", "filtered")]
)
def test_runs_learn_to_tell_frequencies(waves, model, aggregation):
    scenario = Scenario(
        rounds=6,
        data={"dataset": waves, "ues": 12, "alpha": 10.0},
        fleet={"noise": 0.001, "stragglers": 0.0},
        frame={"slots": 8, "pull": 4},
        push={"contenders": 4},
        training={"model": model, "lr": 0.2, "momentum": 0.9, "batch_size": 16},
        aggregation=aggregation,
    )
    assert run(scenario).rounds["test_accuracy"].max() > 0.7  # 1/3 by chance


def test_a_step_of_a_recurrent_network_is_that_of_pytorch(waves):
    """One step of local training is a step of plain PyTorch, for recurrent networks too."""
    from fedslot.rounds.simulation import Simulation

    fields = {"data": {"dataset": waves, "ues": 12}, "frame": {"slots": 8, "pull": 4}, "push": {"contenders": 4}}
    simulation = Simulation(Scenario(**fields, training={"model": "gru", "epochs": 1, "batches": 1}))
    start, ue = simulation.model.initial, np.array([3])
    (job,) = simulation.local.jobs(ue, 0)
    found = simulation.local.train(start, ue, 0).models[0]
    x, y = simulation.trainer.x[job.share], simulation.trainer.y[job.share]
    flat = start.clone().requires_grad_()
    module = simulation.model.copy().module
    loss = nn.functional.cross_entropy(functional_call(module, simulation.model.unflatten(flat), (x,)), y)
    (gradient,) = torch.autograd.grad(loss, flat)
    torch.testing.assert_close(found, start - 0.01 * gradient, rtol=1e-4, atol=1e-6)
