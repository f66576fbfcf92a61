import numpy as np
import pytest
import torch
from torch import nn

from fedslot.learning.models import MaxPool2x2, Model, cnn, lenet, mlp
from fedslot.support.errors import InputError

SHAPE, CLASSES = (1, 8, 8), 10


class _Named(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        return self.out(x.flatten(1))


class _TupleOfScores(_Named):
    def forward(self, x):
        return super().forward(x), 1


class _BreaksOnSamples(_Named):
    def forward(self, x):
        return x["image"]


def _layers(*parts):
    return nn.Sequential(nn.Flatten(), *parts)


TWICE = nn.Linear(8, 8)
REFUSED = [
    (lambda: _layers(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)), "such as its 2.running_mean"),
    (lambda: _layers(nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, CLASSES)), "GroupNorm or LayerNorm"),
    (lambda: _layers(nn.Linear(64, CLASSES - 1)), "10 scores, not (9,)"),
    (lambda: nn.Linear(8, CLASSES), "10 scores, not (1, 8, 10)"),
    (lambda: _layers(nn.Linear(63, CLASSES)), "samples of shape (1, 8, 8)"),
    (lambda: _layers(nn.Linear(64, CLASSES)).double(), "samples of shape (1, 8, 8)"),
    (lambda: _layers(nn.Linear(64, CLASSES).requires_grad_(False)), "parameters to train"),
    (lambda: _layers(nn.AdaptiveAvgPool1d(CLASSES)), "parameters to train"),
    (lambda: _layers(nn.Linear(64, 8), TWICE, TWICE, nn.Linear(8, CLASSES)), "no layer in two places"),
    (lambda: 3, "a network, a torch.nn.Module, not a int"),
    (lambda: _TupleOfScores(SHAPE, CLASSES), "a tensor of scores, not a tuple"),
    (lambda: _BreaksOnSamples(SHAPE, CLASSES), "samples of shape"),
    (lambda: {}["deep\nwithin"], "deep"),
]


def refused(shape, classes, *, number: int):
    return REFUSED[number][0]()


def _build(name: str, **options) -> Model:
    return Model.build(name, SHAPE, CLASSES, seed=0, options=options)


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: REFUSED[number][1])
def test_networks_that_cannot_serve_are_refused_with_one_line(number):
    with pytest.raises(InputError) as caught:
        _build(f"{__name__}:refused", number=number)
    assert caught.value.field == "training.model"
    assert REFUSED[number][1] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_factory_takes_a_shape_and_the_number_of_classes():
    with pytest.raises(InputError, match=r"training\.model: .*\(shape, classes\)"):
        _build("torch.nn:Linear")


@pytest.mark.parametrize("device", ["", "gpu", "cuda:99", "meta", "cpu,cpu"])
def test_devices_that_cannot_compute_are_refused(device):
    with pytest.raises(InputError, match=r"training\.device") as caught:
        Model.build("mlp", SHAPE, CLASSES, 0, device)
    assert caught.value.value == device


def test_the_papers_mlp():
    """784-50-25-10: 39,250 + 1,275 + 260 parameters."""
    model = Model.build("mlp", (1, 28, 28), 10, 0)
    assert model.size == 784 * 50 + 50 + 50 * 25 + 25 + 25 * 10 + 10 == 40785
    assert [type(part) for part in mlp((1, 28, 28), 10)] == [
        nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (2, 7, 9), (1, 8, 7)])
def test_the_papers_cnn_takes_images(shape):
    scores = cnn(shape, 10)(torch.zeros(3, *shape))
    assert scores.shape == (3, 10)


def test_the_cnn_on_cifar():
    """Two convolutions of 8 filters 4x4 (padding 1) halve 32 to 15 and 7 pixels."""
    assert Model.build("cnn", (3, 32, 32), 10, 0).size == 3 * 8 * 16 + 8 + 8 * 8 * 16 + 8 + 8 * 7 * 7 * 10 + 10


@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 6, 8)])
def test_the_cnn_refuses_what_is_no_image(shape):
    with pytest.raises(InputError, match="cnn takes images of 7x7 or more"):
        Model.build("cnn", shape, 10, 0)


def test_the_initial_model_depends_on_the_seed_alone():
    torch.manual_seed(1)
    one = Model.build("mlp", SHAPE, CLASSES, seed=5).initial
    state = torch.get_rng_state()
    same = Model.build("mlp", SHAPE, CLASSES, seed=5).initial
    assert torch.equal(one, same)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(one, Model.build("mlp", SHAPE, CLASSES, seed=6).initial)


def test_the_initial_model_has_the_default_scale():
    """PyTorch's default: uniform within 1 / sqrt(inputs)."""
    weights = Model.build("mlp", (1, 28, 28), 10, 3)
    first = weights.unflatten(weights.initial)["1.weight"]
    assert first.abs().max() <= 1 / 28
    assert abs(float(first.std()) - 1 / 28 / np.sqrt(3)) < 0.0005


def test_flat_vectors_and_tensors_are_two_views_of_one_thing():
    model = _build(f"{__name__}:_Named")
    rows = torch.zeros(3, model.size)
    named = model.unflatten(rows)
    assert {name: tuple(tensor.shape) for name, tensor in named.items()} == {
        "out.weight": (3, 10, 64),
        "out.bias": (3, 10),
    }
    named["out.bias"][1] = 7
    assert rows.sum() == 70
    assert rows[1, -10:].tolist() == [7] * 10


def test_scores_are_those_of_the_module():
    model = _build("mlp")
    x = torch.randn(5, *SHAPE)
    torch.testing.assert_close(model.logits(model.unflatten(model.initial), x), model.module(x))


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 9), (3, 1, 2, 3)])
@pytest.mark.parametrize("gradient", [True, False])
def test_max_pooling_is_pytorchs(shape, gradient):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0] = torch.nan
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_(gradient)
    torch.testing.assert_close(MaxPool2x2()(x), nn.MaxPool2d(2)(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("shape", "parameters"), [((1, 28, 28), 44_426), ((3, 32, 32), 62_006)])
def test_lenet_has_the_parameters_of_niid_bench(shape, parameters):
    """By hand for grey images: 6*26 + 16*151 + 120*257 + 84*121 + 10*85."""
    model = Model.build("lenet", shape, 10, 0)
    assert model.size == parameters
    assert lenet(shape, 10)(torch.zeros(2, *shape)).shape == (2, 10)
    with pytest.raises(InputError, match="lenet takes images of 16x16 or more"):
        Model.build("lenet", (1, 8, 8), 10, 0)
