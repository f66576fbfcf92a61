"""Scenarios: all parameters of a run, validated and documented.

fields.py     the sections and fields of a `Scenario`
sources.py    presets and YAML files
overrides.py  dotted keys, and overrides by them
aliases.py    keys of earlier versions
hints.py      error messages of one line
schema.py     keys, defaults and ranges as text; overrides on the command line
presets/      the scenarios that come with the package
"""

from fedslot.scenario.fields import (
    MOST_EXACT_PLAYERS,
    AttackPart,
    AvailabilityPart,
    CompressionPart,
    ComputingSection,
    FleetSection,
    PartSection,
    RatesPart,
    Scenario,
    as_scenario,
)
from fedslot.scenario.schema import keys, parse_overrides, ranges, split_sections
from fedslot.scenario.sources import beside, preset_text, presets, read_fields

__all__ = [
    "MOST_EXACT_PLAYERS",
    "AttackPart",
    "AvailabilityPart",
    "CompressionPart",
    "ComputingSection",
    "FleetSection",
    "PartSection",
    "RatesPart",
    "Scenario",
    "as_scenario",
    "beside",
    "keys",
    "parse_overrides",
    "preset_text",
    "presets",
    "ranges",
    "read_fields",
    "split_sections",
]
