"""Local training against the plain way: one nn.Module and one torch.optim.SGD per UE."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from fedslot.learning import networks, perceptrons
from fedslot.learning.convolutions import Convolutions
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model
from fedslot.learning.networks import OneByOne, Stacked, best_way
from fedslot.learning.perceptrons import Perceptrons
from fedslot.learning.training import Trainer
from fedslot.threads import threads

SHAPE, CLASSES, SAMPLES = (1, 8, 8), 4, 300
_generator = torch.Generator().manual_seed(0)
X = torch.randn(SAMPLES, *SHAPE, generator=_generator)
Y = torch.randint(0, CLASSES, (SAMPLES,), generator=_generator)


def softmax_regression(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def shared_activation(shape, classes):
    relu = nn.ReLU()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), relu, nn.Linear(6, 5), relu, nn.Linear(5, classes))


def in_place(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(inplace=True), nn.Linear(6, classes))


def named_parts(shape, classes):
    parts = OrderedDict(
        flat=nn.Flatten(), into=nn.Linear(64, 6), act=nn.Tanh(), norm=nn.LayerNorm(6), out=nn.Linear(6, classes)
    )
    return nn.Sequential(parts)


def images_into_a_linear_layer(shape, classes):
    return nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, classes))


def without_bias(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6, bias=False), nn.ReLU(), nn.Linear(6, classes, bias=False))


def tied_weights(shape, classes):
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    two.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), two, nn.ReLU(), nn.Linear(64, classes))


def weight_norm(shape, classes):
    first = nn.utils.parametrizations.weight_norm(nn.Linear(64, 6))
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(6, classes))


class TripledLinear(nn.Linear):
    def forward(self, x):
        return 3 * super().forward(x)


def own_layer(shape, classes):
    return nn.Sequential(nn.Flatten(), TripledLinear(64, 6), nn.ReLU(), nn.Linear(6, classes))


class _SkippingSequential(nn.Sequential):
    def forward(self, x):
        return self[2](self[0](x.flatten(1)))


def own_forward(shape, classes):
    """A subclass of Sequential that does not run its parts in sequence."""
    return _SkippingSequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, classes))


def biases_first(shape, classes):
    """Plain linear layers, but orthogonal initialisation leaves their parameters in another order."""
    first = nn.utils.parametrizations.orthogonal(nn.Linear(64, 6))
    nn.utils.parametrize.remove_parametrizations(first, "weight")
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(6, classes))


class residual(nn.Module):
    """Not a Sequential."""

    def __init__(self, shape, classes):
        super().__init__()
        self.inside, self.out = nn.Linear(64, 64), nn.Linear(64, classes)

    def forward(self, x):
        flat = x.flatten(1)
        return self.out(flat + self.inside(flat).tanh())


class branching(residual):
    """Looks at its values, which a stack cannot do."""

    def forward(self, x):
        return super().forward(x / 2 if x.abs().max().item() > 3 else x)


class recurrent(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.rows, self.out = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, classes)

    def forward(self, x):
        return self.out(self.rows(x[:, 0])[0][:, -1])


class with_a_part_of_no_use(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.inside, self.spare, self.out = nn.Conv2d(1, 2, 3), nn.Linear(3, 3), nn.Linear(72, classes)

    def forward(self, x):
        return self.out(self.inside(x).relu().flatten(1))


def convolutional(shape, classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes))


def dropping(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, classes))


class dropping_by_function(residual):
    """Dropout that no module tells of."""

    def forward(self, x):
        return super().forward(dropout(x, 0.5, self.training))


NETWORKS = [
    softmax_regression,
    shared_activation,
    in_place,
    named_parts,
    images_into_a_linear_layer,
    without_bias,
    tied_weights,
    weight_norm,
    own_layer,
    own_forward,
    biases_first,
    with_a_part_of_no_use,
    residual,
    branching,
    recurrent,
    convolutional,
]


def _model(factory) -> Model:
    name = factory if isinstance(factory, str) else f"{__name__}:{factory.__name__}"
    return Model.build(name, SHAPE, CLASSES, seed=0)


def _jobs(*kinds: tuple[int, int], seed: int = 0) -> list[Job]:
    """Jobs of (samples, epochs) with shares that do not overlap."""
    ends = np.cumsum([samples for samples, _ in kinds])
    assert ends[-1] <= SAMPLES
    return [
        Job(np.arange(end - samples, end), epochs, np.random.default_rng([seed, number]), dropout_seed=number)
        for number, (end, (samples, epochs)) in enumerate(zip(ends, kinds, strict=True))
    ]


def _plainly(model: Model, job: Job, recipe: Recipe) -> torch.Tensor:
    """The usual loop; the only thing shared with the code under test is how an epoch is cut into minibatches."""
    module = model.module.train()
    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, start in model.unflatten(model.initial).items():
            own[name].copy_(start)
    optimiser = torch.optim.SGD(module.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    for _ in range(job.epochs):
        for minibatch in np.array_split(job.rng.permutation(job.share), min(recipe.batches, len(job.share))):
            optimiser.zero_grad()
            cross_entropy(module(X[minibatch]), Y[minibatch]).backward()
            optimiser.step()
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in own.values()])


KINDS = [(11, 3), (2, 4), (47, 1), (1, 2), (30, 3)]  # ragged shares, stragglers, fewer samples than minibatches


@pytest.mark.parametrize(
    "network", ["mlp", "cnn", *NETWORKS], ids=lambda network: getattr(network, "__name__", network)
)
def test_training_equals_a_loop_of_modules_and_optimisers(network):
    model, recipe = _model(network), Recipe(lr=0.1, momentum=0.5, batches=5)
    start = model.initial.clone()
    updates = Trainer(model, X, Y, recipe)(model.initial, _jobs(*KINDS))
    expected = torch.stack([_plainly(model, job, recipe) for job in _jobs(*KINDS)])
    assert (expected - start).abs().max() > 0.01
    torch.testing.assert_close(updates, expected, rtol=1e-4, atol=2e-6)
    assert torch.equal(model.initial, start)  # the start is left as it is


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_training_equals_the_loop_for_any_shares(kinds, batches, momentum):
    model, recipe = _model("mlp"), Recipe(lr=0.05, momentum=momentum, batches=batches)
    updates = Trainer(model, X, Y, recipe)(model.initial, _jobs(*kinds))
    expected = torch.stack([_plainly(model, job, recipe) for job in _jobs(*kinds)])
    torch.testing.assert_close(updates, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("network", ["mlp", named_parts])
def test_more_ues_than_a_stack(network, monkeypatch):
    monkeypatch.setattr(networks, "ROOM", 3_000)  # a few UEs at a time
    kinds = [(1 + number % 4, 1 + number % 3) for number in range(40)]
    model, recipe = _model(network), Recipe(lr=0.05, momentum=0.5, batches=2)
    trainer = Trainer(model, X, Y, recipe)
    assert len(trainer.stacks(_jobs(*kinds))) > 5
    updates = trainer(model.initial, _jobs(*kinds))
    for row in (0, 1, 2, 20, 39):
        expected = _plainly(model, _jobs(*kinds)[row], recipe)
        torch.testing.assert_close(updates[row], expected, rtol=1e-4, atol=2e-6)


def test_no_jobs():
    model = _model("mlp")
    assert Trainer(model, X, Y, Recipe(0.1, 0.5, 5))(model.initial, []).shape == (0, model.size)


@pytest.mark.parametrize("network", ["mlp", named_parts, dropping, "cnn"])
def test_an_update_depends_on_no_other_ues_data(network):
    """Changing all samples but those of one UE leaves its update alone; changing its own does not."""
    model, recipe = _model(network), Recipe(0.1, 0.5, 3)
    mine = slice(11, 13)  # the second job's share
    others = X.clone()
    others[:11] *= -3
    others[13:] += 1
    own = X.clone()
    own[mine] += 1
    rows = [Trainer(model, x, Y, recipe)(model.initial, _jobs(*KINDS))[1] for x in (X, others, own)]
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-5, atol=1e-6)
    assert (rows[2] - rows[0]).abs().max() > 1e-3


@pytest.mark.parametrize("network", [dropping, dropping_by_function], ids=lambda network: network.__name__)
def test_dropout_is_reproducible_and_independent_of_who_else_is_trained(network):
    model, recipe = _model(network), Recipe(0.1, 0.5, 3)
    together = Trainer(model, X, Y, recipe)(model.initial, _jobs(*KINDS))
    before = torch.get_rng_state()
    torch.manual_seed(12345)
    again = Trainer(model, X, Y, recipe)(model.initial, _jobs(*KINDS))
    torch.set_rng_state(before)
    assert torch.equal(together, again)
    alone = torch.cat([Trainer(model, X, Y, recipe)(model.initial, [job]) for job in _jobs(*KINDS)])
    assert torch.equal(together, alone)


def test_dropout_is_applied_and_differs_by_seed():
    model, recipe = _model(dropping), Recipe(0.1, 0.5, 3)
    share = np.arange(40)

    def update(dropout_seed: int) -> torch.Tensor:
        job = Job(share, 2, np.random.default_rng(0), dropout_seed)
        return Trainer(model, X, Y, recipe)(model.initial, [job])[0]

    assert not torch.equal(update(1), update(2))
    before = torch.get_rng_state()
    update(1)
    assert torch.equal(torch.get_rng_state(), before)  # the global generator is left alone
    # on average over masks a dropped-out step is the plain step of the last layer's bias, nearly
    assert (torch.stack([update(seed) for seed in range(20)]).std(dim=0) > 1e-4).any()


@pytest.mark.parametrize("network", ["mlp", softmax_regression, shared_activation, in_place])
def test_perceptrons_as_stacks_equal_the_loop(network):
    """The way that another device than a CPU takes."""
    model, recipe = _model(network), Recipe(lr=0.1, momentum=0.5, batches=5)
    way = best_way(model, X, Y, recipe)
    assert isinstance(way, Stacked)
    jobs = _jobs(*KINDS)
    (stack,) = way.stacks(jobs)
    expected = torch.stack([_plainly(model, _jobs(*KINDS)[index], recipe) for index in stack])
    torch.testing.assert_close(
        way.descend(model.initial, [jobs[index] for index in stack]), expected, rtol=1e-4, atol=2e-6
    )


def test_which_networks_are_trained_in_which_way():
    """The fast ways are taken where they can be, and only there."""
    ways = {
        getattr(network, "__name__", network): Trainer(_model(network), X, Y, Recipe(0.1, 0.5, 5)).way
        for network in ["mlp", "cnn", *NETWORKS, dropping, dropping_by_function]
    }
    quick = {"mlp", "softmax_regression", "shared_activation", "in_place"}
    drawing = {"dropping", "dropping_by_function"}
    alone = {"branching", "recurrent", "convolutional", "weight_norm", "with_a_part_of_no_use"}
    assert {name for name, way in ways.items() if isinstance(way, Perceptrons)} == quick
    assert {name for name, way in ways.items() if isinstance(way, Convolutions)} == {"cnn"}
    assert {name for name, way in ways.items() if isinstance(way, OneByOne)} == alone | drawing
    assert {name for name, way in ways.items() if way.draws} == drawing


@pytest.mark.parametrize("network", ["mlp", "cnn", *NETWORKS, dropping])
def test_threads_change_nothing(network, monkeypatch):
    monkeypatch.setattr(networks, "ROOM", 20_000)  # several stacks
    model, recipe = _model(network), Recipe(0.1, 0.5, 3)
    results = []
    for count in (1, 3):
        with threads(count):
            results.append(Trainer(model, X, Y, recipe)(model.initial, _jobs(*KINDS)))
    assert torch.equal(*results)


def test_training_in_the_span_of_the_samples_equals_the_loop_again_and_again(monkeypatch):
    """Both ways of training take part, and inner products that were kept or dropped change nothing."""
    kinds = [(3, 4), (8, 4), (100, 1), (5, 3), (8, 4), (30, 2)]
    model, recipe = _model("mlp"), Recipe(lr=0.1, momentum=0.9, batches=3)
    keeping, dropping = (Perceptrons(model, X, Y, recipe) for _ in range(2))
    assert {keeping.in_span(job) for job in _jobs(*kinds)} == {True, False}
    results = [keeping.descend(model.initial, _jobs(*kinds)) for _ in range(2)]
    monkeypatch.setattr(perceptrons, "KEPT", 950)  # the largest share's, or some of the others'
    results += [dropping.descend(model.initial, _jobs(*kinds)) for _ in range(2)]
    first = results[0]
    assert all(torch.equal(first, other) for other in results)
    assert sum(products.size for products in dropping._products.values()) == dropping._kept <= 950
    expected = torch.stack([_plainly(model, job, recipe) for job in _jobs(*kinds)])
    torch.testing.assert_close(first, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("in_span", [True, False])
def test_what_diverges_is_no_number(in_span, monkeypatch):
    """A learning rate beyond all bounds ends in NaN or infinity, as PyTorch's would, not in a model that looks well."""
    monkeypatch.setattr(Perceptrons, "in_span", lambda self, job: in_span)
    model, recipe = _model("mlp"), Recipe(lr=1e30, momentum=0.5, batches=3)
    update = Trainer(model, X, Y, recipe)(model.initial, _jobs((20, 6)))
    assert not torch.isfinite(update).all()


def test_shares_too_large_for_their_inner_products_are_trained_the_ordinary_way(monkeypatch):
    trainer = Perceptrons(_model("mlp"), X, Y, Recipe(0.1, 0.5, 3))
    (job,) = _jobs((10, 4))
    assert trainer.in_span(job)
    monkeypatch.setattr(perceptrons, "KEPT", 99)
    assert not trainer.in_span(job)


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_beyond_the_classes_are_refused(label):
    with pytest.raises(ValueError, match="labels must be from 0 to 3"):
        Trainer(_model("mlp"), X, torch.full_like(Y, label), Recipe(0.1, 0.5, 5))


@pytest.mark.parametrize("network", ["mlp", "cnn", named_parts])
@given(
    kinds=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), min_size=1, max_size=12),
    room=st.integers(1, 40_000),
)
def test_a_stack_is_planned_the_same_when_it_is_alone(network, kinds, room):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "ROOM", room)
        trainer, jobs = Trainer(_model(network), X, Y, Recipe(0.1, 0.5, 5)), _jobs(*kinds)
        stacks = trainer.stacks(jobs)
        assert sorted(index for stack in stacks for index in stack) == list(range(len(jobs)))
        for stack in stacks:
            assert trainer.stacks([jobs[index] for index in stack]) == [list(range(len(stack)))]


@given(st.integers(1, 200), st.integers(1, 40))
def test_minibatches_are_cut_as_numpy_splits(samples, batches):
    job, recipe = Job(np.arange(samples), 1, np.random.default_rng(0)), Recipe(0.1, 0.5, batches)
    parts = np.array_split(np.arange(samples), min(samples, batches))
    assert recipe.cuts(job).tolist() == [0, *np.cumsum([len(part) for part in parts])]
