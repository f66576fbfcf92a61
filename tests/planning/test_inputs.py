"""What a plan takes from a scenario, against the scenario's own fleet, network and arrivals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedslot.data.sources import load
from fedslot.fleet import Fleet
from fedslot.planning.inputs import readiness, take
from fedslot.runs.execution import run
from fedslot.scenario import Scenario


def test_fields_of_a_scenario() -> None:
    scenario = Scenario.load("quickstart", {"push.channel": "capture", "push.probability": 0.5, "time_budget": 300})
    taken = {name: value.value for name, value in take(scenario).items()}
    expected = {"slots": 10, "contenders": "5", "ues": 100, "barring": 0.5, "channel": "capture", "budget": 300}
    assert taken == expected
    assert {name: value.field for name, value in take(scenario).items()}["budget"] == "time_budget"
    assert "budget" not in take(scenario.replace({"cost_rule": "frame"}))  # all frames are then equally long
    assert take(scenario, slots=7)["slots"].value == 7
    taken = take(Scenario.load("late-fleet"))
    assert (taken["contenders"].value, taken["barring"].value, taken["ready"].value) == ("100", "auto", None)
    taken = take(Scenario.load("quickstart", {"push.arrivals": 0.4}))
    assert (taken["arrivals"].value, "contenders" in taken) == (0.4, False)


def test_with_arrivals_contenders_make_no_difference() -> None:
    """Also where barring counts the contenders, and where they would be more than there are UEs beside the pulled."""
    fields = {"rounds": 4, "strategy.warmup": 0, "push.arrivals": 2.0, "push.probability": "auto"}
    few, many = (run(Scenario.load("quickstart", {**fields, "push.contenders": n})) for n in (1, 100))
    columns = ["test_accuracy", "contenders", "push_received", "cost_max"]
    pd.testing.assert_frame_equal(few.rounds[columns], many.rounds[columns])


@pytest.mark.parametrize("redraw", [True, False])
def test_readiness_against_the_computing_times_of_fleets(redraw: bool) -> None:
    scenario = Scenario.load("late-fleet", {"fleet.computing.redraw": redraw})
    data, slots = load("digits"), 12
    found = np.zeros(slots)
    fleets = 40
    for seed in range(fleets):
        fleet = Fleet.draw(scenario.replace({"seed": seed}), data.y_train, data.ue_train)
        found += [(fleet.computing.times(3) <= z).mean() / fleets for z in range(slots)]
    chances = readiness(scenario, slots, 0.01)
    assert chances[0] == 0
    assert np.abs(found - chances).max() < 0.04
    # slots of half the length: half the time
    assert readiness(scenario, 2 * slots, 0.005)[::2] == pytest.approx(chances)
