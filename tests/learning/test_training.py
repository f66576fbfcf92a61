"""Local training by every engine against the usual loop: one nn.Module and one torch.optim optimiser per UE."""

import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedslot.learning.compiled_training import CompiledTraining
from fedslot.learning.jobs import Job, Recipe
from fedslot.learning.models import Model, cnn, mlp
from fedslot.learning.training import Trainer
from fedslot.support.errors import InputError
from fedslot.support.threads import Threads

SHAPE, CLASSES, SAMPLES = (1, 8, 8), 4, 300
_generator = torch.Generator().manual_seed(0)
X = torch.randn(SAMPLES, *SHAPE, generator=_generator)
Y = torch.randint(0, CLASSES, (SAMPLES,), generator=_generator)
RAGGED = [(11, 3), (2, 4), (47, 1), (1, 2), (30, 3), (8, 4), (5, 3)]  # (samples, epochs); some of few samples


def biases_first() -> nn.Module:
    """A plain perceptron, but orthogonal initialisation leaves its parameters in another order."""
    first = nn.utils.parametrizations.orthogonal(nn.Linear(64, 6))
    nn.utils.parametrize.remove_parametrizations(first, "weight")
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(6, CLASSES))


def tied_weights() -> nn.Module:
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    two.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), two, nn.ReLU(), nn.Linear(64, CLASSES))


def weight_norm() -> nn.Module:
    first = nn.utils.parametrizations.weight_norm(nn.Linear(64, 6))
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(6, CLASSES))


class TripledLinear(nn.Linear):
    def forward(self, x):
        return 3 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return self[2](self[0](x.flatten(1)))


def hooked() -> nn.Module:
    first = nn.Linear(64, 6)
    first.register_forward_hook(lambda module, inputs, output: 2 * output)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(6, CLASSES))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(64, 64), nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.out(x.flatten(1) + self.inside(x.flatten(1)).tanh())


class Branching(Residual):
    """Branches on the values of its inputs."""

    def forward(self, x):
        return super().forward(x / 2 if x.abs().max().item() > 3 else x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.out(self.rows(x[:, 0])[0][:, -1])


class WithUnusedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.spare, self.out = nn.Conv2d(1, 2, 3), nn.Linear(3, 3), nn.Linear(72, CLASSES)

    def forward(self, x):
        return self.out(self.inside(x).relu().flatten(1))


class FunctionalDropout(Residual):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))


def perceptron(first: nn.Module, *others: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), first, *others, nn.Linear(6, CLASSES))


RELU = nn.ReLU()
NETWORKS = {
    "mlp": lambda: mlp(SHAPE, CLASSES),
    "softmax regression": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)),
    "shared activation": lambda: perceptron(nn.Linear(64, 5), RELU, nn.Linear(5, 6), RELU),
    "in place": lambda: perceptron(nn.Linear(64, 6), nn.ReLU(inplace=True)),
    "cnn": lambda: cnn(SHAPE, CLASSES),
    "biases first": biases_first,
    "tanh and norm": lambda: perceptron(nn.Linear(64, 6), nn.Tanh(), nn.LayerNorm(6)),
    "named parts": lambda: nn.Sequential(OrderedDict(flat=nn.Flatten(), act=nn.Tanh(), out=nn.Linear(64, CLASSES))),
    "linear on rows of pixels": lambda: nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, CLASSES)),
    "flattened from axis 2": lambda: nn.Sequential(
        nn.Flatten(2), nn.Linear(64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, CLASSES)
    ),
    "without bias": lambda: perceptron(nn.Linear(64, 6, bias=False), nn.ReLU()),
    "tied weights": tied_weights,
    "weight norm": weight_norm,
    "layer of its own": lambda: perceptron(TripledLinear(64, 6), nn.ReLU()),
    "sequential with another forward": lambda: Skipping(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, CLASSES)),
    "hooked": hooked,
    "residual": Residual,
    "branching": Branching,
    "recurrent": Recurrent,
    "with unused layer": WithUnusedLayer,
    "convolutional": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
    ),
    "dropout": lambda: perceptron(nn.Linear(64, 6), nn.ReLU(), nn.Dropout(0.5)),
    "functional dropout": FunctionalDropout,
}
COMPILABLE = ["mlp", "softmax regression", "shared activation", "in place"]
RANDOM = ["dropout", "functional dropout"]
CASES = [(name, "torch") for name in NETWORKS if name not in RANDOM] + [(name, "compiled") for name in COMPILABLE]
KINDS = [("mlp", "torch"), ("mlp", "compiled"), ("cnn", "torch")]  # one for each way of training


def model_of(name: str) -> Model:
    torch.manual_seed(0)
    return Model(NETWORKS[name]())


def jobs_of(kinds: list[tuple[int, int]]) -> list[Job]:
    """Jobs of (samples, epochs) with shares that do not overlap."""
    ends = np.cumsum([samples for samples, _ in kinds])
    assert ends[-1] <= SAMPLES
    return [
        Job(np.arange(end - samples, end), epochs, np.random.default_rng(number), dropout_seed=number)
        for number, (end, (samples, epochs)) in enumerate(zip(ends, kinds, strict=True))
    ]


def usual_loop(model: Model, jobs: list[Job], recipe: Recipe, make_optimizer=None) -> torch.Tensor:
    """Local models (Y, P); FedProx's term is part of the loss, and autograd differentiates all of it."""
    updates = []
    for job in jobs:
        module = model.copy().module.train()
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, start in model.unflatten(model.initial).items():
                own[name].copy_(start)
        sgd = torch.optim.SGD(own.values(), lr=recipe.lr, momentum=recipe.momentum)
        optimizer = make_optimizer(own.values(), recipe.lr) if make_optimizer else sgd
        for _ in range(job.epochs):
            order = job.rng.permutation(job.share)
            parts = None if recipe.batches is None else np.array_split(order, min(recipe.batches, len(order)))
            for minibatch in parts or torch.from_numpy(order).split(recipe.batch_size):
                loss = cross_entropy(module(X[minibatch]), Y[minibatch])
                for name, start in model.unflatten(model.initial).items():
                    loss = loss + recipe.proximal / 2 * (own[name] - start).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        updates.append(torch.cat([parameter.detach().reshape(-1) for parameter in own.values()]))
    return torch.stack(updates)


def assert_equal_training(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batches", "proximal"), [(5, 0.0), (5, 0.3), (None, 0.0)])
@pytest.mark.parametrize(("network", "engine"), CASES)
def test_training_equals_the_usual_loop(network, engine, batches, proximal):
    model = model_of(network)
    recipe = Recipe(lr=0.1, momentum=0.5, batches=batches, proximal=proximal, batch_size=7)
    start = model.initial.clone()
    trainer = Trainer(model, X, Y, recipe, engine)
    updates, again = trainer(model.initial, jobs_of(RAGGED)), trainer(model.initial, jobs_of(RAGGED))
    expected = usual_loop(model, jobs_of(RAGGED), recipe)
    assert (expected - start).abs().max() > 0.01
    assert_equal_training(updates, expected)
    assert torch.equal(updates, again)  # what is cached changes nothing
    assert torch.equal(model.initial, start)


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@settings(max_examples=30, deadline=None)
@given(
    widths=st.lists(st.integers(1, 40), max_size=3),
    kinds=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=8),
    recipe=st.builds(
        Recipe,
        lr=st.sampled_from([0.01, 0.1]),
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        batches=st.integers(1, 8) | st.none(),
        batch_size=st.integers(1, 40),
        proximal=st.sampled_from([0.0, 1.0]),
    ),
)
def test_any_perceptron_on_any_minibatches_equals_the_usual_loop(engine, widths, kinds, recipe):
    torch.manual_seed(len(widths))
    parts: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in zip([64, *widths], [*widths, CLASSES], strict=True):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = Model(nn.Sequential(*parts[:-1]))
    updates = Trainer(model, X, Y, recipe, engine)(model.initial, jobs_of(kinds))
    assert_equal_training(updates, usual_loop(model, jobs_of(kinds), recipe))


@pytest.mark.parametrize(("kinds", "features"), [([(20, 30)], "many"), ([(300, 1)], "few")])
def test_both_forms_of_compiled_training_follow_the_usual_loop(kinds, features):
    """Few samples and many epochs are trained in dual form, the opposite in the ordinary one."""
    model, recipe = model_of("mlp"), Recipe(lr=0.05, momentum=0.9, batches=3, proximal=0.1)
    compiled = CompiledTraining(model, X, Y, recipe)
    assert compiled.prefers_dual(jobs_of(kinds)[0]) == (features == "many")
    assert_equal_training(compiled.train(model.initial, jobs_of(kinds)), usual_loop(model, jobs_of(kinds), recipe))


def adam(parameters, lr):
    return torch.optim.Adam(parameters, lr)


@pytest.mark.parametrize("network", ["mlp", "cnn", "with unused layer"])
@pytest.mark.parametrize("proximal", [0.0, 0.3])
def test_an_optimizer_of_ones_own(network, proximal):
    """Each UE gets a new one, whose moments begin at zero."""
    model, recipe = model_of(network), Recipe(0.01, 0.5, 5, proximal, f"{__name__}:adam")
    trainer = Trainer(model, X, Y, recipe)
    assert trainer.engine == "torch"
    for _ in range(2):
        updates = trainer(model.initial, jobs_of(RAGGED))
        assert_equal_training(updates, usual_loop(model, jobs_of(RAGGED), recipe, adam))


class Langevin(torch.optim.SGD):
    """SGD with random numbers of its own."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter), alpha=0.01)


@pytest.mark.parametrize(
    ("network", "optimizer"), [*((network, "sgd") for network in RANDOM), ("mlp", f"{__name__}:Langevin")]
)
def test_random_numbers_are_those_of_the_ue(network, optimizer):
    """The same whoever else is trained and whatever was drawn before; the global generator is left alone."""
    model = model_of(network)
    trainer = Trainer(model, X, Y, Recipe(0.1, 0.5, 3, optimizer=optimizer))
    together = trainer(model.initial, jobs_of(RAGGED))
    before = torch.get_rng_state()
    alone = torch.cat([trainer(model.initial, [job]) for job in jobs_of(RAGGED)])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        ("adam", "one of sgd, or package"),
        ("math:sqrt", "(parameters, lr)"),
        ("builtins:dict.fromkeys", "a torch.optim.Optimizer, not a dict"),
        ("torch.optim:LBFGS", "step() needs nothing but gradients"),
    ],
)
def test_what_is_no_optimizer_is_refused(optimizer, reason):
    with pytest.raises(InputError, match=r"training\.optimizer") as caught:
        Trainer(model_of("mlp"), X, Y, Recipe(0.1, 0.5, 5, optimizer=optimizer))
    assert reason in str(caught.value)


def test_which_engine_is_used():
    recipe = Recipe(0.1, 0.5, 5)
    engines = {name: Trainer(model_of(name), X, Y, recipe).engine for name in NETWORKS}
    assert {name for name, engine in engines.items() if engine == "compiled"} == set(COMPILABLE)
    assert Trainer(model_of("mlp"), X, Y, recipe, "torch").engine == "torch"


def test_without_numba_torch_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert Trainer(model_of("mlp"), X, Y, Recipe(0.1, 0.5, 5)).engine == "torch"
    with pytest.raises(InputError, match=r"training\.engine: 'compiled' is not allowed.*Numba is not installed"):
        Trainer(model_of("mlp"), X, Y, Recipe(0.1, 0.5, 5), "compiled")


@pytest.mark.parametrize(
    ("network", "optimizer"), [("cnn", "sgd"), ("biases first", "sgd"), ("mlp", "torch.optim:Adam")]
)
def test_what_cannot_be_compiled_is_refused(network, optimizer):
    with pytest.raises(InputError, match=r"training\.engine: 'compiled' is not allowed; it must be auto or torch"):
        Trainer(model_of(network), X, Y, Recipe(0.1, 0.5, 5, optimizer=optimizer), "compiled")


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_beyond_the_classes_are_refused(label):
    with pytest.raises(ValueError, match="labels must be from 0 to 3"):
        Trainer(model_of("mlp"), X, torch.full_like(Y, label), Recipe(0.1, 0.5, 5), "compiled")


@pytest.mark.parametrize(("network", "engine"), KINDS)
def test_no_jobs(network, engine):
    model = model_of(network)
    assert Trainer(model, X, Y, Recipe(0.1, 0.5, 5), engine)(model.initial, []).shape == (0, model.size)


@pytest.mark.parametrize(("network", "engine"), [*KINDS, ("dropout", "torch")])
def test_an_update_depends_on_no_other_ues_data(network, engine):
    """Changing all samples but those of one UE leaves its update alone; changing its own does not."""
    model, recipe = model_of(network), Recipe(0.1, 0.5, 3)
    others, own = X.clone(), X.clone()
    others[:11] *= -3
    others[13:] += 1
    own[11:13] += 1  # the second job's share
    updates = [Trainer(model, x, Y, recipe, engine)(model.initial, jobs_of(RAGGED))[1] for x in (X, others, own)]
    torch.testing.assert_close(updates[1], updates[0], rtol=1e-5, atol=1e-6)
    assert (updates[2] - updates[0]).abs().max() > 1e-3


def test_dropout_differs_by_seed():
    model, recipe = model_of("dropout"), Recipe(0.1, 0.5, 3)
    jobs = [Job(np.arange(40), 2, np.random.default_rng(0), dropout_seed) for dropout_seed in range(2)]
    updates = Trainer(model, X, Y, recipe)(model.initial, jobs)
    assert (updates[0] - updates[1]).abs().max() > 1e-3


@pytest.mark.parametrize(("network", "engine"), [*KINDS, ("tanh and norm", "torch"), ("dropout", "torch")])
def test_threads_change_nothing(network, engine):
    model, recipe = model_of(network), Recipe(0.1, 0.5, 3)
    results = []
    for count in (1, 3):
        with Threads(count) as threads:
            results.append(Trainer(model, X, Y, recipe, engine, threads)(model.initial, jobs_of(RAGGED)))
    assert torch.equal(*results)


@pytest.mark.parametrize(("network", "engine"), KINDS)
@given(kinds=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 4)), min_size=1, max_size=20))
def test_a_stack_trains_the_same_alone(network, engine, kinds):
    """So a cluster may train each stack on another worker."""
    trainer, jobs = Trainer(model_of(network), X, Y, Recipe(0.1, 0.5, 5), engine), jobs_of(kinds)
    stacks = trainer.stacks(jobs)
    assert sorted(index for stack in stacks for index in stack) == list(range(len(jobs)))
    for stack in stacks:
        assert trainer.stacks([jobs[index] for index in stack]) == [list(range(len(stack)))]


@pytest.mark.parametrize("kinds", [[(20, 6)], [(300, 1)]], ids=["dual", "ordinary"])
@pytest.mark.parametrize(("network", "engine"), KINDS)
def test_divergence_is_not_hidden(network, engine, kinds):
    """A learning rate beyond all bounds ends in NaN or infinity, and so does a sample that is NaN."""
    model = model_of(network)
    update = Trainer(model, X, Y, Recipe(lr=1e30, momentum=0.5, batches=3), engine)(model.initial, jobs_of(kinds))
    assert not torch.isfinite(update).all()
    x = X.clone()
    x[3] = torch.nan
    update = Trainer(model, x, Y, Recipe(lr=0.1, momentum=0.5, batches=3), engine)(model.initial, jobs_of(kinds))
    assert not torch.isfinite(update).all()


@given(st.integers(1, 200), st.integers(1, 40))
def test_minibatches_are_cut_as_numpy_splits(samples, batches):
    job, recipe = Job(np.arange(samples), 3, np.random.default_rng(0)), Recipe(0.1, 0.5, batches)
    parts = np.array_split(np.arange(samples), min(samples, batches))
    assert recipe.edges(job).tolist() == [0, *np.cumsum([len(part) for part in parts])]
    assert recipe.steps(job) == 3 * len(parts)


@given(st.integers(1, 200), st.integers(1, 250))
def test_minibatches_of_a_size_are_cut_as_torch_splits(samples, size):
    job = Job(np.arange(samples), 3, np.random.default_rng(0))
    recipe = Recipe(0.1, 0.5, None, batch_size=size)
    parts = torch.arange(samples).split(size)
    assert recipe.edges(job).tolist() == [0, *np.cumsum([len(part) for part in parts])]
    assert recipe.steps(job) == 3 * len(parts)


PREPARED = """
import numpy as np
from fedslot import Scenario
from fedslot.learning.sgd_kernels import train, train_dual
from fedslot.rounds.local_training import LocalTraining

ues, local = np.arange(20), LocalTraining.of(Scenario.load("quickstart", {"data.ues": 20}))
local.trainer.prepare()
prepared = train.signatures, train_dual.signatures
forms = {local.trainer._method.prefers_dual(job) for job in local.jobs(ues, 0)}
local(local.trainer.model.initial, ues, 0)
sizes = [len(each) for each in prepared]
print(local.trainer.engine, forms, sizes, prepared == (train.signatures, train_dual.signatures))
"""


def test_a_prepared_trainer_compiles_nothing_later() -> None:
    """In a new process: UEs of this fleet are trained in both forms, and no kernel gets another version."""
    pytest.importorskip("numba")
    done = subprocess.run([sys.executable, "-c", PREPARED], capture_output=True, text=True, check=True)
    assert done.stdout == "compiled {False, True} [1, 1] True\n"
