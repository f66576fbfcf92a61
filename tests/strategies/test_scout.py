from dataclasses import replace

import numpy as np
import pytest

from fedslot import Grant, Scenario
from fedslot.rounds.simulation import Simulation
from fedslot.strategies import STRATEGIES, Cell
from fedslot.strategies.survey import Survey

CELL = Cell(ues=8, slots=5, pull=2)


def _schedule(state: Survey, cell: Cell = CELL, seed: int = 0) -> Grant:
    return STRATEGIES.make("scout", {}, cell).schedule(state, 3, np.random.default_rng(seed))


def _known(noise: list[float], seen: list[int], **lengths: float) -> Survey:
    fields = {"measured": 1, "paired": 1, "energy": 2.0, "progress": 1.0, "noise_gain": 100.0, **lengths}
    return replace(Survey.blank(len(noise)), noise=np.array(noise), seen=np.array(seen), **fields)


def test_the_first_frame_pulls_at_random_with_half_of_the_slots():
    grants = [_schedule(Survey.blank(8), seed=seed) for seed in range(200)]
    assert {(len(grant.pull), grant.slots, grant.push) for grant in grants} == {(3, 3, False)}
    assert set(np.concatenate([grant.pull for grant in grants]).tolist()) == set(range(8))


def test_a_frame_pulls_the_cleanest_and_one_unseen():
    """Noise 1 has 100 times the squared length of the spread: UEs 0, 2 and 5 are the pool."""
    state = _known([0.0, 1.0, 0.001, 0, 0, 0.002, 1, 1], [1, 1, 1, 0, 0, 1, 1, 1])
    grant = _schedule(replace(state, last=np.array([5, 1, 3, -1, -1, 4, 2, 2])))
    assert grant.pull[:2].tolist() == [2, 5], "of the pool those received the longest ago"
    assert grant.pull[2] in (3, 4)
    assert grant.slots == 3


def test_noise_makes_frames_longer():
    """With all UEs alike, r = spread 1 + noise 100 sigma^2, relative to progress 1; the best is Y (Y + 1) >= r."""
    assert [_schedule(_known([sigma] * 8, [1] * 8, energy=2.0)).slots for sigma in (0.0, 0.2, 0.3)] == [2, 2, 3]


def test_a_single_slot_visits_all_ues_before_it_goes_to_the_pool():
    for seen, expected in (([1, 1, 1, 1, 1, 0, 1, 1], 5), ([1] * 8, 2)):
        state = replace(_known([1.0, 1, 0, 1, 1, 1, 1, 1], seen), last=np.array([8, 7, -1, 6, 5, -1, 4, 3]))
        grant = _schedule(state, replace(CELL, slots=1))
        assert (grant.pull.tolist(), grant.slots) == ([expected], 1)


def test_a_ue_that_never_answers_takes_turns_for_a_single_slot():
    state = _known([0.0] * 8, [1, 1, 1, 1, 1, 0, 1, 1], frames=9)
    for own, expected in ((8, 2), (-1, 5)):  # it was tried last, or never
        grant = _schedule(replace(state, last=np.array([3, 3, 1, 3, 3, own, 3, 3])), replace(CELL, slots=1))
        assert grant.pull.tolist() == [expected]


def test_unseen_ues_that_were_not_ready_wait_for_the_others():
    state = _known([0.0] * 8, [1, 1, 1, 1, 0, 0, 0, 0], frames=9)
    for last, expected in (([-1, 7, -1, 8], {4, 6}), ([6, 7, 6, 8], {4, 6}), ([8, 7, 8, 6], {7})):
        later = replace(state, last=np.array([0, 0, 0, 0, *last]))
        assert {int(_schedule(later, seed=seed).pull[-1]) for seed in range(40)} == expected


@pytest.mark.parametrize("name", ["scout", "merit-push"])
def test_frames_grow_until_ues_that_train_slowly_are_ready(name: str):
    """In frames of two or three slots hardly any UE of this fleet is ready."""
    simulation = Simulation(Scenario.load("late-fleet", {"strategy.name": name, "rounds": 40}))
    rounds = [step.round for step in simulation.rounds()]
    received = [round.pulled for round in rounds[10:]]
    assert np.mean(received) >= 1
    assert np.mean([count > 0 for count in received]) > 0.7


def test_noisy_ues_are_found_and_left_out():
    """On digits with much noise: once each UE was received, the cleaner half gets nearly all slots."""
    fields = {
        "strategy.name": "scout",
        "aggregation.name": "filtered",
        "rounds": 70,
        "data.ues": 30,
        "fleet.noise": 3.0,
    }
    simulation = Simulation(Scenario.load("quickstart", fields))
    received = np.zeros(30)
    for round, now, _ in simulation.rounds():
        if round.round >= 50:
            received += now.state.last == round.round
    assert (now.state.seen > 0).all()
    clean = simulation.fleet.noise < np.median(simulation.fleet.noise)
    assert received[clean].sum() > 0.9 * received.sum()
    np.testing.assert_allclose(now.state.noise, simulation.fleet.noise, rtol=0.1, atol=0.02)
