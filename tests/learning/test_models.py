import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedslot.learning.models import MaxPool2x2, Model, cnn, mlp
from fedslot.support.errors import InputError

SHAPE, CLASSES = (1, 8, 8), 10


class _Named(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        return self.out(x.flatten(1))


def batch_norm(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))


def batch_norm_without_buffers(shape, classes):
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), norm, nn.Linear(4, classes))


def too_few_scores(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 1))


def scores_per_pixel(shape, classes):
    return nn.Linear(8, classes)


def wrong_inputs(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))


def double_precision(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes)).double()


def frozen(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5).requires_grad_(False), nn.Linear(5, classes))


def no_parameters(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(classes))


def layer_used_twice(shape, classes):
    layer = nn.Linear(8, 8)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), layer, nn.ReLU(), layer, nn.Linear(8, classes))


def no_module(shape, classes):
    return 3


class tuple_of_scores(_Named):
    def forward(self, x):
        return super().forward(x), 1


def one_argument(shape):
    return _Named(shape, 10)


def broken_inside(shape, classes):
    raise KeyError("deep\nwithin")


class breaks_on_samples(_Named):
    def forward(self, x):
        return x["image"]


def _build(name: str, shape=SHAPE) -> Model:
    return Model.build(name if ":" in name or name in {"mlp", "cnn"} else f"{__name__}:{name}", shape, CLASSES, seed=0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("batch_norm", "GroupNorm or LayerNorm"),
        ("batch_norm_without_buffers", "GroupNorm or LayerNorm"),
        ("too_few_scores", "10 scores, not (9,)"),
        ("scores_per_pixel", "10 scores, not (1, 8, 10)"),
        ("wrong_inputs", "samples of shape (1, 8, 8)"),
        ("double_precision", "samples of shape (1, 8, 8)"),
        ("frozen", "without frozen parameters"),
        ("no_parameters", "parameters to train"),
        ("layer_used_twice", "no layer in two places"),
        ("no_module", "a network, a torch.nn.Module, not a int"),
        ("tuple_of_scores", "a tensor of scores, not a tuple"),
        ("one_argument", "(shape, classes)"),
        ("broken_inside", "deep"),
        ("breaks_on_samples", "samples of shape"),
        ("no_such_factory", "has no attribute 'no_such_factory'"),
        ("math:pi", "that can be called"),
        ("torch.nn:Linear", "(shape, classes)"),
    ],
)
def test_networks_that_cannot_serve_are_refused_with_one_line(name, reason):
    with pytest.raises(InputError) as caught:
        _build(name)
    assert caught.value.field == "training.model"
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


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
    model = _build("_Named")
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


def test_factories_are_found_where_users_put_them(tmp_path, monkeypatch):
    (tmp_path / "users_networks.py").write_text(
        "from torch import nn\n"
        "def tiny(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert _build("users_networks:tiny").size == 650
    sys.modules.pop("users_networks")


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 9), (3, 1, 2, 3)])
@pytest.mark.parametrize("gradient", [True, False])
def test_max_pooling_is_pytorchs(shape, gradient):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0] = torch.nan
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_(gradient)
    torch.testing.assert_close(MaxPool2x2()(x), nn.MaxPool2d(2)(x), rtol=0, atol=0, equal_nan=True)
