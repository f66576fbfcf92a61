"""Lying UEs in whole rounds: who lies, when, what the PS receives, and how far a backdoor works."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import fedslot
from fedslot import Attack, Grant, InputError, Knowledge, Merit, Poisoning, RefusedError, Scenario
from fedslot.fleet import Fleet
from fedslot.parts.kinds import ATTACKS
from fedslot.rounds.local_training import LocalTraining, Trained
from fedslot.rounds.simulation import Simulation

SMALL: dict[str, Any] = {"rounds": 3, "data.ues": 20, "frame.slots": 8, "frame.pull": 4, "training.epochs": 2}
EVERYONE = np.arange(20)
HALF = {"name": "sign-flip", "share": 0.5}


def scenario(attack: object = None, **more: Any) -> Scenario:
    return Scenario.load("quickstart", {**SMALL, "fleet.attack": attack, **more})


def sent(attack: object, round: int = 0, **more: Any) -> tuple[Fleet, Tensor, Trained]:
    """What all UEs send in a round: the fleet, the model that was broadcast, and their local models."""
    local = LocalTraining.of(scenario(attack, **more))
    start = local.trainer.model.initial
    return local.fleet, start, local(start, EVERYONE, round)


@pytest.fixture(scope="module")
def honest() -> tuple[Tensor, Tensor]:
    """Steps of all UEs without an attack: as trained, and as sent."""
    _, start, noisy = sent(None)
    _, _, clean = sent(None, **{"fleet.noise": 0.0})
    return clean.models - start, noisy.models - start


@given(st.integers(0, 10**9), st.integers(1, 200), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50)
def test_as_many_lie_as_the_share_says_and_more_with_a_larger_one(seed: int, ues: int, one: float, two: float) -> None:
    more = {"data.ues": ues, "frame.pull": 0, "push.contenders": 0, "seed": seed}
    labels = np.zeros(1000, dtype=np.int64)
    few, many = (Fleet.draw(scenario({"share": share}, **more), labels).liars for share in sorted([one, two]))
    assert [few.sum(), many.sum()] == [round(share * ues) for share in sorted([one, two])]
    assert not (few & ~many).any()


def test_liars_are_the_same_for_all_strategies_and_attacks() -> None:
    fleets = [
        Simulation(scenario(attack, **{"strategy.name": name})).fleet.liars
        for name in ("fedavg", "merit-push")
        for attack in (HALF, {"name": "backdoor", "share": 0.5})
    ]
    assert all((liars == fleets[0]).all() for liars in fleets)
    assert not (Simulation(scenario(HALF, seed=1)).fleet.liars == fleets[0]).all()


def test_liars_send_flipped_updates_without_noise_and_others_what_they_would(honest: tuple[Tensor, Tensor]) -> None:
    clean, noisy = honest
    fleet, start, lies = sent({**HALF, "options": {"scale": 3.0}})
    liars = torch.from_numpy(fleet.liars)
    steps = lies.models - start
    assert torch.equal(steps[~liars], noisy[~liars])
    torch.testing.assert_close(steps[liars], -3 * clean[liars], atol=1e-5, rtol=1e-5)
    assert lies.bits is not None
    assert set(lies.bits.tolist()) == {32 * len(start)}


def test_liars_may_pass_the_chain(honest: tuple[Tensor, Tensor]) -> None:
    """Then they have the very noise that they would have had."""
    clean, noisy = honest
    fleet, start, lies = sent({**HALF, "chain": True})
    liars = torch.from_numpy(fleet.liars)
    noise = noisy - clean
    torch.testing.assert_close((lies.models - start)[liars], (noise - clean)[liars], atol=1e-5, rtol=1e-5)
    _, start, clipped = sent({**HALF, "chain": True}, chain=[{"name": "clip", "options": {"norm": 0.01}}])
    assert torch.linalg.vector_norm(clipped.models - start, dim=1).max() < 0.0101


def test_colluders_know_the_updates_of_their_round(honest: tuple[Tensor, Tensor]) -> None:
    clean, noisy = honest
    for updates in ("sent", "trained"):
        attack = {"name": "little-is-enough", "share": 0.5, "options": {"z": 2.0, "updates": updates}}
        fleet, start, lies = sent(attack)
        liars = torch.from_numpy(fleet.liars)
        known = torch.where(liars.unsqueeze(1) | (updates == "trained"), clean, noisy)
        expected = known.mean(0) - 2 * known.std(0, correction=0)
        steps = (lies.models - start)[liars]
        torch.testing.assert_close(steps, expected.expand_as(steps), atol=1e-5, rtol=1e-4)


def test_lies_at_the_limit_are_as_long_as_a_deployment_accepts() -> None:
    fleet, start, lies = sent({**HALF, "at_limit": True})
    lengths = torch.linalg.vector_norm((lies.models - start).double(), dim=1)[torch.from_numpy(fleet.liars)]
    limit = 10 * max(1.0, float(start.double().norm()))
    assert (lengths <= limit).all()
    assert lengths.tolist() == pytest.approx([limit] * len(lengths), rel=1e-4)


def test_liars_behave_before_their_first_round_and_lie_by_chance(honest: tuple[Tensor, Tensor]) -> None:
    fleet, start, early = sent({**HALF, "from_round": 3})
    torch.testing.assert_close((early.models - start)[torch.from_numpy(fleet.liars)], honest[0][fleet.liars])
    assert [any(fleet.lies(ue, round) for ue in EVERYONE) for round in range(5)] == [False] * 3 + [True] * 2
    fleet = Simulation(scenario({**HALF, "probability": 0.25})).fleet
    lies = np.array([[fleet.lies(ue, round) for ue in EVERYONE] for round in range(200)])
    assert not lies[:, ~fleet.liars].any()
    share = lies[:, fleet.liars].mean()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / lies[:, fleet.liars].size)


class CleanOnly:
    """Lets UEs without noise push, and no others."""

    needs_values = False

    def __init__(self, cell: fedslot.Cell) -> None:
        pass

    def init(self) -> fedslot.NoState:
        return fedslot.NoState()

    def schedule(self, state: fedslot.NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.arange(0), push=True, merit=Merit("noise", most=0.0))

    def observe(self, state: fedslot.NoState, receipt: object, values: object) -> fedslot.NoState:
        return state


def test_liars_claim_the_noise_that_they_like() -> None:
    """Where only UEs without noise may push, that is one of the honest ones, and each liar who claims to have none."""
    for claimed in (None, 0.0):
        attack = {"name": "free-rider", "share": 0.5, "claimed_noise": claimed}
        simulation = Simulation(scenario(attack, **{"strategy.name": CleanOnly, "rounds": 40, "frame.slots": 20}))
        fleet, events = simulation.fleet, [event for step in simulation.rounds() for event in step.frame]
        pushing = {event.ue for event in events if event.event in ("pushed", "collided")}
        assert pushing == set(np.flatnonzero((fleet.noise == 0) | (fleet.liars & (claimed == 0.0))).tolist())


def test_poisoned_samples_are_trained_on_by_liars_alone(honest: tuple[Tensor, Tensor]) -> None:
    """A liar's update is that of a UE whose samples have these labels, and honest UEs train as ever."""
    flipped = LocalTraining.of(scenario({"name": "label-flip", "share": 0.5}))
    fleet, start = flipped.fleet, flipped.trainer.model.initial
    steps = flipped.train(start, EVERYONE, 0).models - start
    liars = torch.from_numpy(fleet.liars)
    assert torch.equal(steps[~liars], honest[0][~liars])
    plain = LocalTraining.of(scenario())
    plain.trainer.y.mul_(-1).add_(9)  # the labels of all
    expected = replace(plain, trainer=type(plain.trainer)(*_parts(plain))).train(start, EVERYONE, 0).models - start
    assert torch.equal(steps[liars], expected[liars])
    late = LocalTraining.of(scenario({"name": "label-flip", "share": 0.5, "from_round": 1}))
    assert torch.equal(late.train(start, EVERYONE, 0).models - start, honest[0])


def _parts(local: LocalTraining) -> tuple[Any, ...]:
    trainer = local.trainer
    return trainer.model, trainer.x, trainer.y, trainer.recipe


def test_the_success_of_a_backdoor_is_measured_on_the_reported_model() -> None:
    result = fedslot.run(scenario({"name": "backdoor", "share": 1.0, "options": {"target": 3}}, rounds=25))
    success = result.rounds["attack_success"]
    data, network = Simulation(scenario()).held_out.test, result.module()
    x = data.x[data.y != 3].clone()
    x[..., -3:, -3:] = 1
    with torch.no_grad():
        taken = (network(x).argmax(1) == 3).double().mean()
    assert success.iloc[-1] == pytest.approx(float(taken), abs=1e-9)
    assert success.iloc[-1] > 0.9
    assert fedslot.run(scenario(HALF)).rounds["attack_success"].isna().all()


@pytest.mark.parametrize("name", list(ATTACKS))
def test_a_run_under_attack_resumes_to_the_identical_result_with_any_threads(name: str, tmp_path: Path) -> None:
    more = {"strategy.name": "merit-push", "aggregation.name": "filtered", "rounds": 6}
    whole = scenario({"name": name, "share": 0.4, "probability": 0.8}, **more)
    once = fedslot.run(whole)
    fedslot.run(whole.replace({"rounds": 3}), tmp_path / "out")
    resumed = fedslot.run(whole, tmp_path / "out", resume=True, threads=2)
    assert resumed.rounds.drop(columns="seconds").equals(once.rounds.drop(columns="seconds"))
    assert resumed.parameters is not None
    assert once.parameters is not None
    assert (resumed.parameters == once.parameters).all()


@pytest.mark.parametrize(
    ("attack", "more", "field"),
    [
        ("sign-flop", {}, "fleet.attack"),
        ({"share": 1.5}, {}, "fleet.attack.share"),
        ({"options": {"scale": -1.0}}, {}, "fleet.attack.options.scale"),
        ({"options": {"length": 1.0}}, {}, "fleet.attack.options.length"),
        ({"name": "little-is-enough", "options": {"updates": "all"}}, {}, "fleet.attack.options.updates"),
        ({"name": "backdoor", "options": {"target": 10}}, {}, "fleet.attack.options.target"),
        ({"probability": 0.0}, {}, "fleet.attack.probability"),
        ("sign-flip", {"strategy.name": "centralized", "push.contenders": 0}, "fleet.attack"),
    ],
)
def test_mistaken_attacks_are_one_line(attack: object, more: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Simulation(scenario(attack, **more))
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_a_deployment_takes_no_liars() -> None:
    simulation = Simulation(scenario(HALF))
    with pytest.raises(InputError, match=r"fleet\.attack: 'sign-flip' is not allowed; it must be null in a deployment"):
        fedslot.ParameterServer(simulation.scenario, simulation.model, simulation.held_out)


class Loud(Attack):
    """Sends steps of ones."""

    def __init__(self, *, rows: int = 0) -> None:
        self.rows = rows

    def steps(self, knowledge: Knowledge) -> Tensor:
        ones = torch.ones_like(knowledge.own)
        return ones[: self.rows] if self.rows else ones


class Odd(Poisoning):
    """Gives samples a label that is none of theirs."""

    def poison(self, samples: Any, classes: int, rng: np.random.Generator) -> Any:
        return samples[0], samples[1] + classes

    def goal(self, samples: Any, classes: int) -> Any:
        return samples


def test_attacks_of_ones_own_are_run_and_checked() -> None:
    fleet, start, lies = sent({"name": Loud, "share": 0.5})
    torch.testing.assert_close((lies.models - start)[torch.from_numpy(fleet.liars)], torch.ones(10, len(start)))
    with pytest.raises(RefusedError, match=r"round 0: attack .*Loud must return from steps\(\) a tensor \(10, "):
        sent({"name": Loud, "share": 0.5, "options": {"rows": 3}})
    with pytest.raises(RefusedError, match=r"attack .*Odd must return from poison\(\) inputs .* labels from 0 to 9"):
        sent({"name": Odd, "share": 0.5})
