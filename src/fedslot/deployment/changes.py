"""Changes of a scenario while its training runs: which fields may change, requests, and the record in the folder.

A request is `change.yaml` in the folder, which `fedslot change` writes; the PS takes it at the end of a frame. What was
changed is in the checkpoint, and for readers in `changes.csv`; `scenario.yaml` stays that of the beginning.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedslot.runs.folders import RUN, write_atomically
from fedslot.scenario import Scenario, split_sections
from fedslot.scenario.overrides import flatten
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.yaml_text import YAMLError, parse_yaml, write_yaml

REQUEST, CHANGES = "change.yaml", "changes.csv"
FREE = ("frame", "push", "strategy", "data.ues")
"""Sections and fields of a scenario that may change: those that no device needs to train."""


@dataclass(frozen=True)
class Change:
    """New values of some fields, by dotted keys. round: the first round with them."""

    round: int
    fields: dict[str, Any]


def changed(scenario: Scenario, fields: Mapping[str, object]) -> Scenario:
    """Return a scenario with other values of fields; refuse those that a training cannot change.

    Another strategy has its default options, unless some are given.
    """
    given = split_sections(fields)
    for key, value in given.items():
        if not any(f"{key}.".startswith(f"{free}.") for free in FREE):
            raise InputError(key, value, f"left as it is in a training; {', '.join(FREE)} may change")
    if given.get("strategy.name", scenario.strategy.name) != scenario.strategy.name:
        if scenario.training.epochs_by_strategy:
            raise InputError("strategy.name", given["strategy.name"], "left as it is with training.epochs_by_strategy")
        given = {"strategy.options": {}} | given
    new = scenario.replace(given)
    if new.data.ues < scenario.data.ues:
        raise InputError("data.ues", new.data.ues, f"at least {scenario.data.ues}; a device that left stays absent")
    return new


def apply(scenario: Scenario, changes: Sequence[Change]) -> Scenario:
    """Return a scenario after changes that were recorded."""
    for change in changes:
        scenario = changed(scenario, change.fields)
    return scenario


def present(folder: Path) -> Scenario:
    """Return the scenario of a folder after the changes in `changes.csv`, and the request that is not yet taken."""
    scenario, file = Scenario.load(folder / RUN.marker), folder / CHANGES
    rows: dict[int, dict[str, Any]] = {}
    try:
        if file.is_file():
            for row in csv.DictReader(io.StringIO(file.read_text("utf-8"))):
                rows.setdefault(int(row["round"]), {})[row["field"]] = json.loads(row["value"])
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise RefusedError(f"{file} cannot be read ({error})") from None
    scenario = apply(scenario, [Change(round, fields) for round, fields in rows.items()])
    request = folder / REQUEST
    return changed(scenario, read_request(request.read_text("utf-8"))) if request.exists() else scenario


def write_request(folder: Path, fields: Mapping[str, object]) -> None:
    """Ask the PS of a folder to change fields at the end of its frame; a request that it has not taken is extended."""
    file = folder / REQUEST
    before = read_request(file.read_text("utf-8")) if file.exists() else {}
    write_atomically(file, write_yaml(split_sections(before, fields)))


def read_request(text: str) -> dict[str, Any]:
    """Return the fields of a request."""
    try:
        fields = parse_yaml(text)
    except YAMLError as error:
        raise RefusedError(f"{REQUEST} cannot be read ({error})") from None
    if not isinstance(fields, dict):
        raise RefusedError(f"{REQUEST} must have lines such as `frame.pull: 3`")
    return fields


def difference(before: Scenario, after: Scenario) -> dict[str, Any]:
    """Return the fields in which two scenarios differ, by dotted keys with the later values."""
    old, new = flatten(before.model_dump()), flatten(after.model_dump())
    keys = {key: None for key in (*old, *new) if old.get(key) != new.get(key)}
    # options are replaced as a whole
    names = dict.fromkeys(key.partition(".options.")[0] + ".options" if ".options." in key else key for key in keys)
    return {name: _at(after, name) for name in names}


def _at(scenario: Scenario, key: str) -> Any:
    value: Any = scenario.model_dump()
    for name in key.split("."):
        value = value[name]
    return value


def to_json(changes: Sequence[Change]) -> str:
    """Return changes as the text that a checkpoint holds."""
    return json.dumps([[change.round, change.fields] for change in changes])


def from_json(text: str) -> list[Change]:
    """Return the changes that a checkpoint holds."""
    return [Change(round, fields) for round, fields in json.loads(text)]


def write_record(folder: Path, changes: Sequence[Change]) -> None:
    """Write `changes.csv`: a row for each field that was changed."""
    rows = [(change.round, key, json.dumps(value)) for change in changes for key, value in change.fields.items()]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([("round", "field", "value"), *rows])
    write_atomically(folder / CHANGES, buffer.getvalue())
