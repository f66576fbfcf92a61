import numpy as np
import pytest
import torch
from torch import nn

from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model, cnn, mlp
from fedslot.learning.series import cnn1d


def _model(module: nn.Module, seed: int = 0) -> Model:
    model = Model(module)
    model.initial = torch.randn(model.size, generator=torch.Generator().manual_seed(seed)) / 3
    return model


def _images(count: int, *shape: int) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


NETWORKS = {
    "perceptron": (mlp((1, 6, 6), 4), (1, 6, 6)),
    "convolutions": (cnn((2, 12, 12), 5), (2, 12, 12)),
    "strides": (
        nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, dilation=2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
        (1, 8, 8),
    ),
    "uneven": (
        nn.Sequential(nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(0, 1)), nn.Flatten(), nn.Linear(75, 2)),
        (2, 7, 8),
    ),
    "series": (cnn1d((1, 12, 3), 4, filters=5), (1, 12, 3)),
    "without a bias": (nn.Sequential(nn.Flatten(), nn.Linear(9, 4, bias=False), nn.ReLU(), nn.Linear(4, 2)), (1, 3, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_matrices_and_back(name):
    module, shape = NETWORKS[name]
    model = _model(module)
    statistics = LayerStatistics(model, _images(3, *shape))
    updates = torch.randn(4, model.size)
    assert torch.equal(statistics.flatten(statistics.matrices(updates)), updates)
    assert torch.equal(statistics.flatten(statistics.matrices(updates[0])), updates[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_responses_are_changes_of_the_layers_outputs(name):
    """The inner products of responses against the outputs of each layer, computed by the layers themselves."""
    module, shape = NETWORKS[name]
    model, inputs = _model(module), _images(200, *shape)
    statistics = LayerStatistics(model, inputs)
    updates = torch.randn(3, model.size, generator=torch.Generator().manual_seed(2))
    found = statistics.responses(updates, model.initial)

    expected, activations = torch.zeros(3, 3, dtype=torch.float64), inputs
    parameters = model.unflatten(model.initial)
    for position, part in enumerate(model.module):
        own = {key.partition(".")[2]: value for key, value in parameters.items() if key.startswith(f"{position}.")}
        if own:
            changes = []
            for update in updates:
                of_update = model.unflatten(update)
                changed = {key: of_update[f"{position}.{key}"] for key in own}
                changes.append(torch.func.functional_call(part, changed, (activations,)))
            change = torch.stack(changes).movedim(2, -1).reshape(3, -1, changes[0].shape[1]).double()
            expected += torch.einsum("ano,bno->ab", change, change) / change.shape[1]
            activations = torch.func.functional_call(part, own, (activations,))
        else:
            activations = part(activations)
    # shrinkage adds what 200 samples cannot exclude
    np.testing.assert_allclose(
        (found @ found.mT).numpy(), expected.detach().numpy(), rtol=0.15, atol=0.15 * expected.max()
    )


def test_noise_gain_is_the_mean_squared_response_of_noise():
    model = _model(mlp((1, 5, 5), 3))
    statistics = LayerStatistics(model, _images(500, 1, 5, 5))
    noise = torch.randn(2000, model.size, generator=torch.Generator().manual_seed(3))
    mean = statistics.responses(noise, model.initial).square().sum(dim=1).mean()
    assert float(mean) == pytest.approx(statistics.noise_gain(model.initial), rel=0.02)


def test_shrinkage_finds_true_energies_from_few_samples():
    """40 directions of energy 1 and 20 samples: half of the directions are without samples, but not without energy."""
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(40, 2, bias=False)))
    energies = LayerStatistics(model, _images(20, 40)).bases(model.initial)[0].energies
    assert energies.min() > 0.5
    assert energies.sum() == pytest.approx(40, rel=0.2)


def test_a_single_sample_excludes_no_direction():
    model = Model.build("mlp", (1, 4, 4), 3, seed=0)
    energies = LayerStatistics(model, torch.rand(1, 1, 4, 4)).bases(model.initial)[0].energies
    np.testing.assert_allclose(energies, energies.mean(), rtol=1e-5)
    assert energies.min() > 0


def test_statistics_follow_the_model():
    model = _model(mlp((1, 4, 4), 3))
    statistics = LayerStatistics(model, _images(50, 1, 4, 4))
    first, *deeper = statistics.bases(model.initial)
    first_again, *doubled = statistics.bases(2 * model.initial)
    assert torch.equal(first.energies, first_again.energies)  # those of the samples
    assert doubled[0].energies.sum() > 2 * deeper[0].energies.sum()


class HeadFirst(nn.Module):
    """Registers its layers in another order than it calls them, and one that it may not call."""

    def __init__(self, spare: bool) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(5, 2), nn.Linear(4, 5)
        self.spare = nn.Linear(2, 2) if spare else None

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def test_the_first_layer_is_the_one_that_is_called_first():
    model = _model(HeadFirst(spare=False))
    statistics = LayerStatistics(model, _images(50, 4))
    body, head = statistics.bases(model.initial)
    body_again, head_again = statistics.bases(3 * model.initial)
    assert (len(body.energies), len(head.energies)) == (5, 6)
    assert torch.equal(body.energies, body_again.energies)
    assert head_again.energies.sum() > 3 * head.energies.sum()
    updates = torch.randn(2, model.size)
    assert torch.equal(statistics.flatten(statistics.matrices(updates)), updates)


def test_a_network_with_a_layer_that_it_does_not_call_has_no_statistics():
    model = _model(HeadFirst(spare=True))
    assert not LayerStatistics(model, _images(5, 4)).complete


@pytest.mark.parametrize(
    "other",
    [nn.LayerNorm(8), nn.Conv1d(1, 1, 1), nn.PReLU()],
    ids=lambda part: type(part).__name__,
)
def test_other_layers_keep_their_parameters_as_coordinates(other):
    model = Model(nn.Sequential(nn.Linear(8, 8), other, nn.Linear(8, 2)))
    statistics = LayerStatistics(model, _images(5, 8))
    updates = torch.randn(2, model.size)
    assert not statistics.complete
    assert torch.equal(statistics.responses(updates, model.initial), updates)
    assert statistics.noise_gain(model.initial) == model.size
