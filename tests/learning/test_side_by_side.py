"""Networks side by side against each network alone; and which networks can be computed so."""

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from fedslot.learning.models import MaxPool2x2, Model, cnn
from fedslot.learning.side_by_side import SideBySide

LAYERS = [nn.ReLU(), nn.Tanh(), nn.Dropout(0.5), MaxPool2x2(), nn.MaxPool2d(3, stride=1), nn.AvgPool2d(2)]


@st.composite
def networks(draw: st.DrawFn) -> nn.Sequential:
    """Draw one to three convolutions, each with a layer after it, and one or two linear layers."""
    parts: list[nn.Module] = []
    channels = 3
    for number in range(draw(st.integers(1, 3))):
        groups = draw(st.sampled_from([1, 2])) if number else 1
        wider = 2 * draw(st.integers(1, 4))
        more = {"bias": draw(st.booleans()), "padding": draw(st.integers(0, 2)), "stride": draw(st.integers(1, 2))}
        parts += [nn.Conv2d(channels, wider, draw(st.integers(1, 3)), groups=groups, **more)]
        parts += [draw(st.sampled_from(LAYERS))]
        channels = wider
    parts += [nn.Flatten(), nn.LazyLinear(5, bias=draw(st.booleans()))]
    if draw(st.booleans()):
        parts += [nn.ReLU(), nn.Linear(5, 4)]
    return nn.Sequential(*parts)


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_each_network_computes_as_if_alone(module, count, samples, channels_last):
    torch.manual_seed(0)
    x = torch.randn(samples, 3, 18, 18)
    try:
        module.eval()(x)  # makes the lazy layer
    except RuntimeError:  # nothing is left of the image
        reject()
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    model = Model(module)
    parameters = model.unflatten(model.initial + 0.3 * torch.randn(count, model.size))
    wide = SideBySide.of(module.train())
    assert wide is not None
    with torch.no_grad():
        found = wide(parameters, x)
        for number in range(count):
            alone = functional_call(module.eval(), {name: part[number] for name, part in parameters.items()}, (x,))
            torch.testing.assert_close(found[number], alone, rtol=1e-4, atol=1e-5)


def test_the_network_of_the_paper_is_computed_side_by_side():
    assert SideBySide.of(cnn((3, 32, 32), 10)) is not None


@pytest.mark.parametrize(
    "parts",
    [
        [nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(72, 4)],  # in groups, of the samples that all share
        [nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(128, 4)],
        [nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(72, 4)],  # over channels
        [nn.Conv2d(2, 2, 3), nn.Flatten(2), nn.Linear(36, 4)],
        [nn.Conv2d(2, 2, 3), nn.Flatten(), nn.LayerNorm(72), nn.Linear(72, 4)],
        [nn.ReLU(), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(72, 4)],
        [nn.Flatten(), nn.Linear(128, 4)],
        [nn.Conv2d(2, 4, 8)],
        [],
    ],
    ids=lambda parts: "-".join(type(part).__name__ for part in parts) or "nothing",
)
def test_networks_that_are_computed_otherwise(parts):
    assert SideBySide.of(nn.Sequential(*parts)) is None
