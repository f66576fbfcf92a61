"""Backlogs between rounds: access barring by the scenario, retransmission, ages."""

from dataclasses import replace

import numpy as np
import pytest

from fedslot.messages import Grant
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import RefusedError

ALL_PUSH = {
    "frame.pull": 0,
    "frame.slots": 10,
    "strategy.warmup": 0,
    "training.epochs": 1,
    "strategy.name": "push-pull",
}
CROWD = {**ALL_PUSH, "data.ues": 100, "data.samples_per_ue": 5, "cost_rule": "frame", "valuation.name": "leave-one-out"}


def test_with_a_fixed_probability_arrivals_jam_the_cell_and_with_control_they_do_not():
    """3.3 UEs arrive in a frame that can receive 3.7."""
    late = {}
    for probability in (1.0, "auto"):
        scenario = Scenario(**{**CROWD, "push.arrivals": 0.3, "rounds": 120, "push.probability": probability})
        late[probability] = [record for record, *_ in Simulation(scenario).rounds()][60:]
    assert np.mean([record.push_received for record in late[1.0]]) < 0.1
    assert np.mean([record.backlogged for record in late[1.0]]) > 60
    assert np.mean([record.push_received for record in late["auto"]]) > 2.6
    assert np.mean([record.backlogged for record in late["auto"]]) < 25


class PushOnly(FedAvg):
    """Opens all slots, and says nothing of the probability, or a number of its own."""

    def __init__(self, cell, chance: float = 0.0):
        super().__init__(cell)
        self.chance = chance

    def schedule(self, state, round, rng):
        return Grant(np.empty(0, dtype=np.int64), push=True, probability=self.chance or None)


@pytest.mark.parametrize(
    ("fixed", "own", "expected"),
    [(1.0, 0.0, 1.0), (0.4, 0.0, 0.4), (0.4, 0.7, 0.7), ("auto", 0.7, 0.7), ("auto", 0.0, 0.25)],
)
def test_every_strategy_contends_by_the_scenario_unless_it_sets_a_probability(fixed, own, expected):
    fields = {**CROWD, "push.contenders": 40, "push.probability": fixed, "strategy.name": f"{__name__}:PushOnly"}
    simulation = Simulation(Scenario(**{**fields, "strategy.options": {"chance": own}}))
    assert simulation.ps.grant(simulation.start()).probability == expected


def test_only_strategies_that_need_the_load_may_ask_for_control():
    class Careless(PushOnly):
        def schedule(self, state, round, rng):
            return replace(super().schedule(state, round, rng), probability="auto")

    simulation = Simulation(Scenario(**CROWD))
    simulation.ps.strategy = Careless(simulation.ps.strategy.cell)
    with pytest.raises(RefusedError, match="must have needs_load = True to announce the probability auto"):
        next(simulation.rounds())


@pytest.mark.parametrize(("arrivals", "retries"), [(None, 3), (None, 1), (0.6, 0), (0.6, 2), (0.6, None)])
def test_ues_push_again_until_they_give_up(arrivals, retries):
    """The pushes in vain of each backlogged UE, counted again from the trace, decide who stays backlogged."""
    fields = {**CROWD, "push.arrivals": arrivals, "push.retries": retries, "push.contenders": 25, "rounds": 40}
    failures, before = dict.fromkeys(range(100), 0), set()
    gave_up = 0
    for record, now, events in Simulation(Scenario(**fields)).rounds():
        sent = {event.ue: event.event == "pushed" for event in events if event.event in ("pushed", "collided")}
        backlog = set(sent) | {event.ue for event in events if event.event == "barred"}
        assert before <= backlog, "those that wait are backlogged"
        if arrivals is None:
            assert len(backlog) == record.backlogged == 25
        for ue, received in sent.items():
            failures[ue] = 0 if received else failures[ue] + 1
        stay = {ue for ue in sent if failures[ue] and (retries is None or failures[ue] <= retries)}
        gave_up += sum(failures[ue] > 0 and ue not in stay for ue in sent)
        failures = {ue: count if ue in stay else 0 for ue, count in failures.items()}
        waiting = set(np.flatnonzero(now.waiting).tolist())
        assert stay <= waiting
        if arrivals is None:
            assert stay == waiting
        before = waiting
    assert (gave_up == 0) == (retries is None)


def test_the_mean_age_counts_slots_since_each_ue_was_last_received():
    scenario = Scenario(
        **{**CROWD, "rounds": 12, "frame.pull": 2, "push.contenders": 3, "strategy.warmup": 1, "cost_rule": "max"}
    )
    heard, spent = np.zeros(scenario.data.ues), 0
    for record, _, events in Simulation(scenario).rounds():
        spent += record.cost_max
        heard[[event.ue for event in events if event.event in ("pulled", "pushed")]] = spent
        assert record.mean_age == pytest.approx(spent - heard.mean())
