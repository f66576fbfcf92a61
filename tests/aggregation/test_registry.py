from dataclasses import dataclass

import pytest
import torch

from fedslot import InputError, Scenario
from fedslot.aggregation import AGGREGATIONS, Aggregate

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


@dataclass(frozen=True)
class Longest:
    norm: float


class Keep:
    """Keeps the longest step it has seen."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def init(self, model, ues):
        return Longest(0.0)

    def apply(self, state, updates):
        longest = Longest(max(state.norm, float(updates.norms.max())))
        return Aggregate(updates.start + self.weight * updates.steps.mean(dim=0), updates.start, longest)


def test_an_aggregation_of_ones_own_by_import_path(updates):
    aggregation = AGGREGATIONS.make(f"{__name__}:Keep", {"weight": 2.0})
    aggregate = aggregation.apply(aggregation.init(torch.zeros(2), 3), updates([[3.0, 4.0], [1.0, 0.0]]))
    assert aggregate.broadcast.tolist() == [4.0, 4.0]
    assert aggregate.report.tolist() == [0.0, 0.0]
    assert aggregate.state == Longest(5.0)


def test_the_scenario_names_the_aggregation():
    assert Scenario().aggregation.name == "average"
    scenario = Scenario.load("quickstart", {"aggregation.name": "krum", "aggregation.options": {"selected": 3}})
    assert scenario.aggregation.make().selected == 3
    assert Scenario.load({**scenario.model_dump()}) == scenario
    with pytest.raises(InputError, match=r"aggregation\.options.*must be plain"):
        Scenario(aggregation={"options": {"lr": object()}})
    with pytest.raises(InputError, match=r"aggregation\.option: .*did you mean aggregation\.options\?"):
        Scenario(aggregation={"option": {}})
