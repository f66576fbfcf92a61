"""Dotted keys of a model: which there are, and overrides by them. Fields are merged by dotted keys, then nested."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, get_origin

from pydantic import BaseModel

from fedslot.scenario.aliases import new_key
from fedslot.support.errors import InputError
from fedslot.support.plain import plain


def model_keys(model: type[BaseModel]) -> dict[str, str]:
    """Return the dotted keys of all fields of a model with their documentation."""

    def fields(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, str]]:
        for name, field in model.model_fields.items():
            inner = section_of(field.annotation)
            if inner is None or field.annotation is not inner:
                yield prefix + name, field.description or ""
            if inner is not None:
                yield from fields(inner, f"{prefix}{name}.")

    return dict(fields(model, ""))


def section_at(model: type[BaseModel] | None, key: str) -> type[BaseModel] | None:
    """Return the section that a dotted key of a model names; None if it names no section."""
    for name in key.split("."):
        field = model.model_fields.get(name) if model else None
        model = section_of(field.annotation) if field else None
    return model


def expand_name(model: type[BaseModel], key: str, value: Any) -> Any:
    """Return the section of a part whose name alone is given; return any other value unchanged."""
    if not isinstance(value, str) and not callable(value):
        return value
    section = section_at(model, key)
    return {"name": value} if section and {"name", "options"} <= section.model_fields.keys() else value


def merge_overrides(model: type[BaseModel], *overrides: Mapping[str, object]) -> dict[str, object]:
    """Merge overrides into dotted keys; later ones win, sections are expanded into their fields."""
    fields: dict[str, object] = {}
    for key, value in itertools.chain.from_iterable(some.items() for some in overrides):
        key = new_key(str(key))
        value = expand_name(model, key, plain(value))
        if isinstance(value, dict) and value and section_at(model, key):
            merged = merge_overrides(model, {f"{key}.{name}": inner for name, inner in value.items()})
        else:
            merged = {key: value}
        for name, inner in merged.items():
            fields.pop(name, None)  # so that the last one is also applied last
            fields[name] = inner
    return fields


def nest(model: type[BaseModel], fields: Mapping[str, object]) -> dict[str, Any]:
    """Return fields by dotted keys as sections inside one another; later ones win."""
    nested: dict[str, Any] = {}
    for key, value in fields.items():
        *sections, last = key.split(".")
        section = nested
        for depth, name in enumerate(sections):
            inner = expand_name(model, ".".join(sections[: depth + 1]), section.get(name))
            if not isinstance(inner, dict | None):
                raise InputError(key, value, "a key of the scenario; `fedslot schema --keys` lists them")
            section[name] = section = dict(inner or {})
        names_no_field = value == {} and section_at(model, key) is not None
        if section.get(last) is None or not names_no_field:
            section[last] = value
    return nested


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def section_of(annotation: object) -> type[BaseModel] | None:
    """Return the section class in the annotation of a field; None if the field is no section."""
    if get_origin(annotation) is list:
        return None
    kinds = getattr(annotation, "__args__", (annotation,))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
