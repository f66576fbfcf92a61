"""Averages of models against building and evaluating each averaged network; losses by hand."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedslot.learning.evaluation import IMAGES, Evaluator
from fedslot.learning.models import Model, cnn, mlp
from fedslot.support.threads import Threads

SHAPE, CLASSES = (1, 8, 8), 4


def tied_weights():
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    two.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), two, nn.ReLU(), nn.Linear(64, CLASSES))


def named_convolutions():
    relu = nn.ReLU()
    parts = {"a": nn.Conv2d(1, 3, 3, stride=2, padding="valid"), "b": relu, "c": nn.Conv2d(3, 2, 2), "d": relu}
    return nn.Sequential(OrderedDict(**parts, e=nn.Flatten(), f=nn.Linear(8, CLASSES)))


def grouped_convolution():
    layers = [nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Tanh(), nn.Conv2d(4, 6, 3, groups=2, padding="same"), nn.ReLU()]
    tail = [nn.AvgPool2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 5, bias=False), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *tail, nn.Linear(5, CLASSES))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(64, 64), nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.out(x.flatten(1) + self.inside(x.flatten(1)).tanh())


def perceptron(first, *others):
    return nn.Sequential(nn.Flatten(), first, *others, nn.Linear(6, CLASSES))


def convolution(first, *others, width):
    return nn.Sequential(first, *others, nn.Flatten(), nn.Linear(width, CLASSES))


NETWORKS = {
    "mlp": lambda: mlp(SHAPE, CLASSES),
    "cnn": lambda: cnn(SHAPE, CLASSES),
    "one linear layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)),
    "dropout": lambda: perceptron(nn.Linear(64, 6), nn.Dropout(0.5), nn.ReLU()),
    "tied weights": tied_weights,
    "without bias": lambda: perceptron(nn.Linear(64, 6, bias=False), nn.ReLU()),
    "named convolutions": named_convolutions,
    "reflecting": lambda: convolution(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.ReLU(), width=128),
    "convolution without bias": lambda: convolution(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU(), width=72),
    "grouped convolution": grouped_convolution,
    "normalised convolution": lambda: convolution(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), width=144),
    "flattened in part": lambda: convolution(nn.Conv2d(1, 2, 3), nn.Flatten(2), nn.Linear(36, 1), width=2),
    "residual": Residual,
}


def case(name: str, samples: int = 90, averages: int = 11, models: int = 5):
    torch.manual_seed(0)
    model = Model(NETWORKS[name]())
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, *SHAPE, generator=generator)
    y = torch.randint(0, CLASSES, (samples,), generator=generator)
    updates = model.initial + 0.3 * torch.randn(models, model.size, generator=generator)
    weights = torch.rand(averages, models, generator=generator) + 0.01
    weights[0, 1:] = 0  # a model by itself
    weights[1 % averages, 1::2] = 0
    return model, x, y, updates, weights / weights.sum(dim=1, keepdim=True)


def evaluate_each(model, x, y, updates, weights) -> torch.Tensor:
    """Losses and accuracies (2, C) of networks that are built one by one."""
    found = []
    for weight in weights:
        module = model.copy().module.eval()
        with torch.no_grad():
            nn.utils.vector_to_parameters(weight @ updates, module.parameters())
            scores = module(x)
        found.append([cross_entropy(scores, y).double(), (scores.argmax(1) == y).double().mean()])
    return torch.tensor(found, dtype=torch.float64).T


def assert_equal_measures(found: torch.Tensor, expected: torch.Tensor, samples: int) -> None:
    """Rounding may decide which of two nearly equal scores is larger, for one sample or so."""
    assert found.dtype == torch.float64
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=1.01 / samples)


@pytest.mark.parametrize("name", NETWORKS)
def test_averages_are_those_of_averaged_networks(name):
    model, x, y, updates, weights = case(name, samples=IMAGES + 40)  # two blocks
    model.module.train()
    measure, expected = Evaluator(model, x, y).averages(updates), evaluate_each(model, x, y, updates, weights)
    assert_equal_measures(measure(weights), expected, len(y))
    assert torch.equal(measure(weights), measure(weights))  # dropout is off
    assert expected[0].std() > 1e-3
    loss, accuracy = Evaluator(model, x, y).evaluate(updates[0])
    assert_equal_measures(torch.tensor([[loss], [accuracy]], dtype=torch.float64), expected[:, :1], len(y))
    alone = [Evaluator(model, x, y).evaluate(update)[0] for update in updates]
    assert Evaluator(model, x, y).losses(updates) == pytest.approx(alone, rel=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    widths=st.lists(st.integers(1, 30), max_size=3),
    samples=st.sampled_from([1, 7, 500, 501, 1100]),
    averages=st.sampled_from([1, 3, 20, 21, 50]),
    models=st.integers(1, 6),
    dark=st.floats(0, 1),
)
def test_any_perceptron_any_number_of_samples_and_averages(widths, samples, averages, models, dark):
    """Features that are zero in some classes or in all samples change nothing."""
    parts: list[nn.Module] = [nn.Flatten()]
    torch.manual_seed(samples)
    for inputs, outputs in zip([64, *widths], [*widths, CLASSES], strict=True):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = Model(nn.Sequential(*parts[:-1]))
    x, y = torch.randn(samples, *SHAPE), torch.randint(0, CLASSES, (samples,))
    x *= (torch.rand(CLASSES, *SHAPE) >= dark)[y]
    updates, weights = model.initial + 0.3 * torch.randn(models, model.size), torch.rand(averages, models) + 0.01
    weights /= weights.sum(dim=1, keepdim=True)
    found = Evaluator(model, x, y).averages(updates)(weights)
    assert_equal_measures(found, evaluate_each(model, x, y, updates, weights), samples)


def test_averages_of_a_few_of_many_models():
    """Whether some models take no part in any average of a chunk, or all of them take part."""
    model, x, y, updates, _ = case("mlp", models=150)
    weights = torch.zeros(50, 150)
    weights[:20, 60:80] = torch.rand(20, 20) - 0.3
    weights[20:] = torch.rand(30, 150)
    weights /= weights.sum(dim=1, keepdim=True)
    found = Evaluator(model, x, y).averages(updates)(weights)
    assert_equal_measures(found, evaluate_each(model, x, y, updates, weights), len(y))


def test_loss_and_accuracy_by_hand():
    """Scores log 1, log 2, log 5 give probabilities 1/8, 2/8, 5/8."""
    model = Model(nn.Sequential(nn.Linear(3, 3)))
    identity = torch.cat([torch.eye(3).reshape(-1), torch.zeros(3)])
    x = torch.log(torch.tensor([[1.0, 2, 5], [1, 2, 5], [5, 2, 1]]))
    evaluator = Evaluator(model, x, torch.tensor([2, 1, 0]))
    expected = -np.log([5 / 8, 2 / 8, 5 / 8]).mean()
    assert evaluator.evaluate(identity) == pytest.approx((expected, 2 / 3), rel=1e-6)
    losses, accuracies = evaluator.averages(torch.stack([identity, 0 * identity]))(torch.eye(2))
    assert losses.tolist() == pytest.approx([expected, np.log(3)], rel=1e-6)
    assert accuracies.tolist() == pytest.approx([2 / 3, 1 / 3])  # of equal scores, the first class counts


def test_large_scores_do_not_overflow():
    model = Model(nn.Sequential(nn.Linear(3, 3)))
    thousandfold = torch.cat([1000 * torch.eye(3).reshape(-1), torch.zeros(3)])
    assert Evaluator(model, torch.eye(3), torch.tensor([0, 1, 0])).evaluate(thousandfold)[0] == pytest.approx(1000 / 3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_nan_propagates_to_the_averages_that_it_takes_part_in_and_to_no_others(name, value):
    model, x, y, updates, weights = case(name)
    expected = evaluate_each(model, x, y, updates, weights)
    updates[1, 3] = value
    found = Evaluator(model, x, y).averages(updates)(weights)
    with_it = weights[:, 1] != 0
    assert with_it.any()
    assert not with_it.all()
    assert found[:, with_it].isnan().all()
    assert_equal_measures(found[:, ~with_it], expected[:, ~with_it], len(y))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_sample_that_is_nan_has_no_loss(name):
    model, x, y, updates, weights = case(name)
    x[5, 0, 2, 2] = torch.nan
    assert Evaluator(model, x, y).averages(updates)(weights)[0].isnan().all()


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_nothing_to_average(name):
    model, x, y, updates, weights = case(name)
    assert Evaluator(model, x, y).averages(updates)(weights[:0]).shape == (2, 0)
    with pytest.raises(ValueError, match="no models"):
        Evaluator(model, x, y).averages(updates[:0])


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_threads_change_nothing(name):
    model, x, y, updates, weights = case(name, samples=1100, averages=50)
    results = []
    for count in (1, 3):
        with Threads(count) as threads:
            results.append(Evaluator(model, x, y, threads).averages(updates)(weights))
    assert torch.equal(*results)


def test_the_gradient_is_that_of_the_loss_at_its_best_scale_of_logits():
    """Of a layer whose logits are far too large: no step along the model itself has an effect, and that of others is
    the difference of the losses of scaled models.
    """
    draw = torch.Generator().manual_seed(0)
    model, x = Model(nn.Sequential(nn.Flatten(), nn.Linear(5, 3, bias=False))), torch.randn(200, 5, generator=draw)
    truth = torch.randn(15, generator=draw)
    y = torch.distributions.Categorical(logits=x @ truth.view(3, 5).T).sample()
    evaluator, start, other = Evaluator(model, x, y), 7.5 * truth, torch.randn(15, generator=draw)
    scales = np.geomspace(0.05, 1, 200)
    scale = float(min(scales, key=lambda scale: evaluator.evaluate(float(scale) * start)[0]))
    gradient, step = evaluator.gradient(start), 0.01 * other
    assert abs(float(gradient @ start)) < 0.1 * float(gradient.norm() * start.norm())
    change = evaluator.evaluate(scale * (start + step))[0] - evaluator.evaluate(scale * (start - step))[0]
    assert float(gradient @ step) == pytest.approx(change / 2, rel=0.3)
