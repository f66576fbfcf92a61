from dataclasses import dataclass

import pytest
import torch

from fedslot import InputError, Scenario
from fedslot.aggregation import AGGREGATIONS, Aggregate

WRONG = [
    # name, options, field, words that say what is allowed
    ("average", {"lr": 1.0}, "aggregation.options.lr", "left out, since average takes no options"),
    ("fedavgm", {"lr": 0}, "aggregation.options.lr", "greater than 0"),
    ("fedavgm", {"momentum": 1}, "aggregation.options.momentum", "less than 1"),
    ("fedadam", {"lr": "fast"}, "aggregation.options.lr", "a number"),
    ("fedadam", {"lr": True}, "aggregation.options.lr", "a number"),
    ("fedadam", {"beta1": -0.1}, "aggregation.options.beta1", "greater than or equal to 0"),
    ("fedadam", {"beta2": float("nan")}, "aggregation.options.beta2", "a finite number"),
    ("fedadam", {"tau": 0.0}, "aggregation.options.tau", "greater than 0"),
    ("fedyogi", {"tau": None}, "aggregation.options.tau", "a number"),
    ("median", {"fraction": 0.1}, "aggregation.options.fraction", "left out, since median takes no options"),
    ("trimmed-mean", {"fraction": 0.5}, "aggregation.options.fraction", "less than 0.5"),
    ("krum", {"byzantine": 1.5}, "aggregation.options.byzantine", "a whole number"),
    ("krum", {"selected": 0}, "aggregation.options.selected", "greater than or equal to 1"),
    ("krum", {1: 2}, "aggregation.options", "options that krum takes (keywords must be strings)"),
]


@pytest.mark.parametrize(("name", "options", "field", "allowed"), WRONG, ids=str)
def test_one_line_names_the_option_the_value_and_what_is_allowed(name, options, field, allowed):
    with pytest.raises(InputError) as caught:
        AGGREGATIONS.make(name, options)
    assert caught.value.field == field
    assert f"it must be {allowed}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names():
    with pytest.raises(InputError, match=r"aggregation\.name: 'mean' is not allowed.*one of average, fedavgm"):
        AGGREGATIONS.make("mean", {})
    with pytest.raises(InputError, match=r"aggregation\.name.*can be imported"):
        AGGREGATIONS.make("no_such_module:Mine", {})


@dataclass(frozen=True)
class Longest:
    norm: float


class Keep:
    """Keeps the longest step it has seen; refuses a weight that is not positive."""

    def __init__(self, weight: float = 1.0) -> None:
        if weight <= 0:
            raise InputError("weight", weight, "greater than 0")
        self.weight = weight

    def init(self, model, ues):
        return Longest(0.0)

    def apply(self, state, updates):
        longest = Longest(max(state.norm, float(updates.norms.max())))
        return Aggregate(updates.start + self.weight * updates.steps.mean(dim=0), updates.start, longest)


class Idle:
    def init(self, model, ues): ...


def test_an_aggregation_of_ones_own_by_import_path(updates):
    aggregation = AGGREGATIONS.make(f"{__name__}:Keep", {"weight": 2.0})
    aggregate = aggregation.apply(aggregation.init(torch.zeros(2), 3), updates([[3.0, 4.0], [1.0, 0.0]]))
    assert aggregate.broadcast.tolist() == [4.0, 4.0]
    assert aggregate.report.tolist() == [0.0, 0.0]
    assert aggregate.state == Longest(5.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Keep", {"weight": -1}, "aggregation.options.weight: -1 is not allowed; it must be greater than 0"),
        ("Keep", {"wait": 1}, "aggregation.options: {'wait': 1} is not allowed; it must be options that"),
        ("Idle", {}, "it must be an aggregation with init, apply; it has no apply"),
        ("WRONG", {}, "that can be called, not a list"),
    ],
)
def test_what_is_wrong_with_ones_own_is_said_in_one_line(name, options, message):
    with pytest.raises(InputError) as caught:
        AGGREGATIONS.make(f"{__name__}:{name}", options)
    assert message in str(caught.value)


def test_the_scenario_names_the_aggregation():
    assert Scenario().aggregation.name == "average"
    scenario = Scenario.load("quickstart", {"aggregation.name": "krum", "aggregation.options": {"selected": 3}})
    assert AGGREGATIONS.make(scenario.aggregation.name, scenario.aggregation.options).selected == 3
    assert Scenario.load({**scenario.model_dump()}) == scenario
    with pytest.raises(InputError, match=r"aggregation\.options.*must be plain"):
        Scenario(aggregation={"options": {"lr": object()}})
    with pytest.raises(InputError, match=r"aggregation\.option: .*did you mean aggregation\.options\?"):
        Scenario(aggregation={"option": {}})


def test_the_scenario_documents_every_name():
    text = type(Scenario().aggregation).model_fields["name"].description or ""
    assert all(f"`{name}`" in text for name in AGGREGATIONS)
