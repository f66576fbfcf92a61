"""The built-in aggregations, by hand and against independent implementations."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from fedslot import InputError, Scenario
from fedslot.aggregation import AGGREGATIONS, Aggregate, Updates

Make = Callable[..., Updates]
NAMES = sorted(AGGREGATIONS)
ROBUST = ["median", "trimmed-mean", "krum"]
ADAPTIVE = ["fedavgm", "fedbuff", "fedadam", "fedyogi", "filtered"]


def once(name: str, received: Updates, **options: Any) -> list[float]:
    """The model after one round."""
    aggregation = AGGREGATIONS.make(name, options)
    return aggregation.apply(aggregation.init(received.start, 10), received).broadcast.tolist()


def several(make: Make, steps: torch.Tensor, name: str, **options: Any) -> list[Aggregate[Any]]:
    """Rounds from the zero model, in each of which one UE changes the model by the next of the steps (T, P)."""
    aggregation, start = AGGREGATIONS.make(name, options), torch.zeros(steps.shape[1])
    rounds = [Aggregate(start, start, aggregation.init(start, 10))]
    for step in steps:
        model = rounds[-1].broadcast
        rounds.append(aggregation.apply(rounds[-1].state, make((model + step)[None], model)))
    return rounds


def random_steps(rounds: int = 6, parameters: int = 8) -> torch.Tensor:
    return torch.randn(rounds, parameters, generator=torch.Generator().manual_seed(3))


matrices = st.tuples(st.integers(1, 9), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-100, 100, width=16))
)


# by hand


def test_average_by_hand(updates):
    """Weights 3/4 and 1/4."""
    assert once("average", updates([[0.0, 4.0], [8.0, 0.0]], sizes=[30, 10])) == [2.0, 3.0]


def test_fedadam_by_hand(updates):
    """One step of 2, betas 1/2, tau 1: m = 1, v = 2, lr_1 = sqrt(1 - 1/4) / (1 - 1/4)."""
    options = {"lr": 1.0, "beta1": 0.5, "beta2": 0.5, "tau": 1.0}
    (model,) = once("fedadam", updates([[2.0]]), **options)
    assert model == pytest.approx(0.75**-0.5 / (2**0.5 + 1), rel=1e-6)


def test_krum_by_hand(updates):
    """On a line: 0, 1, 3, 100 with no Byzantine UE have scores 1+9, 1+4, 4+9 and 97^2+99^2."""
    received = updates([[0.0], [1.0], [3.0], [100.0]], sizes=[30, 10, 10, 10])
    assert once("krum", received) == [1.0]
    assert once("krum", received, selected=2) == [0.25]  # 1 and 0, weighted by data
    assert once("krum", received, selected=9) == pytest.approx([1040 / 60])
    for byzantine in (0, 2):  # of three updates, one neighbour at least: scores 1, 1 and 4
        assert once("krum", updates([[0.0], [1.0], [3.0]]), byzantine=byzantine) == [0.0]


def test_krum_tells_close_updates_apart_far_from_the_start(updates):
    """Squared distances of 1/256 between updates whose squared norms are 1e6."""
    assert once("krum", updates([[1000.0], [1000.0625], [1000.1875], [1025.0]])) == [1000.0625]


# against independent implementations


def test_fedavgm_is_sgd_with_momentum(updates):
    steps = random_steps()
    parameter = torch.nn.Parameter(torch.zeros(8))
    optimizer = torch.optim.SGD([parameter], lr=0.3, momentum=0.7)
    rounds = several(updates, steps, "fedavgm", lr=0.3, momentum=0.7)
    for step, now in zip(steps, rounds[1:], strict=True):
        parameter.grad = -step
        optimizer.step()
        np.testing.assert_allclose(now.broadcast, parameter.detach(), rtol=1e-4, atol=1e-5)


def test_fedbuff_moves_once_enough_updates_have_come(updates):
    """By hand: three rounds of one update, with 10, 30 and 20 samples, and a buffer of two."""
    buffer, model, models = AGGREGATIONS.make("fedbuff", {"size": 2, "lr": 0.5}), torch.zeros(2), []
    state = buffer.init(model, 4)
    for step, samples in (([4.0, 0.0], 10), ([0.0, 8.0], 30), ([2.0, 2.0], 20)):
        done = buffer.apply(state, updates((model + torch.tensor(step))[None], model, sizes=[samples]))
        state, model = done.state, done.broadcast
        models.append(model.tolist())
    assert models == [[0, 0], [0.5, 3], [0.5, 3]]
    assert (state.samples, state.updates) == (20, 1)


def test_fedadam_is_adam_after_a_first_gradient_of_zero(updates):
    """Flower's exponents run ahead by one; Adam adds its epsilon after the correction, so both are tiny here."""
    steps = random_steps()
    parameter = torch.nn.Parameter(torch.zeros(8))
    optimizer = torch.optim.Adam([parameter], lr=0.2, betas=(0.8, 0.95), eps=1e-12)
    parameter.grad = torch.zeros(8)
    optimizer.step()
    options = {"lr": 0.2, "beta1": 0.8, "beta2": 0.95, "tau": 1e-12}
    rounds = several(updates, steps, "fedadam", **options)
    for step, now in zip(steps, rounds[1:], strict=True):
        parameter.grad = -step
        optimizer.step()
        np.testing.assert_allclose(now.broadcast, parameter.detach(), rtol=1e-4, atol=1e-5)


def test_fedyogi_parameter_by_parameter(updates):
    steps = random_steps(rounds=20, parameters=3)
    expected, m, v = [0.0] * 3, [0.0] * 3, [0.0] * 3
    for step in steps.tolist():
        for i, d in enumerate(step):
            m[i] = 0.9 * m[i] + 0.1 * d
            v[i] += 0.01 * d**2 if v[i] < d**2 else -0.01 * d**2
            expected[i] += 0.01 * m[i] / (v[i] ** 0.5 + 1e-3)
    last = several(updates, steps, "fedyogi")[-1]
    np.testing.assert_allclose(last.broadcast, expected, rtol=1e-3, atol=1e-5)


@given(matrices)
def test_median_is_numpys(updates, local):
    received = updates(local, sizes=range(1, 1 + len(local)))  # sizes do not count
    np.testing.assert_allclose(once("median", received), np.median(local, axis=0), rtol=1e-5, atol=1e-5)


@given(matrices, st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.49]))
def test_trimmed_mean_is_scipys(updates, local, fraction):
    found = once("trimmed-mean", updates(local), fraction=fraction)
    np.testing.assert_allclose(found, trim_mean(local.astype(float), fraction), rtol=1e-5, atol=1e-4)


@given(matrices, st.integers(0, 4))
def test_krum_selects_an_update_of_the_lowest_score(updates, local, byzantine):
    """By brute force over all pairs; where scores are equal, any of them may be chosen."""
    points = local.astype(float)
    neighbours = max(1, len(points) - byzantine - 2)
    scores = [
        sum(sorted(float(((a - b) ** 2).sum()) for j, b in enumerate(points) if j != i)[:neighbours])
        for i, a in enumerate(points)
    ]
    chosen = np.array(once("krum", updates(local), byzantine=byzantine))
    best = [point for point, score in zip(points, scores, strict=True) if score <= min(scores) + 1e-6]
    assert min(np.abs(chosen - point).max() for point in best) < 1e-4


# properties


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_the_order_of_the_updates_does_not_matter(updates, name, data):
    """Steps differ widely, so that no two scores of Krum are equal."""
    count = data.draw(st.integers(4, 9))
    order = data.draw(st.permutations(range(count)))
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    local, start, sizes = draw.normal(size=(count, 6)), draw.normal(size=6), draw.integers(1, 50, count)
    found = once(name, updates(local, start, sizes))
    again = once(name, updates(local[order], start, sizes[order]))
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@given(matrices, st.integers(1, 7))
def test_identical_updates_are_a_fixed_point(updates, name, local, count):
    """UEs that changed nothing change nothing; without server optimiser, UEs that agree are followed."""
    same = np.repeat(local[:1], count, axis=0)
    np.testing.assert_allclose(once(name, updates(same, local[0])), local[0], rtol=1e-5, atol=1e-5)
    if name not in ADAPTIVE:
        np.testing.assert_allclose(once(name, updates(same)), local[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROBUST)
@given(data=st.data())
def test_outliers_are_ignored(updates, name, data):
    """With f arbitrary updates among 2f + 3 or more, every parameter stays in the range of the honest ones.

    Updates are screened to be finite before; an infinite or NaN one that came through would count as an outlier.
    """
    outliers = data.draw(st.integers(1, 3))
    honest = data.draw(st.integers(outliers + 3, 9))
    huge = st.sampled_from([-3e38, -1e20, 1e9, 3e38, np.inf, np.nan])
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    good = draw.normal(size=(honest, 4))
    bad = [data.draw(st.lists(huge, min_size=4, max_size=4)) for _ in range(outliers)]
    local = draw.permutation(np.concatenate([good, bad]))
    trimmed = {"fraction": outliers / len(local) + 1e-6}
    options = {"median": {}, "trimmed-mean": trimmed, "krum": {"byzantine": outliers}}[name]
    found = np.array(once(name, updates(local), **options))
    assert (found >= good.min(axis=0) - 1e-5).all()
    assert (found <= good.max(axis=0) + 1e-5).all()


def test_an_outlier_moves_the_average(updates):
    """The instrument works: what the robust ones ignore is not ignored by the average."""
    local = np.concatenate([np.zeros((6, 2)), [[1e9, 1e9]]])
    assert min(once("average", updates(local))) > 1e8


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_changed_in_place(updates, name):
    received = updates(random_steps(5, 4), start=[1.0, 2.0, 3.0, 4.0])
    start, local = received.start.clone(), received.local.clone()
    aggregation = AGGREGATIONS.make(name, {})
    state = aggregation.init(received.start, 10)
    first = aggregation.apply(state, received)
    again = aggregation.apply(state, received)
    assert torch.equal(received.start, start)
    assert torch.equal(received.local, local)
    assert torch.equal(first.broadcast, again.broadcast)
    assert first.report is first.broadcast
    assert first.broadcast.dtype == torch.float32


# states


def through_arrays(state: Any) -> Any:
    """The state written as plain arrays and read back, as a checkpoint does."""
    fields: dict[str, Any] = {}
    for name, value in vars(state).items():
        saved = np.asarray(value).copy()
        assert saved.dtype != object
        number = saved if saved.ndim else saved.item()
        fields[name] = torch.from_numpy(saved) if isinstance(value, torch.Tensor) else number
    return type(state)(**fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_was_saved_goes_on_as_if_it_had_not_been(updates, name):
    aggregation, steps = AGGREGATIONS.make(name, {}), random_steps(6, 4)
    unbroken = several(updates, steps, name)
    half = unbroken[3]
    model, state = half.broadcast, through_arrays(half.state)
    for step in steps[3:]:
        now = aggregation.apply(state, updates((model + step)[None], model))
        model, state = now.broadcast, through_arrays(now.state)
    assert torch.equal(model, unbroken[-1].broadcast)


# options


WRONG = [
    # name, options, option, words that say what is allowed
    ("fedavgm", {"lr": 0}, "lr", "greater than 0"),
    ("fedavgm", {"momentum": 1}, "momentum", "less than 1"),
    ("fedadam", {"beta1": -0.1}, "beta1", "greater than or equal to 0"),
    ("fedadam", {"tau": 0.0}, "tau", "greater than 0"),
    ("trimmed-mean", {"fraction": 0.5}, "fraction", "less than 0.5"),
    ("krum", {"selected": 0}, "selected", "greater than or equal to 1"),
]


@pytest.mark.parametrize(("name", "options", "option", "allowed"), WRONG, ids=str)
def test_options_have_limits(name, options, option, allowed):
    with pytest.raises(InputError, match=f"it must be {allowed}") as caught:
        AGGREGATIONS.make(name, options)
    assert caught.value.field == f"aggregation.options.{option}"


def test_the_scenario_names_the_aggregation():
    assert Scenario().aggregation.name == "average"
    scenario = Scenario.load("quickstart", {"aggregation.name": "krum", "aggregation.options": {"selected": 3}})
    assert scenario.aggregation.make().selected == 3
    assert Scenario.load({**scenario.model_dump()}) == scenario
    with pytest.raises(InputError, match=r"aggregation\.options.*must be plain"):
        Scenario(aggregation={"options": {"lr": object()}})
    with pytest.raises(InputError, match=r"aggregation\.option: .*did you mean aggregation\.options\?"):
        Scenario(aggregation={"option": {}})


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_the_table_has_every_aggregation_with_its_defaults(name):
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "aggregation.md").read_text("utf-8")
    row = re.search(rf"^\| `{name}` \| (.*?)\|", page, re.MULTILINE)
    assert row is not None
    options = dict(re.findall(r"`(\w+): ([\d.]+)`", row.group(1)))
    assert {key: float(value) for key, value in options.items()} == vars(AGGREGATIONS.make(name, {}))
