"""Variants: strategies with options, an aggregation or scenario fields of their own, as comparisons take them.

On the command line a variant is `[LABEL=]NAME[+AGGREGATION][{...}]`; in the braces, keys with a dot are fields of the
scenario, others are options of the strategy:

>>> for variant in parse_variants("ucb{exploration: 2}, ucb+fedadam, brief=fedavg{training.epochs: 2}"):
...     print(variant.label, dict(variant.overrides))
ucb{exploration: 2} {'strategy.name': 'ucb', 'strategy.options.exploration': 2}
ucb+fedadam {'strategy.name': 'ucb', 'aggregation.name': 'fedadam'}
brief {'strategy.name': 'fedavg', 'training.epochs': 2}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from fedslot.experiments.measures import TARGETS, check_targets
from fedslot.experiments.study import MOST_RUNS, SEEDS, Study, plain_text, unique_name
from fedslot.parts.registry import part_name
from fedslot.runs.folders import COMPARISON
from fedslot.scenario import Scenario, read_fields, split_sections
from fedslot.strategies import STRATEGIES
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.yaml_text import YAMLError, parse_yaml, write_yaml

FORM = (
    "NAME, NAME+AGGREGATION or NAME{option: value, section.field: value}, each after LABEL= or not, with commas between"
)
NAME, OPTIONS, AGGREGATION = "strategy.name", "strategy.options", "aggregation.name"

Overrides: TypeAlias = Mapping[str, Any]
"""Fields of a scenario by dotted key, as `Scenario.replace` takes them."""
Choice: TypeAlias = str | Callable[..., Any] | Mapping[str, Any]
Strategies: TypeAlias = Choice | Sequence[Choice]
"""What to compare: variants as text, classes, mappings from a label to either or to overrides; or a list of these."""


@dataclass(frozen=True)
class Variant:
    """A strategy with scenario fields of its own.

    label: its name in tables and figures. overrides: fields that differ from the scenario that is compared.
    """

    label: str
    overrides: Overrides

    def scenario(self, base: Scenario) -> Scenario:
        """Return the scenario of this variant.

        Options of the base that the strategy does not have are left out. An aggregation of the variant's own gets no
        options of the base's aggregation. Where the PS itself trains, it takes the plain average.
        """
        fields = base.model_dump()
        name = str(self.overrides.get(NAME, base.strategy.name))
        options = {option: v for option, v in base.strategy.options.items() if STRATEGIES.takes(name, option)}
        fields["strategy"] |= {"name": name, "options": options}
        wanted = "average" if self.takes_average(base) else self.overrides.get(AGGREGATION, base.aggregation.name)
        if wanted != base.aggregation.name:
            fields["aggregation"] = {"name": wanted, "options": {}}
        return Scenario(**fields).replace(self.overrides)

    def takes_average(self, base: Scenario) -> bool:
        """Return whether this variant takes the plain average instead of the base's aggregation: the PS trains."""
        if base.aggregation.name == "average" or AGGREGATION in self.overrides:
            return False
        own = base.replace({AGGREGATION: "average", "aggregation.options": {}, OPTIONS: {}}).replace(self.overrides)
        return own.pools_data or own.trains_alone


def make_variants(strategies: Strategies) -> list[Variant]:
    """Return the variants that are meant; labels must differ.

    >>> [variant.label for variant in make_variants(["fedavg", {"patient": {"strategy.warmup": 9}}])]
    ['fedavg', 'patient']
    """
    variants = list(_variants(strategies))
    labels = [variant.label for variant in variants]
    if not variants:
        raise InputError("strategies", strategies, "one name at least")
    if len(set(labels)) < len(labels):
        raise InputError("strategies", labels, "different from each other")
    return variants


def parse_variants(text: str) -> list[Variant]:
    """Parse variants with commas between; commas in braces separate options."""
    return [_parse(word) for word in _split(text)]


@dataclass(frozen=True)
class VariantStudy(Study):
    """Variants of a scenario, each with several seeds.

    targets: accuracies to reach.
    """

    kind: ClassVar = COMPARISON
    field: ClassVar = "strategies"
    blame: ClassVar = "for"
    all_or_none: ClassVar = True
    varied: ClassVar = ["strategy.name"]

    scenario: Scenario
    variants: Sequence[Variant]
    seeds: int = SEEDS
    targets: tuple[float, ...] = TARGETS

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "targets", check_targets(self.targets, self.scenario))
        if len(self.variants) * self.seeds > MOST_RUNS:
            most = f"at most {MOST_RUNS // len(self.variants)}, since {MOST_RUNS} runs are the most of a comparison"
            raise InputError("seeds", self.seeds, most)

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read `comparison.yaml`."""
        fields = read_fields(file)
        try:
            scenario, seeds, targets = Scenario.load(fields["scenario"]), fields["seeds"], fields["targets"]
            variants = make_variants(fields["strategies"])
            return cls(scenario, variants, int(seeds), tuple(map(float, targets)))
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"{file} is damaged ({error}); the same command writes it anew") from None

    @cached_property
    def scenarios(self) -> list[Scenario]:
        """The scenario of each variant; options of the base that none of them has are refused, and twins too."""
        scenarios = super().scenarios
        for option, value in self.scenario.strategy.options.items():
            if not any(option in scenario.strategy.options for scenario in scenarios):
                raise InputError(f"{OPTIONS}.{option}", value, "an option of one of the compared strategies")
        return scenarios

    @property
    def labels(self) -> list[str]:
        return [variant.label for variant in self.variants]

    @property
    def folder_names(self) -> list[str]:
        return [unique_name(label, plain_text(label)) for label in self.labels]

    def make_scenario(self, index: int) -> Scenario:
        scenario, base = self.variants[index].scenario(self.scenario), self.scenario
        if scenario.cost_rule != base.cost_rule:
            raise InputError("cost_rule", scenario.cost_rule.name, f"{base.cost_rule.name} for all strategies")
        return scenario

    def to_yaml(self) -> str:
        strategies = {variant.label: dict(variant.overrides) for variant in self.variants}
        scenario, targets = self.scenario.model_dump(), [*self.targets]
        return write_yaml({"scenario": scenario, "strategies": strategies, "seeds": self.seeds, "targets": targets})

    def notes(self) -> list[str]:
        """Return what the scenario sets and a variant does without, one line each."""
        own = self.scenario.aggregation.name
        return [
            f"under {variant.label} the PS itself trains: it takes the plain average instead of {own}"
            for variant in self.variants
            if variant.takes_average(self.scenario)
        ]


def _variants(strategies: Strategies) -> Iterator[Variant]:
    if isinstance(strategies, str):
        yield from parse_variants(strategies)
    elif callable(strategies):
        name = str(part_name(strategies))
        yield Variant(name.removeprefix("__main__:"), {NAME: name})
    elif isinstance(strategies, Mapping):
        for label, given in strategies.items():
            if not isinstance(label, str) or not label.strip() or not label.isprintable():
                raise InputError("strategies", label, "a label of one line for each variant")
            yield Variant(label, _overrides(given))
    elif isinstance(strategies, Iterable):
        for each in strategies:
            yield from _variants(each)
    else:
        raise InputError("strategies", strategies, "names, classes, or a mapping from labels to overrides")


def _overrides(given: str | Callable[..., Any] | Overrides) -> Overrides:
    """Return the overrides of a variant that has a label."""
    if isinstance(given, Mapping):
        fields = split_sections(given)
        if "seed" in fields:
            raise InputError("strategies", "seed", "left out: all variants run with the same seeds")
        return {key: part_name(value) for key, value in fields.items()}
    variants = list(_variants(given))
    if len(variants) != 1:
        raise InputError("strategies", given, "one strategy for each label")
    return variants[0].overrides


def _parse(text: str) -> Variant:
    head, brace, rest = text.partition("{")
    given, equals, head = head.rpartition("=")
    name, plus, aggregation = head.strip().partition("+")
    if not name or (plus and not aggregation) or (equals and not given.strip()):
        raise InputError("strategies", text, FORM)
    overrides: dict[str, Any] = {NAME: name}
    if plus:
        overrides[AGGREGATION] = aggregation
    try:
        settings = parse_yaml(brace + rest) if brace else {}
    except YAMLError as error:
        raise InputError("strategies", text, f"{FORM} ({error})") from None
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InputError("strategies", text, FORM)
    for key, value in settings.items():
        field = key if "." in key else f"{OPTIONS}.{key}"
        if field in overrides:
            raise InputError("strategies", text, f"without {key} in the braces: it is given before them")
        overrides[field] = value
    overrides = split_sections(overrides)
    label = name + plus + aggregation + (write_yaml(settings, one_line=True).strip() if settings else "")
    return Variant(given.strip() or label, overrides)


def _split(text: str) -> list[str]:
    """Split at commas, except at those within braces: there, a word ends where it has valid YAML in its braces.

    >>> _split("a,b{x: [1, 2], y: 'p, q}'},,c")
    ['a', "b{x: [1, 2], y: 'p, q}'}", 'c']
    """
    words: list[str] = []
    pieces: list[str] = []
    for piece in text.split(","):
        pieces.append(piece)
        if _is_whole(",".join(pieces)):
            words.append(",".join(pieces))
            pieces = []
    return [word.strip() for word in [*words, ",".join(pieces)] if word.strip()]


def _is_whole(word: str) -> bool:
    _, brace, rest = word.partition("{")
    try:
        return not brace or isinstance(parse_yaml(brace + rest), dict)
    except YAMLError:
        return False
