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


def test_looks_do_not_depend_on_the_order() -> None:
    names = [*STRATEGIES, *OWN]
    shuffled = random.Random(0).sample(names, len(names))
    assert looks(names) == looks(shuffled)
    assert list(looks(shuffled)) == shuffled


def test_names_keep_their_look_in_other_figures() -> None:
    alone = {name: looks([name])[name] for name in [*STRATEGIES, "mine:S"]}
    together = looks([*STRATEGIES, "mine:S"])
    assert together == alone


def test_the_only_variant_of_a_strategy_has_its_look() -> None:
    found = looks(["scout+filtered", "ucb", "ucb{exploration: 2}", "fedavg+median", "fedavg+krum"])
    assert found["scout+filtered"] == LOOKS["scout"]
    assert found["ucb"] == LOOKS["ucb"]
    assert len({(look["color"], str(look["linestyle"])) for look in found.values()}) == len(found)
    assert LOOKS["fedavg"] not in (found["fedavg+median"], found["fedavg+krum"])


@given(st.lists(st.text(min_size=1), unique=True, max_size=len(OTHERS)))
def test_colours_differ_within_a_figure(names: list[str]) -> None:
    found = looks([*STRATEGIES, *(name for name in names if name not in STRATEGIES)])
    assert len({look["color"] for look in found.values()}) == len(found)


@given(st.lists(st.text(min_size=1), unique=True, max_size=60))
def test_any_number_of_names_has_looks(names: list[str]) -> None:
    assert list(looks(names)) == names
