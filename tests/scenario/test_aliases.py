"""Keys of earlier versions mean what the new ones say."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedslot import Scenario
from fedslot.scenario.aliases import ALIASES, alias_notes

PAIRS = [
    (
        {"valuation": {"method": "gtg", "permutations": 7}},
        {"valuation": {"name": "gtg", "options": {"permutations": 7}}},
    ),
    ({"valuation": {"permutations": 7}}, {}),  # kriging has no permutations
    ({"valuation": {"method": "cyclic", "tolerance": 0.25}}, {"valuation": {"name": "cyclic"}}),  # the default
    (
        {"push": {"channel": "capture", "channel_options": {"threshold_db": 2.0}}},
        {"push": {"channel": {"name": "capture", "options": {"threshold_db": 2.0}}}},
    ),
]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_old_and_new_keys_make_the_same_scenario(old: dict, new: dict, tmp_path: Path) -> None:
    assert Scenario(**old) == Scenario(**new)
    dotted = {f"{section}.{key}": value for section, fields in old.items() for key, value in fields.items()}
    assert Scenario().replace(dotted) == Scenario(**new)
    assert Scenario.load("quickstart", dotted) == Scenario.load("quickstart", new)


def test_a_name_alone_stands_for_a_part_and_its_options_are_kept_apart() -> None:
    base = Scenario(push={"channel": "capture"}).replace({"push.channel.options.threshold_db": 2.0})
    assert (base.push.channel.name, base.push.channel.options) == ("capture", {"threshold_db": 2.0})
    assert Scenario(chain=["clip", "noise"]) == Scenario(chain=[{"name": "clip"}, {"name": "noise", "options": {}}])


def test_a_line_tells_the_new_key() -> None:
    assert alias_notes(["rounds", "valuation.method", "valuation.method"]) == ["valuation.method is now valuation.name"]
    assert len(alias_notes(ALIASES)) == len(ALIASES)
