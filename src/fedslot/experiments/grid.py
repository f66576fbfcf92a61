"""A grid: values for some fields of a scenario, all of whose combinations are run, and the number of seeds of each.

>>> study = GridStudy(Scenario(), {"frame.pull": [5, 10], "strategy.name": ["push-pull", "fedavg"]}, seeds=3)
>>> study.combinations[1]
{'frame.pull': 5, 'strategy.name': 'fedavg'}
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from fedslot.experiments.study import MOST_RUNS, SEEDS, Study, plain_text, unique_name
from fedslot.parts.registry import part_name
from fedslot.runs.folders import SWEEP
from fedslot.scenario import Scenario, beside, presets, read_fields, split_sections
from fedslot.support.errors import InputError, RefusedError, did_you_mean
from fedslot.support.plain import plain
from fedslot.support.yaml_text import YAMLError, parse_yaml, write_yaml

KEYS = ("scenario", "overrides", "grid", "seeds")

Combination = dict[str, Any]
"""A value for each axis of the grid, by dotted key."""


@dataclass(frozen=True)
class GridStudy(Study):
    """All combinations of a grid, each with several seeds; impossible combinations are refused.

    grid: values to try, by dotted key; each key is an axis. Arrays and ranges are converted to lists, classes of your
        own to their names.
    seeds: number of seeds; the scenario's seed is the first. Runs with the same seed have common random numbers.
    """

    kind: ClassVar = SWEEP
    field: ClassVar = "grid"
    blame: ClassVar = "in the combination"
    all_or_none: ClassVar = False

    scenario: Scenario
    grid: Mapping[str, Sequence[Any]]
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        if not isinstance(self.grid, Mapping):
            raise InputError("grid", self.grid, "a dictionary of lists of values by field")
        axes = beside({"grid": plain(self.grid)}, Path())["grid"]
        named = {key: [*map(part_name, axis)] if isinstance(axis, list) else axis for key, axis in axes.items()}
        object.__setattr__(self, "grid", named)
        super().__post_init__()
        _check_axes(self.grid)
        runs = math.prod(map(len, self.grid.values())) * self.seeds
        if runs > MOST_RUNS:
            raise InputError("grid", f"{runs} runs", f"at most {MOST_RUNS} combinations times seeds")
        _ = self.scenarios  # refuses impossible combinations

    @classmethod
    def load(
        cls,
        source: str | Path,
        overrides: Mapping[str, object] | None = None,
        grid: Mapping[str, list[Any]] | None = None,
        seeds: int | None = None,
    ) -> Self:
        """Read a study file, which has the key `grid`, or combine a scenario with a given grid.

        overrides, grid, seeds: added to those of the file; an axis may be given only once.
        """
        fields = read_fields(source)
        if "grid" not in fields:
            fields = {"scenario": source}
        else:
            fields["scenario"] = _scenario_of(Path(source), fields.get("scenario"))
        for key in fields:
            if key not in KEYS:
                raise InputError(
                    key, fields[key], f"left out: the keys of a study are {', '.join(KEYS)}{did_you_mean(key, KEYS)}"
                )
        for key in ("overrides", "grid"):
            if not isinstance(fields.setdefault(key, {}), dict):
                raise InputError(key, fields[key], "a mapping of dotted keys, e.g. `frame.pull: ...`")
        for key in fields["overrides"]:
            if not isinstance(key, str):
                raise InputError("overrides", key, "a mapping of dotted keys, e.g. `frame.pull: 5`")
        axes = join_axes([fields["grid"], grid or {}])
        changes = split_sections(fields["overrides"], overrides or {})
        try:
            scenario = Scenario.load(fields["scenario"], changes)
        except InputError:  # it may be possible with the values of the grid only, if all change the same fields
            changed = [{frozenset(split_sections({key: value})) for value in axis} for key, axis in axes.items()]
            if any(len(keys) > 1 for keys in changed):
                raise
            first = {key: axis[0] for key, axis in axes.items()}
            scenario = Scenario.load(fields["scenario"], split_sections(changes, first))
        return cls(scenario, axes, fields.get("seeds", SEEDS) if seeds is None else seeds)

    @cached_property
    def combinations(self) -> list[Combination]:
        """All combinations, the last axis changing fastest."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    @property
    def labels(self) -> list[str]:
        return [say(combination) for combination in self.combinations]

    @property
    def varied(self) -> list[str]:
        return [*self.grid]

    @property
    def folder_names(self) -> list[str]:
        return [folder_name(combination) for combination in self.combinations]

    def make_scenario(self, index: int) -> Scenario:
        return self.scenario.replace(self.combinations[index])

    def check(self, *, data: bool = True, workers: int = 1) -> None:
        if "cost_rule" in self.grid:
            allowed = "another key: runs that count slots by different rules cannot be compared"
            raise InputError("grid", "cost_rule", allowed)
        super().check(data=data, workers=workers)

    def check_same(self, out: Path) -> None:
        """Refuse to continue a sweep of another scenario or over other axes; their values and seeds may change."""
        axes = GridStudy.load(out / SWEEP.marker).varied
        if axes != self.varied:
            raise RefusedError(f"{out} holds a sweep over {', '.join(axes)}, not over {', '.join(self.grid)}")
        super().check_same(out)

    def to_yaml(self) -> str:
        grid = {key: list(values) for key, values in self.grid.items()}
        return write_yaml({"scenario": self.scenario.model_dump(), "grid": grid, "seeds": self.seeds})


def parse_grid(words: Iterable[str]) -> dict[str, list[Any]]:
    """Parse `key=value,value` arguments into axes; the values are read as a YAML list.

    >>> parse_grid(["frame.pull=5,10", "strategy.name=push-pull,fedavg"])
    {'frame.pull': [5, 10], 'strategy.name': ['push-pull', 'fedavg']}
    """
    axes = []
    for word in words:
        key, equals, values = word.partition("=")
        if not equals or not key.strip():
            raise InputError("--grid", word, "of the form key=value,value, e.g. frame.pull=5,10")
        try:
            axes.append({key.strip(): parse_yaml(f"[{values}]")})
        except YAMLError:
            raise InputError(key, values, "values with commas between, each a number, a word or YAML") from None
    return join_axes(axes)


def join_axes(grids: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Merge grids, which must not have an axis in common."""
    joined: dict[str, list[Any]] = {}
    for grid in grids:
        for key, values in grid.items():
            if key in joined:
                raise InputError("grid", key, "given once, with all its values")
            joined[key] = values
    _check_axes(joined)
    return joined


def say(combination: Combination) -> str:
    """Return a combination as text.

    >>> say({"frame.pull": 5, "strategy.name": "fedavg"})
    'frame.pull=5, strategy.name=fedavg'
    """
    return ", ".join(f"{key}={say_value(value)}" for key, value in combination.items())


def say_value(value: object) -> str:
    """Return a value as it is written in `--grid`."""
    return write_yaml([value], one_line=True).strip()[1:-1]


def folder_name(combination: Combination) -> str:
    """Return a folder name that is valid on every file system and unique among combinations of the same axes.

    >>> folder_name({"frame.pull": 5, "fleet.noise": 0.1})
    'frame.pull=5_fleet.noise=0.1'
    """
    words = {key: say_value(value) for key, value in combination.items()}
    plain = "_".join(f"{plain_text(key)}={plain_text(word)}" for key, word in words.items())
    return unique_name("_".join(f"{key}={word}" for key, word in words.items()), plain)


def _scenario_of(file: Path, scenario: Any) -> Any:
    """Return the scenario of a study file: its fields, a preset, or a file relative to the study's folder."""
    if isinstance(scenario, dict):
        return scenario
    if not isinstance(scenario, str):
        raise InputError("scenario", scenario, "given in a study: a preset, a YAML file, or the fields themselves")
    return scenario if scenario in presets() else file.parent / scenario


def _check_axes(grid: Mapping[str, Any]) -> None:
    if not grid:
        raise InputError("grid", {}, "one axis at least, e.g. --grid frame.pull=5,10")
    for key, values in grid.items():
        if key == "seed":
            raise InputError("grid", "seed", "another key: --seeds says how many seeds each combination gets")
        if not isinstance(key, str) or not isinstance(values, list | tuple) or not values:
            raise InputError(f"grid {key}", values, "a list of one value at least")
        try:
            words = [say_value(value) for value in values]
        except YAMLError:
            raise InputError(f"grid {key}", values, "a list of plain numbers, words, lists and mappings") from None
        for word, count in Counter(words).items():
            if count > 1:
                raise InputError(f"grid {key}", word, "given once")
