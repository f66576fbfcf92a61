"""Compiled products against NumPy, and networks by tiles against PyTorch."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedslot.compiling import compiled
from fedslot.learning.convolutions import Convolutions
from fedslot.learning.evaluation import Evaluator, _Rebuilt
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.mixtures import Tiled
from fedslot.learning.models import Model
from fedslot.learning.registers import LANES
from fedslot.learning.stages import Stages
from fedslot.learning.tiles import MOST, _exp, edge, product
from fedslot.learning.training import Trainer


@given(st.integers(1, 40), st.integers(0, 20), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_products(outputs, features, relu, rival, seed):
    rng = np.random.default_rng(seed)
    taps = np.sort(rng.choice(25, features, replace=False))  # some features of 25
    weights, x = rng.normal(size=(outputs, 26)), rng.normal(size=(3 + features, LANES))
    before = rng.normal(size=(outputs, 2, LANES)).astype(np.float32)
    out = before.copy()
    groups = np.split(weights.astype(np.float32), [edge(outputs, group) for group in range(1, -(-outputs // MOST))])
    made = product(
        out.reshape(-1), LANES, 2 * LANES, np.concatenate([group.T.reshape(-1) for group in groups]), 0, 26, outputs,
        x.astype(np.float32).reshape(-1), 3 * LANES, taps, np.arange(features) * LANES, 0, features, relu, rival,
    )  # fmt: skip
    assert made is None
    expected = weights[:, taps] @ x[3:] + weights[:, 25:]
    expected = np.maximum(expected, 0) if relu else expected
    expected = np.maximum(expected, before[:, 1]) if rival else expected
    np.testing.assert_allclose(out[:, 1], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out[:, 0], before[:, 0])  # nothing beside


@pytest.mark.parametrize("rival", [False, True])
@pytest.mark.parametrize("where", ["weights", "inputs", "out"])
def test_what_is_not_a_number_stays_so(where, rival):
    arrays = {"weights": np.ones(2 * 3), "inputs": np.ones(2 * LANES), "out": np.ones(2 * LANES)}
    arrays = {name: values.astype(np.float32) for name, values in arrays.items()}
    arrays[where][0] = np.nan
    places = np.arange(2)
    product(
        arrays["out"],
        0,
        LANES,
        arrays["weights"],
        0,
        3,
        2,
        arrays["inputs"],
        0,
        places,
        places * LANES,
        0,
        2,
        True,
        rival,
    )
    assert np.isnan(arrays["out"][0]) == (where != "out" or rival)
    assert arrays["out"][-1] == 3


@pytest.mark.parametrize(
    ("taps", "kind", "message"),
    [(np.arange(4)[::2], np.float32, "in one piece"), (np.arange(2), np.float64, "float32")],
)
def test_arrays_that_do_not_lie_as_expected(taps, kind, message):
    """Compiled code would read beside them."""
    numbers = np.ones(2 * LANES, kind)
    with pytest.raises(numba.core.errors.TypingError, match=message):
        product(numbers, 0, LANES, numbers, 0, 3, 2, numbers, 0, taps, np.arange(2), 0, 2, False, False)


def test_exponentials():
    x = -np.concatenate([np.linspace(0, 200, 100_001), np.geomspace(1e-12, 80, 10_000), [np.inf]]).astype(np.float32)
    found = np.empty_like(x)

    @compiled
    def fill(x, found):
        for place in range(len(x)):
            found[place] = _exp(x[place])

    fill(x, found)
    exact = np.exp(x.astype(float))
    np.testing.assert_allclose(found, exact, rtol=4e-7, atol=2e-38)
    assert abs(found - exact).max() < 7e-8  # what counts in a sum with exp(0)


NETWORKS = {
    "no padding": [nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 7 * 5, 4)],
    "unequal sides": [nn.Conv2d(2, 7, (2, 3), padding=(0, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(7 * 8 * 9, 4)],
    "maxima of ReLU": [nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(60, 4)],
    "ReLU of maxima": [nn.Conv2d(2, 5, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(60, 4)],
    "a side that is odd": [nn.Conv2d(2, 1, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)],
    "three convolutions": [
        nn.Conv2d(2, 6, 2, padding=2),
        nn.ReLU(),
        nn.Conv2d(6, 3, 3, padding=(1, 0)),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(3, 13, 2, padding=1),
        nn.Flatten(),
        nn.Linear(13 * 7 * 5, 9),
        nn.ReLU(),
        nn.Linear(9, 4),
    ],
    "all at once, then padded": [
        nn.Conv2d(2, 8, (9, 7)),
        nn.ReLU(),
        nn.Conv2d(8, 3, 3, padding=1),
        nn.Flatten(),
        nn.Linear(3, 4),
    ],
    "more padding than filter": [nn.Conv2d(2, 3, 2, padding=3), nn.MaxPool2d((2, 2)), nn.Flatten(), nn.Linear(126, 4)],
    "ends in a filter": [nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Conv2d(3, 4, (8, 6)), nn.Flatten()],
    "ends in ReLU": [nn.Flatten(), nn.Linear(126, 4), nn.ReLU()],
    "flattened twice": [nn.Flatten(), nn.Linear(126, 8), nn.Flatten(), nn.ReLU(), nn.Linear(8, 4)],
}
OTHERS = {
    "strides": [nn.Conv2d(2, 3, 3, stride=2), nn.Flatten(), nn.Linear(36, 4)],
    "holes": [nn.Conv2d(2, 3, 3, dilation=2), nn.Flatten(), nn.Linear(45, 4)],
    "groups": [nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(140, 4)],
    "other borders": [nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(189, 4)],
    "padding by name": [nn.Conv2d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(189, 4)],
    "no bias": [nn.Conv2d(2, 3, 3, bias=False), nn.Flatten(), nn.Linear(105, 4)],
    "two maxima": [nn.Conv2d(2, 3, 1), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 4)],
    "maxima first": [nn.MaxPool2d(2), nn.Conv2d(2, 3, 1), nn.Flatten(), nn.Linear(36, 4)],
    "ReLU first": [nn.ReLU(), nn.Flatten(), nn.Linear(126, 4)],
    "other functions": [nn.Flatten(), nn.Linear(126, 5), nn.Tanh(), nn.Linear(5, 4)],
    "lines of images": [nn.Linear(7, 2), nn.Flatten(), nn.Linear(36, 4)],
    "scores of several places": [nn.Conv2d(2, 2, (9, 6)), nn.Flatten()],
    "one part": [nn.Sequential(nn.Flatten(), nn.Linear(126, 4))],
}


def _case(parts):
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(*parts)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    model = Model(network)
    x = torch.randn(37, 2, 9, 7, generator=generator)
    rows = torch.randn(3, model.size, generator=generator) / 3
    return model, x, torch.randint(0, 4, (37,), generator=generator), rows


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_by_tiles(name):
    model, x, y, rows = _case(NETWORKS[name])
    weights = torch.tensor([[1, 0, 0], [0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    assert isinstance(Evaluator(model, x, y).way, Tiled)
    expected = _Rebuilt(model, x, y).mixtures(rows)(weights)
    torch.testing.assert_close(Evaluator(model, x, y).mixtures(rows)(weights), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_networks_that_have_anything_else_are_left_to_pytorch(name):
    model, x, y, rows = _case(OTHERS[name])
    assert Stages.of(model, tuple(x.shape[1:])) is None
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(model.logits(model.unflatten(rows[0]), x), y))
    assert Evaluator(model, x, y).evaluate(rows[0])[0] == pytest.approx(expected, rel=1e-5)


MISFITS = {
    "features": [nn.Flatten(), nn.Linear(125, 4)],
    "channels": [nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(70, 4)],
    "nothing left": [nn.Conv2d(2, 2, (9, 7)), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 4)],
    "filters too large": [nn.Conv2d(2, 2, 10), nn.Flatten(), nn.Linear(2, 4)],
}


@pytest.mark.parametrize("name", MISFITS)
def test_networks_that_do_not_fit_their_samples(name):
    """PyTorch says so; compiled code would read beside its arrays."""
    model, x, y, rows = _case(MISFITS[name])
    with pytest.raises(RuntimeError):
        Evaluator(model, x, y).evaluate(rows[0])


def _hook(network):
    network[1].register_forward_hook(lambda part, inputs, outputs: outputs / 5)


def _other_forward(network):
    network[1].forward = torch.tanh


def _normed(network):
    with pytest.warns(FutureWarning, match="weight_norm"):
        network[0] = nn.utils.weight_norm(network[0])


def _further_parameter(network):
    network.register_parameter("further", nn.Parameter(torch.ones(2)))


@pytest.mark.parametrize("change", [_hook, _other_forward, _normed, _further_parameter])
def test_networks_that_do_more_than_they_seem(change):
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(105, 4))
    change(network)
    model, x, y, _ = _case([nn.Flatten(), nn.Linear(126, 4)])
    model = Model(network)
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(network(x), y))
    assert Evaluator(model, x, y).evaluate(model.initial)[0] == pytest.approx(expected, rel=1e-5)
    recipe = Recipe(lr=0.1, momentum=0.5, batches=2)
    assert not isinstance(Trainer(model, x, y, recipe).way, Convolutions)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32])
def test_labels_of_another_type(kind):
    model, x, y, rows = _case(NETWORKS["no padding"])
    assert Evaluator(model, x, y.to(kind)).evaluate(rows[0]) == Evaluator(model, x, y).evaluate(rows[0])


def test_fewer_labels_than_samples():
    model, x, y, _ = _case(NETWORKS["no padding"])
    with pytest.raises(ValueError, match="20 for 37"):
        Evaluator(model, x, y[:20])


def test_no_averages_and_no_models():
    model, x, y, rows = _case(NETWORKS["no padding"])
    assert Evaluator(model, x, y).mixtures(rows)(torch.zeros(0, 3)).shape == (2, 0)
    with pytest.raises(ValueError, match="no models"):
        Evaluator(model, x, y).mixtures(rows[:0])


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_beyond_the_classes(label):
    model, x, y, _ = _case(NETWORKS["ends in ReLU"])
    y[3] = label
    with pytest.raises(ValueError, match="labels must be from 0 to 3"):
        Evaluator(model, x, y)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["three convolutions", "flattened twice", "ends in ReLU", "other functions"])
def test_a_model_that_is_not_finite_has_no_loss(name, value):
    """Nor have the averages in which it takes part, be it by a weight that meets only zeros; the others have."""
    model, x, y, rows = _case((NETWORKS | OTHERS)[name])
    x[:, 0] = 0
    rows[1, 0] = value
    weights = torch.tensor([[1, 0, 0]] * 7 + [[0, 1, 0], [0.5, 0.25, 0.25]])
    found = Evaluator(model, x, y).mixtures(rows)(weights)
    assert found.isnan().all(dim=0).tolist() == [False] * 7 + [True] * 2
    assert found[:, :7].isfinite().all()


def test_samples_that_are_not_numbers_have_no_loss():
    model, x, y, rows = _case(NETWORKS["flattened twice"])
    x[5, 1, 2, 3] = float("nan")
    assert np.isnan(Evaluator(model, x, y).evaluate(rows[0])[0])


def _train(model, x, y, recipe, share, epochs):
    stages = Stages.of(model, tuple(x.shape[1:]))
    return Convolutions(model, stages, x, y, recipe).descend(
        model.initial, [Job(share, epochs, np.random.default_rng(5))]
    )[0]


def _train_plainly(model, x, y, recipe, share, epochs):
    network, rng = model.copy().module, np.random.default_rng(5)
    nn.utils.vector_to_parameters(model.initial.clone(), network.parameters())
    optimiser = torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    for _ in range(epochs):
        for part in np.array_split(rng.permutation(share), min(recipe.batches, len(share))):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[part]), y[part]).backward()
            optimiser.step()
    return nn.utils.parameters_to_vector(network.parameters()).detach()


@pytest.mark.parametrize("size", [1, 16, 33, 36])
@pytest.mark.parametrize("name", NETWORKS)
def test_training_by_tiles(name, size):
    """Minibatches that fill no tile, just one, and more than one, against PyTorch's slopes and optimiser."""
    model, x, y, _ = _case(NETWORKS[name])
    recipe, share = Recipe(lr=0.1, momentum=0.5, batches=2), np.random.default_rng(1).permutation(37)[:size]
    found, expected = (way(model, x, y, recipe, share, 3) for way in (_train, _train_plainly))
    assert float((expected - model.initial).abs().max()) > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_equal_maxima_share_no_slope():
    """Images of one colour: all four places are the maximum, and the first one gets the slope, as in PyTorch."""
    model, x, y, _ = _case([nn.Conv2d(2, 3, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)])
    x = x[:, :, :1, :1].expand_as(x).contiguous()
    x[:, 1] *= torch.linspace(0.5, 1.5, 7).round()
    recipe, share = Recipe(lr=0.1, momentum=0.0, batches=1), np.arange(20)
    found, expected = (way(model, x, y, recipe, share, 2) for way in (_train, _train_plainly))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_training_on_what_is_not_a_number_gives_none(value):
    model, x, y, _ = _case(NETWORKS["three convolutions"])
    x[4, 1, 3, 3] = value
    found = _train(model, x, y, Recipe(lr=0.1, momentum=0.5, batches=2), np.arange(20), 2)
    assert not torch.isfinite(found).all()


def test_training_on_labels_beyond_the_classes():
    model, x, y, _ = _case(NETWORKS["no padding"])
    y[3] = 4
    with pytest.raises(ValueError, match="labels must be from 0 to 3"):
        _train(model, x, y, Recipe(0.1, 0.5, 2), np.arange(20), 1)
