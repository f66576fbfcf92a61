"""Variants: texts parsed and refused, labels, and which fields of the scenario each takes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedslot.experiments.variants import VariantStudy, make_variants, parse_variants
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError
from fedslot.support.yaml_text import write_yaml

KEYS = st.text("abcdefghij_", min_size=1, max_size=8)
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = WORDS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()


class Weighted(FedAvg):
    options = {"weight": 0.5}  # noqa: RUF012


LIGHT = {"strategy.name": Weighted, "strategy.options.weight": 0.1}


def test_every_form_of_a_variant() -> None:
    found = parse_variants("push-pull, greedy-shap+fedadam,mine:S{weight: 0.2},b:S+d:A{x: [1, 2], training.lr: 0.1}")
    assert {variant.label: variant.overrides for variant in found} == {
        "push-pull": {"strategy.name": "push-pull"},
        "greedy-shap+fedadam": {"strategy.name": "greedy-shap", "aggregation.name": "fedadam"},
        "mine:S{weight: 0.2}": {"strategy.name": "mine:S", "strategy.options.weight": 0.2},
        "b:S+d:A{x: [1, 2], training.lr: 0.1}": {
            "strategy.name": "b:S",
            "aggregation.name": "d:A",
            "strategy.options.x": [1, 2],
            "training.lr": 0.1,
        },
    }


@example([{"a": '"\x1f', "b": '"\x1f, '}, {"a": ": b"}, {"a": '"\x1f'}])
@example([{"a": "it's, {x}"}, {"b": '"\\", '}, {}])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=4))
def test_labels_read_as_the_same_variants(settings: list[dict[str, Any]]) -> None:
    """Also values with commas, braces and quotes: what a label says can be given again."""
    texts = [f"s{write_yaml(options, one_line=True).strip()}" for options in settings]
    labels = [variant.label for text in texts for variant in parse_variants(text)]
    assert [variant.overrides for variant in parse_variants(",".join(labels))] == [
        {"strategy.name": "s", **{f"strategy.options.{key}": value for key, value in options.items()}}
        for options in settings
    ]


def test_labels_are_normalised() -> None:
    assert [variant.label for variant in parse_variants(" ucb {'exploration':   2} ")] == ["ucb{exploration: 2}"]


def test_a_label_may_stand_before_a_variant() -> None:
    (labelled,) = parse_variants("2 bits = ucb+krum{exploration: 2, training.lr: 0.5}")
    (plain,) = parse_variants("ucb+krum{exploration: 2, training.lr: 0.5}")
    assert (labelled.label, labelled.overrides) == ("2 bits", plain.overrides)


@pytest.mark.parametrize(
    "text", ["+fedadam", "fedavg+", "{a: 1}", "a{", "a{b: 1}}", "a{b: 1} c", "a{[1]}", "a{1: 2}", "a{b: {c: ]}}", "=a"]
)
def test_texts_that_are_no_variants(text: str) -> None:
    with pytest.raises(InputError, match=r"strategies: .* it must be NAME, NAME\+AGGREGATION or") as refused:
        make_variants(["push-pull", text])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        ([], "one name at least"),
        ("", "one name at least"),
        (["fedavg", {"fedavg": "ucb"}], "different from each other"),
        (3, "names, classes, or a mapping"),
        ({"": "fedavg"}, "a label of one line"),
        ({"a\nb": "fedavg"}, "a label of one line"),
        ({"a": {"seed": 3}}, "the same seeds"),
        ({"a": "fedavg,ucb"}, "one strategy"),
        (["ucb{strategy.name: fedavg}"], "given before them"),
        (["ucb+krum{aggregation.name: median}"], "given before them"),
    ],
)
def test_lists_that_cannot_be_compared(strategies: Any, expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)):
        make_variants(strategies)


def test_classes_and_labels() -> None:
    own = f"{Weighted.__module__}:Weighted"
    found = make_variants([Weighted, {"light": LIGHT, "other": Weighted}])
    assert [variant.label for variant in found] == [own, "light", "other"]
    assert {variant.overrides["strategy.name"] for variant in found} == {own}
    in_a_cell = type("Cell", (FedAvg,), {"__module__": "__main__", "__qualname__": "Cell"})
    assert make_variants([in_a_cell])[0].label == "Cell"


def test_sections_and_numbers_of_numpy() -> None:
    """As `Scenario.replace` takes them: a section names the fields that differ."""
    given = {"a": {"strategy": {"name": "centralized"}, "frame": {"pull": np.int64(3)}}}
    (variant,) = make_variants(given)
    assert variant.overrides == {"strategy.name": "centralized", "frame.pull": 3}
    assert type(variant.overrides["frame.pull"]) is int
    base = Scenario.load("quickstart", {"aggregation.name": "krum"})
    (scenario,) = VariantStudy(base, [variant]).scenarios
    assert (scenario.aggregation.name, scenario.frame.slots) == ("average", base.frame.slots)


def test_options_of_the_scenario_go_to_the_strategies_that_have_them() -> None:
    base = Scenario.load("quickstart", {"strategy.name": "ucb", "strategy.options": {"exploration": 2.0}})
    variants = make_variants(["ucb", "ucb{exploration: 3}", "fedavg", Weighted, {"light": LIGHT}])
    assert [scenario.strategy.options for scenario in VariantStudy(base, variants).scenarios] == [
        {"exploration": 2.0},
        {"exploration": 3},
        {},
        {},
        {"weight": 0.1},
    ]
    with pytest.raises(InputError, match=r"strategy\.options\.exploration: 2\.0 .* an option of one of the compared"):
        VariantStudy(base, make_variants("fedavg,centralized")).scenarios  # noqa: B018


def test_the_aggregation_of_the_scenario_and_of_variants() -> None:
    """Options belong to the aggregation that they were given for; pooled data are averaged, which is said."""
    base = Scenario.load("quickstart", {"aggregation": {"name": "fedadam", "options": {"lr": 0.05}}})
    variants = make_variants(
        "push-pull,fedavg+krum,fedavg+fedadam{aggregation.options.lr: 0.1},centralized,fedavg{training.pooled: true}"
    )
    assert [(each.aggregation.name, each.aggregation.options) for each in VariantStudy(base, variants).scenarios] == [
        ("fedadam", {"lr": 0.05}),
        ("krum", {}),
        ("fedadam", {"lr": 0.1}),
        ("average", {}),
        ("average", {}),
    ]
    assert VariantStudy(base, variants).notes() == [
        f"under {label} the PS itself trains: it takes the plain average instead of fedadam"
        for label in ("centralized", "fedavg{training.pooled: true}")
    ]
    assert VariantStudy(Scenario.load("quickstart"), variants).notes() == []


def test_twins_are_refused() -> None:
    base = Scenario.load("quickstart")
    with pytest.raises(InputError, match="the same scenario as fedavg"):
        VariantStudy(base, make_variants(["fedavg", f"fedavg{{frame.pull: {base.frame.pull}}}"])).scenarios  # noqa: B018
