"""Tests that need no cluster: stacks of UEs can be trained anywhere. tests/engines has those on a real cluster."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.experiments.cluster import connect, merge_stacks
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError


@pytest.fixture(scope="module")
def simulations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Simulation]:
    """Sixty UEs of very different sizes; networks that are trained one by one, and one that is trained in stacks."""
    file = tmp_path_factory.mktemp("data") / "wide.npz"
    rng = np.random.default_rng(0)
    x, y = rng.random((1200, 784), dtype=np.float32), np.arange(1200) % 10
    np.savez(file, x_train=x[:1000], y_train=y[:1000], x_test=x[1000:], y_test=y[1000:])
    fields = {"training.epochs": 2, "training.batches": 3, "data.ues": 60, "fleet.noise": 0.1}
    wide = {**fields, "data.dataset": str(file)}
    return {
        "mlp": Simulation(Scenario.load("quickstart", wide)),
        "stacked": Simulation(Scenario.load("quickstart", {**wide, "training.engine": "torch"})),
        "cnn": Simulation(Scenario.load("quickstart", {**fields, "training.model": "cnn"})),
    }


@pytest.mark.parametrize("model", ["mlp", "stacked", "cnn"])
@settings(max_examples=10)
@given(received=st.lists(st.integers(0, 59), unique=True, max_size=40), round=st.integers(0, 3))
def test_stacks_alone_give_the_same_models(
    simulations: dict[str, Simulation], model: str, received: list[int], round: int
) -> None:
    """Bit for bit: a worker that trains one stack gets the models that one machine gets when it trains all UEs."""
    here, ues = simulations[model], np.array(received[:4] if model == "cnn" else received, dtype=np.int64)
    whole = here.train(here.model.initial, ues, round).models
    stacks = merge_stacks(here.local.stacks(ues, round), 3)
    assert sorted(ue for stack in stacks for ue in stack) == list(range(len(ues)))
    apart = torch.empty_like(whole)
    for stack in stacks:
        apart[stack] = here.train(here.model.initial, ues[stack], round).models
    assert torch.equal(apart, whole)


def test_a_round_has_several_stacks(simulations: dict[str, Simulation]) -> None:
    """Else the test above would say nothing."""
    stacks = {name: merge_stacks(each.local.stacks(np.arange(40), 0), 3) for name, each in simulations.items()}
    assert [len(stacks["mlp"]), len(stacks["cnn"])] == [3, 3]
    assert len(stacks["stacked"]) > 3
    assert max(map(len, stacks["stacked"])) > 1


def test_errors_travel_whole() -> None:
    error = InputError("frame.pull", 30, "at most 20")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_without_dask_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RefusedError, match=r"pip install 'fedslot\[dask\]'"), connect("tcp://127.0.0.1:8786"):
        pass
