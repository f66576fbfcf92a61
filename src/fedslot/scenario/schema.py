"""The keys of a scenario: their documentation, defaults and ranges, and overrides on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedslot.scenario.fields import Scenario
from fedslot.scenario.overrides import merge_overrides, model_keys
from fedslot.support.errors import InputError
from fedslot.support.yaml_text import YAMLError, parse_yaml, write_yaml


def keys() -> dict[str, str]:
    """Return all dotted keys of a scenario with their documentation."""
    return model_keys(Scenario)


def ranges() -> dict[str, str]:
    """Return the default and the allowed values of each dotted key as text.

    >>> ranges()["strategy.memory"]
    'default 0.5; number, at least 0 and below 1, or mean'
    """
    schema = Scenario.model_json_schema()

    def fields(section: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
        for name, field in section["properties"].items():
            kinds = [kind["$ref"] for kind in [field, *field.get("anyOf", [])] if "$ref" in kind]
            for reference in kinds:
                yield from fields(schema["$defs"][reference.rpartition("/")[2]], f"{prefix}{name}.")
            default = write_yaml([field["default"]], one_line=True).strip()[1:-1]
            yield prefix + name, f"default {default}; {_say_range(field)}"

    documented = keys()
    return {key: text for key, text in fields(schema, "") if key in documented}


def split_sections(*overrides: Mapping[str, object]) -> dict[str, object]:
    """Merge overrides into dotted keys; later ones win, sections are expanded into their fields.

    >>> split_sections({"frame": {"slots": 12, "pull": 4}}, {"frame": {"pull": 3}, "strategy.options": {"a": 1}})
    {'frame.slots': 12, 'frame.pull': 3, 'strategy.options': {'a': 1}}
    """
    return merge_overrides(Scenario, *overrides)


def parse_overrides(words: Iterable[str]) -> dict[str, object]:
    """Parse `key=value` arguments into overrides by field; the values are read as YAML.

    >>> parse_overrides(["frame={slots: 12, pull: 5}", "strategy.memory=mean"])
    {'frame.slots': 12, 'frame.pull': 5, 'strategy.memory': 'mean'}
    """
    overrides: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputError("-o", word, "of the form key=value, e.g. frame.pull=5")
        try:
            overrides = split_sections(overrides, {key.strip(): parse_yaml(value)})
        except YAMLError:
            raise InputError(key, value, "a YAML value: a number, a word, true, false, null, [a, b]") from None
    return overrides


def _say_range(kind: Mapping[str, Any]) -> str:
    """Return the values that a JSON schema allows as text."""
    if "anyOf" in kind:
        return ", or ".join(map(_say_range, kind["anyOf"]))
    if "enum" in kind or "const" in kind:
        return " or ".join(map(str, kind.get("enum", [kind.get("const")])))
    names = {"integer": "whole number", "boolean": "true or false", "string": "word", "object": "mapping"}
    name = "section" if "$ref" in kind else names.get(kind["type"], kind["type"])
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{word} {_say_limit(kind[limit])}" for limit, word in words.items() if limit in kind]
    return f"{name}, {' and '.join(limits)}" if limits else name


def _say_limit(limit: float) -> str:
    limit = int(limit) if limit == int(limit) else limit  # earlier versions of pydantic say 0.0 for 0
    return f"2^{limit.bit_length()} - 1" if isinstance(limit, int) and limit > 10**12 else f"{limit:,}"
