import math
from dataclasses import replace

import numpy as np
import pytest
from torch.nn.functional import cross_entropy

from fedslot import Scenario
from fedslot.messages import Receipt
from fedslot.rounds.simulation import Simulation
from fedslot.strategies import STRATEGIES, Cell
from fedslot.strategies.oort import Reports

NONE = np.empty(0, dtype=np.int64)
CELL = Cell(ues=8, slots=2, pull=1, sizes=np.array([10, 10, 10, 10, 20, 20, 20, 20]))
LOSS = np.array([0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4])


def _known(**fields: object) -> Reports:
    """All eight UEs were pulled once, in the first frame."""
    ones = np.ones(8, dtype=np.int64)
    return replace(Reports(LOSS, 0 * ones, 0 * ones, ones, frames=1), **fields)


def _pulls(state: Reports, cell: Cell = CELL, rounds: int = 400, **options: float) -> np.ndarray:
    """How often each UE is pulled from a state."""
    strategy, rng = STRATEGIES.make("oort", options, cell), np.random.default_rng(1)
    return np.bincount(np.concatenate([strategy.schedule(state, 0, rng).pull for _ in range(rounds)]), minlength=8)


def test_the_utility_by_hand():
    """Frame 4; UE 2 was pulled in the third frame before, the others in the first."""
    state = _known(frames=3, last=np.array([0, 0, 2, 0, 0, 0, 0, 0]), late=np.array([0, 0, 0, 1, 0, 0, 0, 0]))
    utility = STRATEGIES.make("oort", {"penalty": 2.0}, CELL).utilities(state)
    largest = np.quantile(CELL.sizes * LOSS, 0.95)
    assert utility[0] == pytest.approx(1.0 / largest + math.sqrt(0.1 * math.log(4)))
    assert utility[2] == pytest.approx(3.0 / largest + math.sqrt(0.1 * math.log(4) / 3))
    assert utility[3] == pytest.approx((4.0 / largest + math.sqrt(0.1 * math.log(4))) * 0.5**2)
    assert utility[7] == pytest.approx(1 + math.sqrt(0.1 * math.log(4)))


def test_the_highest_losses_times_data_are_pulled():
    pulls = _pulls(_known(), least=0.0)
    assert pulls[7] == pulls[6] == 400
    assert pulls.sum() == 800


def test_a_late_ue_is_pulled_less():
    late = np.array([0, 0, 0, 0, 0, 0, 0, 5])
    assert _pulls(_known(late=late, tried=1 + late), least=0.0)[7] == 0
    assert _pulls(_known(late=late, tried=1 + late), least=0.0, penalty=0.0)[7] == 400


@pytest.mark.parametrize(("frames", "share"), [(0, 0.9), (10, 0.9 * 0.98**10), (1000, 0.2)])
def test_a_falling_share_of_the_slots_explores(frames: int, share: float):
    tried = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    loss = np.where(tried > 0, LOSS, np.nan)
    pulls = _pulls(_known(tried=tried, loss=loss, frames=frames), rounds=4000)
    assert abs(pulls[4:].sum() / 8000 - share) < 5 * math.sqrt(share * (1 - share) / 8000)


def test_a_frame_is_full_whatever_is_known():
    strategy, rng = STRATEGIES.make("oort", {}, CELL), np.random.default_rng(0)
    state = strategy.init()
    for round in range(12):
        pull = strategy.schedule(state, round, rng).pull
        assert len(set(pull.tolist())) == 2
        receipt = Receipt(
            pull[:1], np.array([1]), NONE, NONE, NONE, pull[1:], slots=2, reports={"loss": np.array([np.nan])}
        )
        state = strategy.observe(state, receipt, np.zeros(1))
    assert state.tried.sum() == 24
    assert state.late.sum() == 12
    assert np.isnan(state.loss).all(), "no UE reported any"


def test_received_ues_report_their_loss_of_the_broadcast_model():
    scenario = Scenario.load("quickstart", {"strategy.name": "oort", "rounds": 3, "training.epochs": 1})
    simulation = Simulation(scenario)
    now = simulation.start()
    for _, after, events in simulation.rounds():
        for ue in [event.ue for event in events if event.event == "pulled"]:
            share = simulation.fleet.shares.share(ue)
            logits = simulation.model.logits(simulation.model.unflatten(now.model), simulation.trainer.x[share])
            assert after.state.loss[ue] == pytest.approx(
                float(cross_entropy(logits, simulation.trainer.y[share])), rel=1e-5
            )
        now = after
