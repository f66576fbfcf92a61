"""Keys of earlier versions, which are still read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedslot.parts.kinds import VALUATIONS

OPTIONS = {  # of valuation methods, which were fields of all scenarios, with their defaults
    "utilities_per_ue": 5,
    "max_utilities": 1000,
    "tolerance": 0.25,
    "permutations": 20,
    "between": 1e-4,
    "within": 1e-4,
}
ALIASES = {
    "valuation.method": "valuation.name",
    "push.channel_options": "push.channel.options",
    **{f"valuation.{name}": f"valuation.options.{name}" for name in OPTIONS},
}
"""Today's dotted key of each old one."""


def new_key(key: str) -> str:
    """Return a dotted key as it is spelled today; fields of the valuation move once the method is known.

    >>> new_key("push.channel_options.threshold_db")
    'push.channel.options.threshold_db'
    """
    for old in ("valuation.method", "push.channel_options"):
        if f"{key}.".startswith(f"{old}."):
            return ALIASES[old] + key.removeprefix(old)
    return key


def read_aliases(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with the valuation's options in their section; those that its method does not take are dropped."""
    valuation = fields.get("valuation")
    if not isinstance(valuation, dict) or not valuation.keys() & OPTIONS.keys():
        return dict(fields)
    name, options = valuation.get("name", "kriging"), valuation.get("options", {})
    accepted = VALUATIONS.options(name) if isinstance(name, str) and name in VALUATIONS else {}
    section = {key: value for key, value in valuation.items() if key not in OPTIONS}
    if isinstance(options, dict):
        # a complete scenario of earlier versions has the defaults of all methods
        given = {key: valuation[key] for key in OPTIONS if key in valuation}
        taken = {key: value for key, value in given.items() if key in options or value != OPTIONS[key]}
        section["options"] = options | {key: value for key, value in taken.items() if key in accepted}
    return {**fields, "valuation": section}


def old_keys(fields: Mapping[str, Any]) -> list[str]:
    """Return the old keys among fields, dotted or in sections, of a scenario or a study.

    >>> old_keys({"rounds": 3, "valuation": {"method": "gtg"}, "push.channel_options.replicas": 3})
    ['valuation.method', 'push.channel_options']
    """
    keys = []
    for key, value in fields.items():
        section, _, name = str(key).partition(".")
        inner = value if isinstance(value, dict) else {}
        if section in ("scenario", "overrides", "grid"):
            keys += old_keys(inner)
        names = [name.partition(".")[0]] if name else inner
        keys += [old for old in (f"{section}.{name}" for name in names) if old in ALIASES]
    return keys


def alias_notes(keys: Iterable[str]) -> list[str]:
    """Return a line for each old key among dotted keys."""
    return [f"{key} is now {ALIASES[key]}" for key in dict.fromkeys(keys) if key in ALIASES]
