"""Mixtures against evaluating each averaged model by itself; losses against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedslot.learning import evaluation, mixtures
from fedslot.learning.evaluation import Evaluator, _Rebuilt
from fedslot.learning.mixtures import Tiled
from fedslot.learning.models import Model
from fedslot.threads import threads

SHAPE, CLASSES = (1, 8, 8), 4


def vectors(shape, classes):
    return nn.Sequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, classes))


def one_linear_layer(shape, classes):
    return nn.Linear(64, classes)


def relu_shared(shape, classes):
    relu = nn.ReLU()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), relu, nn.Linear(6, 5), relu, nn.Linear(5, classes))


def flat_from_the_second_on(shape, classes):
    return nn.Sequential(nn.Flatten(2), nn.Linear(64, 3), nn.Flatten(), nn.Linear(3 * shape[0], classes))


def dropping(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, classes))


def tied_weights(shape, classes):
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    two.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), two, nn.ReLU(), nn.Linear(64, classes))


class TripledLinear(nn.Linear):
    def forward(self, x):
        return 3 * super().forward(x)


def own_layer(shape, classes):
    return nn.Sequential(nn.Flatten(), TripledLinear(64, 6), nn.ReLU(), nn.Linear(6, classes))


class _Skipping(nn.Sequential):
    def forward(self, x):
        return self[2](self[0](x.flatten(1)))


def own_forward(shape, classes):
    return _Skipping(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, classes))


def images_into_a_linear_layer(shape, classes):
    return nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, classes))


def named_parts(shape, classes):
    network = nn.Sequential()
    for name, part in [("flat", nn.Flatten()), ("into", nn.Linear(64, 6)), ("act", nn.Tanh())]:
        network.add_module(name, part)
    network.add_module("norm", nn.LayerNorm(6))
    network.add_module("out", nn.Linear(6, classes))
    return network


def starts_without_bias(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6, bias=False), nn.ReLU(), nn.Linear(6, classes))


class residual(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.inside, self.out = nn.Linear(64, 64), nn.Linear(64, classes)

    def forward(self, x):
        return self.out(x.flatten(1) + self.inside(x.flatten(1)).tanh())


KINDS = [
    ("mlp", SHAPE),
    ("cnn", SHAPE),
    ("named_parts", SHAPE),
    ("relu_shared", SHAPE),
    ("dropping", SHAPE),
    ("tied_weights", SHAPE),
    ("own_layer", SHAPE),
    ("own_forward", SHAPE),
    ("images_into_a_linear_layer", SHAPE),
    ("flat_from_the_second_on", (2, 8, 8)),
    ("starts_without_bias", SHAPE),
    ("residual", SHAPE),
    ("vectors", (64,)),
    ("one_linear_layer", (64,)),
    ("mlp", (64,)),
]


def _case(name: str, shape: tuple[int, ...], rows: int = 5, samples: int = 90):
    model = Model.build(name if name in {"mlp", "cnn"} else f"{__name__}:{name}", shape, CLASSES, seed=0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, *shape, generator=generator)
    y = torch.randint(0, CLASSES, (samples,), generator=generator)
    models = model.initial + 0.3 * torch.randn(rows, model.size, generator=generator)
    weights = torch.rand(11, rows, generator=generator)
    weights[0, 1:] = 0  # a model by itself
    weights[1, ::2] = 0
    return model, x, y, models, weights / weights.sum(dim=1, keepdim=True)


@pytest.mark.parametrize(("name", "shape"), KINDS)
def test_mixtures_are_the_averaged_models(name, shape):
    model, x, y, rows, weights = _case(name, shape)
    losses, accuracies = Evaluator(model, x, y).mixtures(rows)(weights)
    assert losses.dtype == accuracies.dtype == torch.float64
    assert losses.shape == accuracies.shape == (11,)
    model.module.eval()
    for mixture, weight in enumerate(weights):
        averaged = sum(part * row for part, row in zip(weight, rows, strict=True))
        with torch.no_grad():
            scores = functional_call(model.module, model.unflatten(averaged), (x,))
        assert float(losses[mixture]) == pytest.approx(float(cross_entropy(scores, y)), rel=1e-4)
        assert float(accuracies[mixture]) == pytest.approx(float((scores.argmax(1) == y).float().mean()), abs=1.01 / 90)
    assert losses.std() > 1e-3


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_mixtures_in_chunks(name, monkeypatch):
    """Two averages at a time, an odd one at the end; nothing is kept but the samples."""
    model, x, y, rows, weights = _case(name, SHAPE)
    at_once = Evaluator(model, x, y).mixtures(rows)(weights)
    monkeypatch.setattr(mixtures, "AT_ONCE", 2)
    monkeypatch.setattr(mixtures, "LEAST", 1)
    monkeypatch.setattr(mixtures, "KEPT", 0)
    in_chunks = Evaluator(model, x, y).mixtures(rows)(weights)
    torch.testing.assert_close(in_chunks, at_once, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("count", [1, 5, 6, 7, 47, 48, 49, 101])
def test_any_number_of_mixtures(count):
    """Their number is no multiple of what is done at a time, and each is the same as by itself."""
    model, x, y, rows, _ = _case("mlp", SHAPE, samples=33)
    weights = torch.rand(count, len(rows), generator=torch.Generator().manual_seed(count))
    measure = Evaluator(model, x, y).mixtures(rows)
    together, apart = measure(weights), torch.cat([measure(weight.unsqueeze(0)) for weight in weights], dim=1)
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-7)


def test_features_that_are_zero_in_some_samples():
    """Each class is dark in places of its own, some places are dark in all samples, and one sample is all dark."""
    model, x, y, rows, weights = _case("mlp", SHAPE, samples=400)
    x = x.flatten(1)
    for label in range(CLASSES):
        x[y == label, 10 * label : 10 * label + 20] = 0
    x[:, 60:] = 0
    x[7] = 0
    evaluator = Evaluator(model, x.view(-1, *SHAPE), y)
    lit = np.concatenate(
        [np.diff(piece.lit[-1]) for piece in map(evaluator.way.piece, range(len(evaluator.way.parts)))]
    )
    assert lit.min() < lit.max() <= 60
    expected = _Rebuilt(model, x.view(-1, *SHAPE), y).mixtures(rows)(weights)
    torch.testing.assert_close(evaluator.mixtures(rows)(weights), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 16, 17, 63, 64, 65, 500])
def test_samples_are_sorted_by_what_is_zero_in_them(count):
    """Whatever the order of their features, and with fewer features to a tile than in the order in which they came."""
    rng = np.random.default_rng(count)
    kinds = rng.random((12, 40)) < 0.3
    lit = (kinds[rng.integers(0, 12, count)] & (rng.random((count, 40)) < 0.9)).astype(np.float32)
    order = mixtures._alike(lit, np.arange(count))
    assert sorted(order.tolist()) == list(range(count))
    together = [mixtures._alike(copy, np.arange(count)).tolist() for copy in (lit, lit + 0, np.asfortranarray(lit))]
    assert together[0] == together[1] == together[2] == order.tolist()
    before, after = (
        np.mean([some[first : first + 16].any(axis=0).sum() for first in range(0, count, 16)])
        for some in (lit, lit[order])
    )
    assert count < 500 or after < 0.7 * before


def test_evaluation_in_parts(monkeypatch):
    model, x, y, rows, _ = _case("residual", SHAPE)
    whole = Evaluator(model, x, y).evaluate(rows[0])
    monkeypatch.setattr(evaluation, "SAMPLES", 32)
    assert Evaluator(model, x, y).evaluate(rows[0]) == pytest.approx(whole, rel=1e-5)


POOLS = [{}, {"stride": 1}, {"padding": 1}, {"ceil_mode": True}, {"dilation": 2}]


@pytest.mark.parametrize("sides", [(8, 8), (7, 9), (3, 3)])
@pytest.mark.parametrize("options", POOLS, ids=str)
def test_maxima_of_all_kinds(options, sides):
    network = nn.Sequential(nn.Conv2d(1, 3, 1), nn.MaxPool2d(2, **options), nn.Flatten(), nn.LazyLinear(3))
    x = torch.randn(20, 1, *sides, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0] = float("nan")
    network(x)
    model, y = Model(network), torch.arange(20) % 3
    scores = network.eval()(x).detach()
    expected = float(cross_entropy(scores[1:], y[1:])), float((scores[1:].argmax(1) == y[1:]).float().mean())
    assert Evaluator(model, x[1:], y[1:]).evaluate(model.initial) == pytest.approx(expected, rel=1e-5)
    assert np.isnan(Evaluator(model, x, y).evaluate(model.initial)[0])
    assert isinstance(Evaluator(model, x, y).way, _Rebuilt if options else Tiled)


class _Particular(nn.Sequential):
    """Asks its parts what they are."""

    def forward(self, x):
        for part in self:
            x = part(x) / part.kernel_size if isinstance(part, nn.MaxPool2d) else part(x)
        return x


def test_maxima_in_a_network_that_looks_at_its_parts():
    network = _Particular(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))
    x, y = torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(9) % CLASSES
    model = Model(network)
    expected = float(cross_entropy(network(x), y).detach())
    assert Evaluator(model, x, y).evaluate(model.initial)[0] == pytest.approx(expected, rel=1e-5)


def test_loss_and_accuracy_by_hand():
    """Scores log 1, log 2, log 5 give probabilities 1/8, 2/8, 5/8."""
    model = Model(nn.Sequential(nn.Linear(3, 3)))
    identity = torch.cat([torch.eye(3).reshape(-1), torch.zeros(3)])
    x = torch.log(torch.tensor([[1.0, 2, 5], [1, 2, 5], [5, 2, 1]]))
    y = torch.tensor([2, 1, 0])
    evaluator = Evaluator(model, x, y)
    expected = -np.log([5 / 8, 2 / 8, 5 / 8]).mean()
    assert evaluator.evaluate(identity) == pytest.approx((expected, 2 / 3), rel=1e-6)
    losses, accuracies = evaluator.mixtures(torch.stack([identity, 0 * identity]))(torch.eye(2))
    assert losses.tolist() == pytest.approx([expected, np.log(3)], rel=1e-6)
    assert accuracies[0].item() == pytest.approx(2 / 3)


def test_dropout_is_off_in_evaluation():
    model, x, y, rows, weights = _case("dropping", SHAPE)
    model.module.train()
    evaluator = Evaluator(model, x, y)
    assert evaluator.evaluate(rows[0]) == evaluator.evaluate(rows[0])
    model.module.train()
    first, second = (evaluator.mixtures(rows)(weights) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_threads_change_nothing(name, monkeypatch):
    monkeypatch.setattr(mixtures, "LEAST", 1)
    model, x, y, rows, weights = _case(name, SHAPE)
    results = []
    for count in (1, 3):
        with threads(count):
            results.append(Evaluator(model, x, y).mixtures(rows)(weights))
    assert torch.equal(*results)


def test_ties_are_not_counted_as_correct():
    """A model of zeros has equal scores for all classes: it is right by chance only."""
    model = Model.build("mlp", (1, 8, 8), 4, seed=0)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((40, 1, 8, 8), dtype=np.float32))
    evaluator = Evaluator(model, x, torch.from_numpy(rng.integers(0, 4, 40)))
    zeros = torch.zeros(1, model.size)
    accuracies = evaluator.mixtures(zeros)(torch.ones(1, 1))[1]
    assert float(accuracies[0]) == evaluator.evaluate(zeros[0])[1] < 0.6
