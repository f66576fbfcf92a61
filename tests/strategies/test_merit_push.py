import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedslot import Grant, InputError, Scenario
from fedslot.messages import Measured, Receipt
from fedslot.rounds.simulation import Simulation
from fedslot.strategies import STRATEGIES, Cell
from fedslot.strategies.merit_push import PushSurvey

NONE = np.empty(0, dtype=np.int64)
CELL = Cell(ues=6, slots=5, pull=2)


def _known(**fields: object) -> PushSurvey:
    lengths = {"measured": 1, "paired": 1, "energy": 2.0, "progress": 1.0, "noise_gain": 100.0}
    seen, noise = np.ones(6, dtype=np.int64), np.array([0.5, 0.0, 0.01, 0.4, 0.3, 0.2])
    return replace(PushSurvey.blank(6), seen=seen, noise=noise, **{**lengths, **fields})


def _observe(state: PushSurvey, excess: float = 0.0) -> PushSurvey:
    """A frame in which nothing was received, and so many UEs too many could have contended."""
    receipt = Receipt(NONE, NONE, NONE, NONE, NONE, NONE, slots=4, open_slots=2, excess=excess)
    return STRATEGIES.make("merit-push", {}, CELL).observe(state, receipt, np.empty(0))


def _schedule(state: PushSurvey, cell: Cell = CELL, **options: int) -> Grant:
    return STRATEGIES.make("merit-push", options, cell).schedule(state, 3, np.random.default_rng(0))


def test_a_frame_pulls_the_pool_and_opens_slots_by_merit():
    grant = _schedule(_known(threshold=0.25), horizon=1)
    assert sorted(grant.pull.tolist()) == [1, 2]
    assert (grant.slots, grant.push, grant.probability) == (4, True, 1.0)
    assert grant.merit is not None
    assert (grant.merit.attribute, grant.merit.most, grant.merit.told) == ("noise", 0.25, None)


def test_the_threshold_follows_the_load():
    state = _known(threshold=0.3)
    assert _observe(state, 2.0).threshold == pytest.approx(0.3 / 1.1**2)
    assert _observe(state, -1.0).threshold == pytest.approx(0.3 * 1.1)
    assert _observe(state).threshold == 0.3


def test_where_all_are_welcome_in_the_pool_the_access_barring_is_controlled():
    welcome = _known().welcome_noise(np.array([1, 2, 5]), horizon=1)  # the cleaner half of the known UEs
    state = _observe(_known(threshold=welcome), 3.0)
    assert state.threshold == pytest.approx(welcome)
    assert _schedule(state).probability == "auto"
    assert _schedule(_observe(state, -3.0)).probability == 1.0


def test_no_estimate_moves_the_threshold_out_of_all_bounds():
    assert 0 < _observe(_known(threshold=0.3), 1e9).threshold < _observe(_known(threshold=0.3), -1e9).threshold < 1e9


def test_the_first_threshold_is_the_most_noise_that_was_seen():
    measured = Measured(np.array([0.2, 0.3]), np.eye(2), 1e-6)
    receipt = Receipt(np.array([3, 5]), np.array([1, 2]), NONE, NONE, NONE, NONE, slots=3, measured=measured)
    state = STRATEGIES.make("merit-push", {}, CELL).observe(PushSurvey.blank(6), receipt, np.zeros(2))
    assert state.threshold >= 0.3
    assert math.isfinite(state.threshold)


def test_before_any_update_there_is_no_threshold():
    assert _observe(PushSurvey.blank(6), -2.0).threshold == math.inf


def test_at_least_one_slot_pulls():
    grant = _schedule(_known(), replace(CELL, slots=2), push=4)
    assert (len(grant.pull), grant.slots) == (1, 2)


def test_frames_of_one_slot_are_refused():
    """The slot would go to the same UE for ever."""
    with pytest.raises(InputError, match=r"frame\.slots: 1 is not allowed; it must be at least 2 under merit-push"):
        STRATEGIES.make("merit-push", {}, replace(CELL, slots=1))


def test_the_cleanest_push_and_the_load_is_kept():
    """On digits: those received in push slots have far less noise than the backlogged, at about one per slot."""
    fields = {"strategy.name": "merit-push", "aggregation.name": "filtered", "rounds": 90, "push.contenders": 12}
    simulation = Simulation(Scenario.load("quickstart", fields))
    noise, pushed, contenders, slots = simulation.fleet.noise, [], 0, 0
    observe = simulation.ps.strategy.observe

    def listen(state, receipt, values):
        nonlocal contenders, slots
        if state.frames >= 30:
            pushed.extend(noise[receipt.pushed])
            contenders += receipt.contenders
            slots += receipt.slots - len(receipt.pulled)
        return observe(state, receipt, values)

    simulation.ps.strategy.observe = listen
    for _ in simulation.rounds():
        pass
    assert 0.6 < contenders / slots < 1.5
    assert np.mean(pushed) < 0.5 * noise.mean()


@pytest.mark.parametrize("attribute", ["loss", "norm"])
def test_the_most_significant_push_and_the_load_is_kept(attribute: str):
    """UEs whose loss, or the norm of whose update, is above that of the other backlogged UEs contend."""
    fields = {"strategy.name": "merit-push", "aggregation.name": "filtered", "rounds": 70, "push.contenders": 12}
    scenario = Scenario.load("quickstart", {**fields, "strategy.options": {"attribute": attribute}})
    simulation, contenders, slots, above = Simulation(scenario), 0, 0, []
    now = simulation.start()
    for record, after, events in simulation.rounds():
        sent = [event.ue for event in events if event.event == "collided" or (event.event == "pushed")]
        silent = [event.ue for event in events if event.event == "barred"]
        if record.round >= 30:
            contenders, slots = contenders + len(sent), slots + record.slots - record.pulled
            if sent and silent:
                numbers = _attribute(simulation, attribute, now.model, record.round, [*sent, *silent])
                above.append(numbers[: len(sent)].mean() > numbers[len(sent) :].mean())
        now = after
    assert 0.5 < contenders / slots < 1.5
    assert np.mean(above) > 0.85


def _attribute(simulation: Simulation, attribute: str, model: torch.Tensor, round: int, ues: list[int]) -> np.ndarray:
    """The attribute of each UE, computed for one UE after the other."""
    if attribute == "loss":
        return np.concatenate([simulation.local.losses(model, np.array([ue])) for ue in ues])
    trained = [simulation.local.train(model, np.array([ue]), round).models[0] for ue in ues]
    return np.array([float(torch.linalg.vector_norm(one - model)) for one in trained])
