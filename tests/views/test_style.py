"""Looks of curves: those of a name, whatever else is in the figure."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fedslot.strategies import STRATEGIES
from fedslot.views.style import LOOKS, OTHERS, looks

OWN = ["mine:S", "mine:S{weight: 0.2}", "mine:S{weight: 0.8}", "scout+filtered", "push-pull+krum"]


def test_every_strategy_of_fedslot_has_a_colour_of_its_own() -> None:
    assert set(STRATEGIES) <= set(LOOKS)
    colors = [look["color"] for look in LOOKS.values()] + OTHERS
    assert len(set(colors)) == len(colors)


def test_looks_do_not_depend_on_the_order_or_on_other_names() -> None:
    names = [*STRATEGIES, *OWN]
    shuffled = random.Random(0).sample(names, len(names))
    assert looks(names) == looks(shuffled)
    assert list(looks(shuffled)) == shuffled
    for name, look in looks([*STRATEGIES, "mine:S"]).items():
        assert looks([name]) == {name: look}


def test_the_only_variant_of_a_strategy_has_its_look() -> None:
    found = looks(["scout+filtered", "ucb", "ucb{exploration: 2}", "fedavg+median", "fedavg+krum"])
    assert found["scout+filtered"] == LOOKS["scout"]
    assert found["ucb"] == LOOKS["ucb"]
    assert len({(look["color"], str(look["linestyle"])) for look in found.values()}) == len(found)
    assert LOOKS["fedavg"] not in (found["fedavg+median"], found["fedavg+krum"])


@given(st.lists(st.text(min_size=1), unique=True, max_size=60))
def test_colours_differ_as_far_as_they_go(names: list[str]) -> None:
    names = [*STRATEGIES, *(name for name in names if name not in STRATEGIES)]
    chosen = looks(names)
    assert list(chosen) == names
    if len(names) <= len(STRATEGIES) + len(OTHERS):
        assert len({look["color"] for look in chosen.values()}) == len(names)
