"""Tasks: losses and scores, against PyTorch, scikit-learn's definitions and formulas by hand; training by them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedslot import compare, load, run
from fedslot.learning.evaluation import Evaluator
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, cnn, mlp
from fedslot.learning.tasks import SCORES, Classification, Regression
from fedslot.learning.training import Trainer, choose_engine
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError


def _measured(task, outputs: torch.Tensor, targets: torch.Tensor, parts: int = 3) -> torch.Tensor:
    """(2, c) of outputs (c, outputs, b), summed over blocks of samples."""
    blocks = zip(outputs.clone().tensor_split(parts, 2), targets.tensor_split(parts), strict=True)
    return task.measure(sum(task.tally(*block) for block in blocks), len(targets))


def _macro_f1(predicted: np.ndarray, actual: np.ndarray) -> float:
    scores = []
    for label in np.union1d(predicted, actual):
        hits = ((predicted == label) & (actual == label)).sum()
        precision = hits / max(1, (predicted == label).sum())
        recall = hits / max(1, (actual == label).sum())
        scores.append(0.0 if hits == 0 else 2 * precision * recall / (precision + recall))
    return float(np.mean(scores))


@given(st.integers(1, 6), st.integers(3, 40), st.integers(0, 99))
def test_macro_f1_is_the_mean_of_the_harmonic_means_of_precision_and_recall(classes, samples, seed):
    draw = torch.Generator().manual_seed(seed)
    outputs = torch.randn(4, classes, samples, generator=draw)
    targets = torch.randint(classes, (samples,), generator=draw)
    losses, scores = _measured(Classification(score="macro-f1"), outputs, targets)
    for model in range(4):
        expected = _macro_f1(outputs[model].argmax(0).numpy(), targets.numpy())
        assert float(scores[model]) == pytest.approx(expected, abs=1e-9)
        loss = nn.functional.cross_entropy(outputs[model].mT, targets)
        assert float(losses[model]) == pytest.approx(float(loss), rel=1e-4, abs=1e-6)


@given(st.integers(3, 40), st.integers(0, 99), st.floats(-100, 100))
def test_scores_of_a_regression(samples, seed, shift):
    draw = torch.Generator().manual_seed(seed)
    outputs, targets = shift + torch.randn(3, 1, samples, generator=draw), shift + torch.randn(samples, generator=draw)
    errors = outputs.squeeze(1).double() - targets
    expected = {
        "rmse": errors.square().mean(1).sqrt(),
        "mae": errors.abs().mean(1),
        "r2": 1 - errors.square().sum(1) / (targets.double() - targets.double().mean()).square().sum(),
    }
    for loss, function in (("mse", nn.functional.mse_loss), ("mae", nn.functional.l1_loss)):
        for score, wanted in expected.items():
            losses, scores = _measured(Regression(loss=loss, score=score), outputs, targets)
            torch.testing.assert_close(scores, wanted, rtol=1e-4, atol=1e-6)
            by_torch = [float(function(one.squeeze(0), targets)) for one in outputs]
            assert losses.tolist() == pytest.approx(by_torch, rel=1e-4, abs=1e-6)


def test_a_model_worse_than_the_mean_has_a_negative_r2():
    targets = torch.tensor([1.0, 2.0, 3.0])
    outputs = torch.tensor([[[1.0, 2.0, 3.0]], [[2.0, 2.0, 2.0]], [[3.0, 2.0, 1.0]]])
    assert _measured(Regression(score="r2"), outputs, targets)[1].tolist() == pytest.approx([1.0, 0.0, -3.0])


@pytest.mark.parametrize("network", [mlp, cnn], ids=["mlp", "cnn"])
@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_training_a_regression_equals_the_usual_loop(network, loss):
    torch.manual_seed(0)
    x, y = torch.randn(40, 1, 8, 8), torch.randn(40)
    model = Model(network((1, 8, 8), 1), task=Regression(loss=loss))
    recipe = Recipe(lr=0.05, momentum=0.9, batches=None, batch_size=16)
    (found,) = Trainer(model, x, y, recipe)(model.initial, [Job(np.arange(40), 3, np.random.default_rng(5))])
    module, rng = model.copy().module.train(), np.random.default_rng(5)
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
    measure = nn.MSELoss() if loss == "mse" else nn.L1Loss()
    for _ in range(3):
        for part in torch.from_numpy(rng.permutation(40)).split(16):
            optimizer.zero_grad()
            measure(module(x[part])[:, 0], y[part]).backward()
            optimizer.step()
    torch.testing.assert_close(found, nn.utils.parameters_to_vector(module.parameters()).detach(), rtol=1e-4, atol=1e-5)


def test_averages_and_gradients_of_a_regression():
    torch.manual_seed(1)
    x, y = torch.randn(70, 5), torch.randn(70)
    model = Model(mlp((5,), 1), task=Regression())
    evaluator, models = Evaluator(model, x, y), 0.3 * torch.randn(4, model.size)
    weights = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]])
    losses, scores = evaluator.averages(models)(weights)
    for row, loss, score in zip(weights, losses, scores, strict=True):
        outputs = model.module_with(row @ models)(x)[:, 0].detach()
        assert float(loss) == pytest.approx(float((outputs - y).square().mean()), rel=1e-4)
        assert float(score) == pytest.approx(float(loss) ** 0.5, rel=1e-6)
    flat = models[0].clone().requires_grad_()
    loss = (torch.func.functional_call(model.module, model.unflatten(flat), (x,))[:, 0] - y).square().mean()
    torch.testing.assert_close(evaluator.gradient(models[0]), torch.autograd.grad(loss, flat)[0], rtol=1e-4, atol=1e-6)


def test_only_classification_is_compiled():
    model = Model(mlp((4,), 1), task=Regression())
    assert choose_engine(model, Recipe(0.1, 0.5, 5), "auto") == "torch"
    with pytest.raises(InputError, match="auto or torch, since only classification is compiled"):
        choose_engine(model, Recipe(0.1, 0.5, 5), "compiled")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> str:
    """A regression whose targets are mostly a linear function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 6)).astype(np.float32)
    y = x @ np.array([1.0, -1.0, 0.5, 0, 0, 0]) + 0.5 * np.sin(3 * x[:, 3])
    file = tmp_path_factory.mktemp("data") / "numbers.npz"
    np.savez(file, x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])
    return str(file)


def _scenario(dataset: str, **more) -> Scenario:
    fields = {
        "rounds": 6,
        "data": {"dataset": dataset, "ues": 20, "partition": "iid"},
        "fleet": {"noise": 0.02},
        "frame": {"slots": 8, "pull": 4},
        "push": {"contenders": 4},
        "training": {"task": "regression", "lr": 0.05},
    }
    return Scenario(**fields).replace(more)


@pytest.mark.parametrize("aggregation", ["average", "filtered", "median", "fedadam"])
def test_a_run_learns_a_regression(numbers, aggregation):
    result = run(_scenario(numbers, **{"aggregation.name": aggregation, "rounds": 12}))
    assert result.rounds["test_accuracy"].isna().all()
    assert result.scores[-1] == result.final_score == result.rounds["test_score"].iloc[-1]
    assert result.best_score == result.scores.min()
    assert result.best_score < 0.8  # the standard deviation of the targets is 1.5
    assert result.final_score == pytest.approx(result.rounds["test_loss"].iloc[-1] ** 0.5, rel=1e-6)
    assert {"final_rmse", "best_rmse"} <= result.summary().keys()
    assert np.isnan(result.final_accuracy)


def test_folders_and_comparisons_are_by_the_score(numbers, tmp_path: Path):
    compared = compare(_scenario(numbers), ["fedavg", "push-pull"], seeds=2, out=tmp_path / "c", workers=1)
    estimates = compared.estimates()
    assert compared.targets == ()
    assert {"final_rmse", "rmse_at_horizon"} <= estimates["fedavg"].keys()
    means = {name: each["rmse_at_horizon"].mean for name, each in estimates.items()}
    assert max(compared.ranks(), key=compared.ranks().get) == min(means, key=means.get)
    loaded = load(tmp_path / "c")
    assert loaded.estimates() == estimates
    assert loaded.runs["fedavg"][0].final_score == compared.runs["fedavg"][0].final_score


def test_macro_f1_of_a_run():
    fields = {"rounds": 2, "training.task": {"name": "classification", "options": {"score": "macro-f1"}}}
    result = run(Scenario.load("quickstart", fields))
    simulation = Simulation(result.scenario)
    predicted = simulation.held_out.test.scores(torch.from_numpy(result.model)).argmax(1).numpy()
    assert result.final_score == pytest.approx(_macro_f1(predicted, simulation.held_out.test.y.numpy()))
    assert result.score == SCORES["macro-f1"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"training.task": "classification"},
            r"training.task: 'classification' .* must be regression, since y_train of",
        ),
        (
            {"data.partition": "dirichlet"},
            r"data.partition: 'dirichlet' .* must be iid, or your own, since the targets",
        ),
        ({"data.partition": "label-quantity"}, r"data.partition: 'label-quantity' .* must be iid, or your own"),
        (
            {"valuation.utility": "accuracy"},
            r"valuation.utility: .* must be loss, since training.task reports the RMSE",
        ),
        ({"fleet.attack": "label-flip"}, r"fleet.attack: 'label-flip' .* must be an attack on updates"),
        ({"training.ps": "alone"}, r"training.ps: 'alone' .* must be null, since correct predictions"),
        ({"training.engine": "compiled"}, r"training.engine: .* only classification is compiled"),
        ({"data.dataset": "digits"}, r"training.task: 'regression' .* must be classification, since y_train of digits"),
    ],
)
def test_what_needs_classes_says_so(numbers, changes, line):
    with pytest.raises(InputError, match=line):
        Simulation(_scenario(numbers, **changes))
