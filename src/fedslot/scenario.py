"""Scenarios: a scenario has all parameters of a run, validated and documented.

It comes from a preset, a YAML file or Python, with overrides by dotted keys. A run folder holds the complete scenario,
so that the run can be repeated.

>>> scenario = Scenario.load("quickstart", {"frame.pull": 5})
>>> scenario.frame.pull, scenario.data.dataset
(5, 'digits')
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedslot.errors import InputError, did_you_mean, nearest, whole_number
from fedslot.plain import LARGEST_INT, check_plain, plain
from fedslot.plugins import part_name
from fedslot.yaml_text import YAMLError, parse_yaml, write_yaml

MOST = 10**9  # numbers of UEs, samples, slots, rounds, epochs: products of two of them fit into 64 bits
MOST_ARRIVALS = 10_000.0  # UEs per slot
LARGEST_SEED = 2**128 - 1  # as many bits as NumPy draws where it seeds itself
MOST_EXACT_PLAYERS = 16  # 65,536 utilities per round; one more UE doubles the number

Probability = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[str, BeforeValidator(part_name)]
"""The name of a part; a class or function of your own may be given in its place, and is stored as its name."""


class Section(BaseModel):
    """A part of a scenario: immutable, with strict types, no unknown keys and no NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Data(Section):
    """The data set, and how its samples are divided among the UEs."""

    dataset: str = "digits"
    """`digits` (embedded), `mnist`, `fashion-mnist`, `cifar10` (fetched once), or the path of an `.npz` file. In a YAML
    file, the path is relative to that file, elsewhere to the current folder."""
    ues: int = Field(50, ge=1, le=MOST)
    """Number of UEs in the cell, K."""
    alpha: float = Field(1.0, gt=0)
    """Concentration of the Dirichlet distribution from which each UE's mix of labels is drawn; a small alpha means few
    labels per UE."""
    sizes: Literal["power-law", "equal"] = "power-law"
    """Numbers of samples per UE: in proportion to draws with density 3x^2 on (0, 1), or equal."""
    samples_per_ue: int | None = Field(None, ge=1, le=MOST)
    """Mean number of samples per UE. Each UE draws its own samples, so UEs may have samples in common, and there can be
    any number of UEs. Null: every training sample belongs to exactly one UE."""
    validation: float = Field(0.5, gt=0, lt=1)
    """Share of the test samples that form the PS's validation set; the others measure test accuracy."""
    validation_samples: int | None = Field(None, ge=1, le=MOST)
    """Number of labelled samples of the PS, taken from its validation set; null means all of it. Labels are costly: 100
    to 500 are realistic. The test samples stay the same."""
    unlabelled_samples: int = Field(0, ge=0, le=MOST)
    """Number of further samples of the validation set that the PS has without labels, for `filtered`, `scout`
    and `merit-push`."""

    @field_validator("dataset")
    @classmethod
    def _absolute(cls, dataset: str) -> str:
        """Make the path of a file absolute, so that it means the same file in whatever folder it is read."""
        return _own_file(dataset, Path())


class Computing(Section):
    """Computing times of the UEs: T = I(eps) D c / f with c ~ Gamma(shape, scale) cycles per bit."""

    shape: float = Field(4.0, gt=0)
    """Shape of the Gamma distribution of cycles per bit, kappa."""
    scale: float = Field(5.0, gt=0)
    """Scale of the Gamma distribution of cycles per bit, beta."""
    bits_per_sample: float = Field(6272.0, gt=0)
    """Size of one training sample [bits]; 784 bytes for a grey 28x28 image."""
    frequency: float = Field(1e9, gt=0)
    """Computing frequency of a UE, f [cycles/s]."""
    accuracy: float = Field(0.1, gt=0, lt=1)
    """Local accuracy eps to which a UE trains; the number of local iterations is proportional to log(1/eps)."""
    iterations: float = Field(10.0, gt=0)
    """Local iterations per unit of log(1/eps)."""
    slot: float = Field(0.1, gt=0)
    """Length of a slot, tau [s]."""
    redraw: bool = False
    """Whether cycles per bit are drawn in every frame. False: once per UE, so that a slow UE stays slow."""


class Fleet(Section):
    """Differences between the UEs, apart from their data."""

    stragglers: Fraction = 0.5
    """Share of UEs that train fewer epochs: a number uniform in [1, epochs], drawn once per UE."""
    noise: float = Field(0.1, ge=0, le=1e6)
    """Standard deviation sigma of the Gaussian noise that UEs add to every parameter of their updates;
    `noise_law` says how it differs between UEs."""
    noise_law: Literal["linear", "half", "equal"] = "linear"
    """Standard deviation of the noise of UE k of 0..K-1: `linear`, k * sigma / K as in the paper; `half`, 0 for one
    half of the UEs and sigma for the other; `equal`, sigma for all."""
    noise_order: Literal["shuffled", "index"] = "shuffled"
    """Whether the noise levels are assigned to the UEs at random or by index."""
    computing: Computing | None = None
    """Computing times; null means that every UE is ready as soon as the frame begins."""


class Frame(Section):
    """A frame is one global round: a downlink slot, pull slots and push slots."""

    slots: int = Field(20, ge=1, le=MOST)
    """Uplink slots per frame, M."""
    pull: int = Field(10, ge=0)
    """Uplink slots that are granted to chosen UEs, Q; the other M - Q are open to contention."""


class Push(Section):
    """The contenders for the push slots, and the channel."""

    contenders: Annotated[int, Field(ge=0, le=MOST)] | Literal["ready"] = 10
    """Number of backlogged UEs in a frame, drawn from those that are not pulled. `ready`: all UEs whose computing is
    done. Not used with `arrivals`."""
    arrivals: float | None = Field(None, gt=0, le=MOST_ARRIVALS)
    """Mean number of UEs per slot that become backlogged; each stays backlogged until it is received. So a short frame
    has fewer new contenders than a long one. Null: `contenders` in every frame, even if it is short."""
    probability: Probability | Literal["auto"] = 1.0
    """Access barring: a backlogged UE contends with this probability; `auto` aims at one contender per push slot. With
    `arrivals` it counts those that become backlogged in a frame, not those that stay so from earlier frames."""
    channel: Part = "collision"
    """`collision`, `capture`, `crdsa`, `irsa`, or a channel of your own as `package.module:Name`."""
    channel_options: dict[str, Any] = {}
    """Options of the channel, e.g. `{threshold_db: 3.0}` for `capture`."""


class Training(Section):
    """Local training of a UE."""

    model: Part = "mlp"
    """`mlp` (50 and 25 hidden units), `cnn`, or `package.module:factory`, which is called with (input shape, classes)
    and returns an `nn.Module`."""
    epochs: int = Field(5, ge=1, le=MOST)
    """Local epochs, E."""
    epochs_by_strategy: dict[str, Annotated[int, Field(ge=1, le=MOST)]] = {}
    """Epochs by strategy, for those that do not train `epochs`: unequal budgets, as in the published figures."""
    batches: int = Field(5, ge=1, le=MOST)
    """Minibatches per epoch, B."""
    lr: float = Field(0.01, gt=0, le=1e6)
    """Learning rate of SGD."""
    momentum: float = Field(0.5, ge=0, lt=1)
    """Momentum of SGD."""
    proximal: float = Field(0.0, ge=0, le=1e6)
    """FedProx's mu: adds mu / 2 * |w - w_global|^2 to the local loss; 0 is plain FedAvg."""
    optimizer: Part = "sgd"
    """`sgd`, or `package.module:factory`, which is called with (parameters, lr) for each UE and round, and returns a
    `torch.optim.Optimizer`; `momentum` is then not used."""
    engine: Literal["auto", "torch", "compiled"] = "auto"
    """`torch` trains any network. `compiled` (Numba) trains only plain ReLU perceptrons by SGD on a CPU; it is faster
    and gives the same models up to rounding. `auto`: `compiled` if possible. `summary.json` names the one used."""
    pooled: bool | None = None
    """Whether received UEs send their samples instead of model updates, and the PS trains on these samples. Then no
    update can be valued. Null: only under `centralized`."""
    device: str = "cpu"
    """Device of PyTorch: `cpu`, `cuda`, `cuda:1`."""


class Strategy(Section):
    """The strategy, which grants the pull slots."""

    name: Part = "push-pull"
    """`push-pull` (the paper's), `planned`, `greedy-shap`, `only-pull`, `ucb`, `s-fedavg`, `power-of-choice`, `scout`,
    `merit-push`, `fedavg`, `round-robin`, `centralized`, `ps-alone` (no UE is heard), or `package.module:Name`."""
    warmup: int | None = Field(None, ge=0, le=MOST)
    """Number of warm-up rounds, in which all slots pull: every UE once, then the most valued. Null: until every UE
    was pulled once. Used by `push-pull`, `planned`, `only-pull` and `greedy-shap`."""
    memory: Annotated[float, Field(ge=0, lt=1)] | Literal["mean"] = 0.5
    """Weight of the old value in the exponential smoothing; `mean`: the running mean instead."""
    share: Probability = 0.1
    """Share of the UEs that send their data to the PS under `centralized`."""
    options: dict[str, Any] = {}
    """Options of the strategy. `ucb`: `exploration`, factor of the confidence bonus (1.0). `s-fedavg`: `temperature`
    of the softmax, relative to the spread of values (1.0). `power-of-choice`: `candidates`, number of UEs that are
    asked for their loss (null: twice frame.slots), and `answer_slots`, uplink slots per answer (0.05). `planned`:
    `frame_limit`, the most slots that a frame may cost in expectation (null: 1 + frame.slots). `scout`, `merit-push`:
    `horizon`, number of updates over which noise averages out (1). `merit-push`: `push`, number of push slots (2).
    A strategy of your own has its own."""


class Valuation(Section):
    """How the PS values the received updates."""

    method: Part = "kriging"
    """Shapley values by `kriging` (predicts most utilities), `cyclic` (makes no assumptions), `gtg` (the paper's) or
    `exact`; `leave-one-out` or `banzhaf` values; or `package.module:Name`."""
    utility: Literal["loss", "accuracy"] = "loss"
    """Utility of a coalition: minus the validation loss of its averaged model, or its validation accuracy."""
    samples: int | None = Field(None, ge=1, le=MOST)
    """Number of validation samples on which utilities are evaluated, a fixed random subset; null means all."""
    utilities_per_ue: int = Field(5, ge=3, le=100)
    """`kriging`, `banzhaf`: number of coalition utilities to evaluate in a round, per received UE."""
    max_utilities: int = Field(1000, ge=2, le=MOST)
    """`cyclic`: largest number of coalition utilities to evaluate in a round; two blocks are always evaluated."""
    tolerance: float = Field(0.25, gt=0)
    """`cyclic`: stop once the standard error is below this share of the spread of values over UEs."""
    permutations: int = Field(20, ge=1, le=MOST)
    """`gtg`: permutations per round, rounded up to whole sweeps over the received UEs."""
    between: float = Field(1e-4, ge=0)
    """`gtg`: all values are 0 in a round that changed the utility by less than this."""
    within: float = Field(1e-4, ge=0)
    """`gtg`: truncate a permutation once its utility is this close to that of all UEs."""
    options: dict[str, Any] = {}
    """Keyword arguments of a method of your own."""


class Aggregation(Section):
    """How the PS combines the received updates into the next global model."""

    name: Part = "average"
    """`average` (the paper's), `fedavgm`, `fedadam`, `fedyogi`, `median`, `trimmed-mean`, `krum`, `filtered` (weighs
    and filters by noise), or `package.module:Name`."""
    options: dict[str, Any] = {}
    """Options of the aggregation, e.g. `{lr: 0.05}` for `fedadam`."""


class Scenario(Section):
    """All parameters that determine the result of a run."""

    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    """Seed of all random streams. With the same seed, all strategies see the same fleet, noise and contention."""
    rounds: int = Field(60, ge=1, le=MOST)
    """Largest number of global rounds."""
    time_budget: int | None = Field(None, ge=1, le=LARGEST_INT)
    """Number of slots that may be spent; a frame begins only if all its slots fit. Null: no limit."""
    cost_rule: Literal["max", "frame"] = "max"
    """Slots that a frame spends: `max`, those up to the last received one, or `frame`, all that were announced. The
    downlink slot counts in both. Both costs are always recorded."""
    data: Data = Data()
    fleet: Fleet = Fleet()
    frame: Frame = Frame()
    push: Push = Push()
    training: Training = Training()
    strategy: Strategy = Strategy()
    valuation: Valuation = Valuation()
    aggregation: Aggregation = Aggregation()

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**plain(fields))
        except ValidationError as error:
            raise _one_line(error) from None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        slots, pull, ues = self.frame.slots, self.frame.pull, self.data.ues
        check_plain("push.channel_options", self.push.channel_options)
        check_plain("strategy.options", self.strategy.options)
        check_plain("aggregation.options", self.aggregation.options)
        check_plain("valuation.options", self.valuation.options)
        if pull > slots:
            raise InputError("frame.pull", pull, f"at most frame.slots ({slots})")
        if pull > ues:
            raise InputError("frame.pull", pull, f"at most data.ues ({ues}), since a UE is pulled once a frame")
        contenders = self.push.contenders if self.push.arrivals is None else 0
        if contenders == "ready":
            if self.fleet.computing is None:
                raise InputError("push.contenders", "ready", "a number, unless fleet.computing gives times")
        elif contenders > ues - pull:
            raise InputError(
                "push.contenders", contenders, f"at most data.ues - frame.pull ({ues} - {pull} = {ues - pull})"
            )
        if self.time_budget is not None and self.time_budget < slots + 1:
            raise InputError("time_budget", self.time_budget, f"at least one frame, 1 + frame.slots ({slots + 1})")
        if (self.pools_data or self.trains_alone) and self.aggregation.name != "average":
            allowed = f"average where the PS trains, as under {self.strategy.name}"
            raise InputError("aggregation.name", self.aggregation.name, allowed)
        if self.valuation.method == "exact" and min(slots, ues) > MOST_EXACT_PLAYERS:
            raise InputError(
                "valuation.method",
                "exact",
                f"kriging, cyclic or gtg where more than {MOST_EXACT_PLAYERS} UEs may be received "
                f"(frame.slots is {slots})",
            )
        return self

    @property
    def pools_data(self) -> bool:
        """Whether received UEs send their samples instead of model updates, and the PS trains on them."""
        pooled = self.training.pooled
        return self.strategy.name == "centralized" if pooled is None else pooled

    @property
    def own_parts(self) -> list[str]:
        """Names of the parts that are the user's own, `package.module:Name`."""
        names = (
            self.strategy.name,
            self.push.channel,
            self.training.model,
            self.training.optimizer,
            self.valuation.method,
            self.aggregation.name,
        )
        return [name for name in dict.fromkeys(names) if ":" in name]

    @property
    def label(self) -> str:
        """The strategy, its aggregation unless that is the average, and the seed: what displays call a run.

        >>> Scenario(strategy={"name": "scout"}, aggregation={"name": "filtered"}, seed=3).label
        'scout+filtered, seed 3'
        """
        aggregation = "" if self.aggregation.name == "average" else f"+{self.aggregation.name}"
        return f"{self.strategy.name}{aggregation}, seed {self.seed}"

    @property
    def trains_alone(self) -> bool:
        """Whether the PS trains on its own labelled samples, in a single round without any slot."""
        return self.strategy.name == "ps-alone"

    @property
    def most_rounds(self) -> int:
        """Largest number of rounds of this scenario's strategy."""
        return 1 if self.trains_alone else self.rounds

    def part_done(self, rounds: int, slots_spent: int) -> float:
        """Return the part of a run that is done, from 0 to 1, by its rounds or by its time budget.

        >>> Scenario(rounds=4200, time_budget=4200).part_done(100, 2100)
        0.5
        """
        by_budget = 0.0 if self.time_budget is None else slots_spent / self.time_budget
        return min(1.0, max(rounds / self.most_rounds, by_budget))

    def arrival_probability(self, slots: int, ues: int | None = None) -> float:
        """Return the probability that a UE becomes backlogged in a frame of `slots` uplink slots; 0 without `arrivals`.

        Arrivals are a Poisson process and go to UEs at random, so UEs become backlogged independently of one another.

        ues: number of UEs, if not the scenario's.
        """
        return -math.expm1(-(self.push.arrivals or 0.0) * (1 + slots) / (ues or self.data.ues))

    @property
    def expected_contenders(self) -> int | None:
        """Number of UEs that are expected to be backlogged in a frame; None: all that are not pulled."""
        if self.push.arrivals is not None:
            return math.ceil(self.data.ues * self.arrival_probability(self.frame.slots))
        return None if self.push.contenders == "ready" else self.push.contenders

    @property
    def warmup_rounds(self) -> int:
        """Number of rounds of warm-up, by default those in which every UE is pulled once."""
        full_pass = math.ceil(self.data.ues / self.frame.slots)
        return full_pass if self.strategy.warmup is None else self.strategy.warmup

    @property
    def epochs(self) -> int:
        """Local epochs of this scenario's strategy."""
        return self.training.epochs_by_strategy.get(self.strategy.name, self.training.epochs)

    @property
    def digest(self) -> str:
        """Hash of all fields: equal for equal scenarios."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    def difference(self, other: Scenario, apart_from: Iterable[str] = ()) -> str:
        """Return the first field in which another scenario differs as text; empty if they are equal.

        apart_from: fields and sections that may differ.
        """
        ours, theirs = _flat(self.model_dump()), _flat(other.model_dump())
        for key in {**theirs, **ours}:
            ignored = any(f"{key}.".startswith(f"{prefix}.") for prefix in apart_from)
            if ours.get(key) != theirs.get(key) and not ignored:
                return f": its {key} is {ours.get(key)!r}, not {theirs.get(key)!r}"
        return ""

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any], overrides: Mapping[str, object] | None = None) -> Self:
        """Load a preset by name, a YAML file or a mapping of fields, then apply overrides as `replace` does."""
        given = source if isinstance(source, Mapping) else read_fields(source)
        if "grid" in given and not isinstance(source, Mapping):
            raise InputError("scenario", str(source), "a scenario; this is a study, which `fedslot sweep` runs")
        return cls(**_override({str(key): value for key, value in plain(given).items()}, _mapping(overrides or {})))

    def replace(self, overrides: Mapping[str, object]) -> Self:
        """Return a copy with some fields changed, by dotted keys.

        An override of a section changes the fields that it names and no others. Mappings that are values, such as
        `strategy.options`, are replaced as a whole; `strategy.options.exploration` changes one entry.

        >>> changed = Scenario(frame={"slots": 12}).replace({"strategy.name": "fedavg", "frame": {"pull": 3}})
        >>> changed.strategy.name, changed.frame.slots, changed.frame.pull
        ('fedavg', 12, 3)
        """
        return type(self)(**_override(self.model_dump(), _mapping(overrides)))

    def to_yaml(self) -> str:
        """Return the complete scenario as YAML."""
        return write_yaml(self.model_dump())


def _mapping(overrides: object) -> Mapping[str, object]:
    if not isinstance(overrides, Mapping):
        raise InputError("overrides", overrides, 'a mapping of keys to values, such as {"frame.pull": 5}')
    return overrides


def as_scenario(source: Scenario | str | Path | Mapping[str, Any]) -> Scenario:
    """Return a scenario as it is, and load a preset, a YAML file or a mapping of fields."""
    if isinstance(source, Scenario):
        return source
    if not isinstance(source, str | Path | Mapping):
        raise InputError("scenario", source, "a Scenario, a preset or a YAML file")
    return Scenario.load(source)


def presets() -> dict[str, str]:
    """Return the presets of the package by name, each with the first comment line of its file."""
    files = sorted(resources.files("fedslot").joinpath("presets").iterdir(), key=lambda file: file.name[:-5])
    texts = {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in files if file.name.endswith(".yaml")}
    return {name: text.splitlines()[0].lstrip("# ") for name, text in texts.items()}


def preset_text(name: str) -> str:
    """Return the YAML of a preset, with its comments."""
    return resources.files("fedslot").joinpath("presets", f"{name}.yaml").read_text("utf-8")


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


def keys() -> dict[str, str]:
    """Return all dotted keys of a scenario with their documentation."""

    def fields(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, str]]:
        for name, field in model.model_fields.items():
            inner = _section(field.annotation)
            if inner is None or name == "computing":
                yield prefix + name, field.description or ""
            if inner is not None:
                yield from fields(inner, f"{prefix}{name}.")

    return dict(fields(Scenario, ""))


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

    known = keys()
    return {key: text for key, text in fields(schema, "") if key in known}


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


def _section(annotation: object) -> type[BaseModel] | None:
    """Return the section class in the annotation of a field; None if the field is no section."""
    kinds = getattr(annotation, "__args__", (annotation,))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def read_fields(source: str | Path) -> dict[str, Any]:
    """Read the fields of a preset or a YAML file, without validating them."""
    names = list(presets())
    if str(source) in names:
        text = preset_text(str(source))
    else:
        path = Path(source)
        if path.suffix not in {".yaml", ".yml"} or not _is_file(path):
            allowed = f"a preset ({', '.join(names)}) or a YAML file that exists{did_you_mean(str(source), names)}"
            raise InputError("scenario", str(source), allowed)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("scenario", str(source), f"a readable UTF-8 file ({error})") from None
    try:
        fields = parse_yaml(text)
    except YAMLError as error:
        raise InputError("scenario", str(source), f"valid YAML ({error})") from None
    if not isinstance(fields, dict) or not fields:
        raise InputError("scenario", str(source), "a YAML mapping of sections, e.g. `frame: {slots: 20}`")
    return fields if str(source) in names else beside(fields, Path(source).parent)


def beside(fields: Any, folder: Path, key: str = "") -> Any:
    """Return the fields of a YAML file with the paths of data sets relative to its folder; also those of a study."""
    if isinstance(fields, dict):
        return {name: beside(value, folder, f"{key}.{name}") for name, value in fields.items()}
    if isinstance(fields, list):
        return [beside(value, folder, key) for value in fields]
    names_data = key in {".data.dataset", *(f".{part}.data.dataset" for part in ("scenario", "overrides", "grid"))}
    return _own_file(fields, folder) if names_data and isinstance(fields, str) else fields


def _own_file(dataset: str, folder: Path) -> str:
    """Return the absolute path of a data set in a file, relative to a folder; names of others as they are."""
    if not dataset.endswith(".npz"):
        return dataset
    try:
        return str((folder / Path(dataset).expanduser()).absolute())
    except (OSError, RuntimeError):  # the current folder is gone, or there is no such user
        return dataset


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # e.g. a name that is too long
        return False


def split_sections(*overrides: Mapping[str, object]) -> dict[str, object]:
    """Join overrides, the last one of a field counts; that of a section becomes those of the fields that it names.

    >>> split_sections({"frame": {"slots": 12, "pull": 4}}, {"frame": {"pull": 3}, "strategy.options": {"a": 1}})
    {'frame.slots': 12, 'frame.pull': 3, 'strategy.options': {'a': 1}}
    """
    fields: dict[str, object] = {}
    for key, value in itertools.chain.from_iterable(some.items() for some in overrides):
        value = plain(value)
        if isinstance(value, dict) and value and _is_section(str(key)):
            found = split_sections({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            found = {str(key): value}
        for name, inner in found.items():
            fields.pop(name, None)  # so that the last one is also applied last
            fields[name] = inner
    return fields


def _override(fields: dict[str, Any], overrides: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of fields, sections inside one another, with overrides by dotted keys."""
    fields = dict(fields)
    for key, value in split_sections(overrides).items():
        _set(fields, key, value)
    return fields


def _set(fields: dict[str, Any], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for name in sections:
        inner = fields.get(name)
        if inner is None:
            inner = fields[name] = {}
        if not isinstance(inner, dict):
            raise InputError(key, value, "a key of the scenario; `fedslot schema --keys` lists them")
        fields[name] = fields = dict(inner)
    names_no_field = value == {} and _is_section(key)
    if fields.get(last) is None or not names_no_field:
        fields[last] = value


def _is_section(key: str) -> bool:
    """Return whether a dotted key names a section of a scenario."""
    model: type[BaseModel] | None = Scenario
    for name in key.split("."):
        field = model.model_fields.get(name) if model else None
        model = _section(field.annotation) if field else None
    return model is not None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _one_line(error: ValidationError) -> InputError:
    """Convert the first error of pydantic into an `InputError` of one line."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    known = keys()
    parts = [str(part) for part in first["loc"]]
    # pydantic appends the alternatives of a union ("int", "literal['ready']") to the path of the field
    while len(parts) > 1 and not any(key.startswith(".".join(parts)) for key in known):
        if first["type"] == "extra_forbidden":
            break
        parts.pop()
    field = ".".join(parts) or "scenario"
    if first["type"] == "extra_forbidden":
        return _no_such_key(field, first["input"])
    if first["type"] in {"model_type", "model_attributes_type"}:
        section = [key for key in known if key.startswith(f"{field}.")]
        return InputError(field, first["input"], f"a section with keys such as {', '.join(section[:3])}")
    if first["type"] == "invalid_key":
        return InputError(field, first["input"], "a word, as every key is")
    same_field = [e for e in error.errors() if tuple(map(str, e["loc"][: len(parts)])) == tuple(parts)]
    allowed = " or ".join(dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in same_field))
    allowed = allowed.replace("a valid integer", whole_number(first["input"])).replace("a valid ", "a ")
    if isinstance(first["input"], str):
        words = [word for e in same_field for word in re.findall("'([^']+)'", e.get("ctx", {}).get("expected", ""))]
        allowed += did_you_mean(first["input"], words)
    return InputError(field, first["input"], allowed)


def _no_such_key(field: str, value: object) -> InputError:
    """Return the error about a field that does not exist; it names the nearest one, wherever that stands."""
    while isinstance(value, dict) and len(value) == 1:  # a section of one field, as of `-o strateg.name=ucb`
        [(name, value)] = value.items()
        field = f"{field}.{name}"
    near = _nearest_key(field)
    hint = f"did you mean {near}?" if near else "`fedslot schema --keys` lists them"
    return InputError(field, value, f"left out: there is no such key; {hint}")


NAMED = {"data": "data.dataset", "valuation": "valuation.method", "training": "training.model", "push": "push.channel"}
"""The fields that name the part of a section, where they are not called `name`."""


def _nearest_key(field: str) -> str | None:
    """Return the field or section whose last word is nearest to that of a key: of the same section, or else of any.

    A name that no section has, as in `channel.name`, may mean a field that is called like the section given.
    """
    section, _, name = field.rpartition(".")
    known = dict.fromkeys([*keys(), *(key.rpartition(".")[0] for key in keys())])
    if name == "name":
        alike = (key for key in known if "." in key and key.split(".")[-1] == section.split(".")[-1])
        if meant := NAMED.get(section) or next(alike, None):
            return meant
    for group in ([key for key in known if key.rpartition(".")[0] == section], known):
        homes: dict[str, list[str]] = {}  # keys by their last words
        for key in group:
            homes.setdefault(key.rpartition(".")[2], []).append(key)
        if word := nearest(name, homes):
            return nearest(field, homes[word]) or homes[word][0]
    return None
