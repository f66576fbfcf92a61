"""One line for what pydantic finds wrong in a scenario, with the nearest key or word."""

from __future__ import annotations

import re

from pydantic import BaseModel, ValidationError

from fedslot.parts.registry import PART
from fedslot.scenario.overrides import model_keys
from fedslot.support.errors import InputError, did_you_mean, nearest, say_allowed


def one_line(model: type[BaseModel], error: ValidationError) -> InputError:
    """Convert the first error of pydantic into an `InputError` of one line."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError) and cause.field != PART:
        return cause
    keys = model_keys(model)
    parts = [str(part) for part in first["loc"]]
    # pydantic appends the alternatives of a union ("int", "literal['ready']") to the path of the field
    while len(parts) > 1 and not any(key.startswith(".".join(parts)) for key in keys):
        if first["type"] == "extra_forbidden":
            break
        parts.pop()
    field = ".".join(parts) or "scenario"
    if isinstance(cause, InputError):
        return InputError(field, cause.value, cause.allowed)
    if first["type"] == "extra_forbidden":
        return _no_such_key(model, field, first["input"])
    if first["type"] in {"model_type", "model_attributes_type"}:
        section = [key for key in keys if key.startswith(f"{field}.")]
        name = "a name or " if f"{field}.options" in keys else ""
        return InputError(field, first["input"], f"{name}a section with keys such as {', '.join(section[:3])}")
    same_field = [each for each in error.errors() if list(map(str, each["loc"][: len(parts)])) == parts]
    allowed = say_allowed(same_field)
    if isinstance(first["input"], str):
        expected = " ".join(str(each.get("ctx", {}).get("expected", "")) for each in same_field)
        allowed += did_you_mean(first["input"], re.findall("'([^']+)'", expected))
    return InputError(field, first["input"], allowed)


def _no_such_key(model: type[BaseModel], field: str, value: object) -> InputError:
    """Return the error about a field that does not exist; it names the nearest one, wherever that stands."""
    while isinstance(value, dict) and len(value) == 1:  # a section of one field, as of `-o strateg.name=ucb`
        [(name, value)] = value.items()
        field = f"{field}.{name}"
    near = _nearest_key(list(model_keys(model)), field)
    hint = f"did you mean {near}?" if near else "`fedslot schema --keys` lists them"
    return InputError(field, value, f"left out: there is no such key; {hint}")


NAMED = {"data": "data.dataset", "training": "training.model.name", "push": "push.channel.name"}
"""The fields that name the part of a section, where they are not called `name`."""


def _nearest_key(keys: list[str], field: str) -> str | None:
    """Return the field or section whose last word is nearest to that of a key: of the same section, or else of any.

    A name that no section has, as in `channel.name`, may mean a field that is called like the section given.
    """
    section, _, name = field.rpartition(".")
    names = dict.fromkeys([*keys, *(key.rpartition(".")[0] for key in keys)])
    if name == "name":
        alike = (key for key in names if "." in key and key.split(".")[-1] == section.split(".")[-1])
        if meant := NAMED.get(section) or next(alike, None):
            return meant
    for group in ([key for key in names if key.rpartition(".")[0] == section], names):
        homes: dict[str, list[str]] = {}  # keys by their last words
        for key in group:
            homes.setdefault(key.rpartition(".")[2], []).append(key)
        if word := nearest(name, homes):
            return nearest(field, homes[word]) or homes[word][0]
    return None
