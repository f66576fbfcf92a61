"""What to run: one validated, documented, serialisable description.

A scenario comes from a preset, a YAML file or Python, takes overrides by dotted keys, and writes itself
out completely, so that a run folder says everything about its run.

>>> scenario = Scenario.load("quickstart", {"frame.pull": 5})
>>> scenario.frame.pull, scenario.data.dataset
(5, 'digits')
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedslot.errors import InputError
from fedslot.yaml_text import YAMLError, parse_yaml, write_yaml

MOST = 10**9  # UEs, samples of each, slots, contenders: what 64 bits hold products of
MOST_NESTED = 20  # levels of lists and mappings in options
MOST_EXACT_PLAYERS = 16  # 65,536 utilities a round; each further UE doubles that

Probability = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Strict, immutable, no unknown keys, no NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Data(Section):
    """Which samples there are, and how the UEs share them."""

    dataset: str = "digits"
    """`digits` (embedded), `mnist`, `fashion-mnist`, `cifar10` (fetched once), or the path of an `.npz` file."""
    ues: int = Field(50, ge=1, le=MOST)
    """Number of UEs in the cell, K."""
    alpha: float = Field(1.0, gt=0)
    """Each UE's label mix is drawn from Dirichlet(alpha); small means few labels per UE."""
    sizes: Literal["power-law", "equal"] = "power-law"
    """How much data a UE has: in proportion to draws with density 3x^2 on (0, 1), or equal."""
    samples_per_ue: int | None = Field(None, ge=1, le=MOST)
    """Mean number of samples per UE, drawn by each on its own, so that UEs may share samples and be any number.
    Null deals every training sample to one UE."""
    validation: float = Field(0.5, gt=0, lt=1)
    """Share of the test samples that the PS uses for valuation; the others measure test accuracy."""


class Computing(Section):
    """Computing times: T = I(eps) D c / f with c ~ Gamma(shape, scale) cycles per bit, eps-accurate locally."""

    shape: float = Field(4.0, gt=0)
    """Shape of the Gamma distribution of cycles per bit, kappa."""
    scale: float = Field(5.0, gt=0)
    """Scale of the Gamma distribution of cycles per bit, beta."""
    bits_per_sample: float = Field(6272.0, gt=0)
    """Size of one training sample [bits]; 784 bytes for a grey 28x28 image."""
    frequency: float = Field(1e9, gt=0)
    """Computing frequency of a UE, f [cycles/s]."""
    accuracy: float = Field(0.1, gt=0, lt=1)
    """Local accuracy eps that a UE trains to; the number of local iterations is in proportion to log(1/eps)."""
    iterations: float = Field(10.0, gt=0)
    """Local iterations per unit of log(1/eps)."""
    slot: float = Field(0.1, gt=0)
    """Length of a slot, tau [s]."""
    redraw: bool = False
    """Draw cycles per bit afresh in every frame (true), or once per UE, so that a slow UE stays slow (false)."""


class Fleet(Section):
    """How the UEs differ, apart from their data."""

    stragglers: Fraction = 0.5
    """Share of UEs that train only a number of epochs that is uniform in [1, epochs], drawn once per UE."""
    noise: float = Field(0.1, ge=0, le=1e6)
    """Standard deviation sigma of the noise on updates; UE k of K adds k * sigma / K to every parameter."""
    noise_order: Literal["shuffled", "index"] = "shuffled"
    """Whether the rising noise levels are dealt to the UEs at random or by index."""
    computing: Computing | None = None
    """Computing times; null means that every UE is ready as soon as the frame begins."""


class Frame(Section):
    """One global round: a downlink slot, pull slots, push slots."""

    slots: int = Field(20, ge=1, le=MOST)
    """Uplink slots per frame, M."""
    pull: int = Field(10, ge=0)
    """Slots that are granted to chosen UEs, Q; the remaining M - Q are open to contention."""


class Push(Section):
    """Who contends for the push slots, and on what channel."""

    contenders: Annotated[int, Field(ge=0, le=MOST)] | Literal["ready"] = 10
    """UEs that would push in a frame, drawn among those not pulled; `ready` means all whose computing is done."""
    probability: Probability | Literal["auto"] = 1.0
    """Access barring: contend with this probability; `auto` keeps the load at one contender per push slot."""
    channel: str = "collision"
    """`collision`, `capture`, `crdsa`, `irsa`, or a channel of your own as `package.module:Name`."""
    channel_options: dict[str, Any] = {}
    """Options of the channel, e.g. `{threshold_db: 3.0}` for `capture`."""


class Training(Section):
    """Local training of a UE."""

    model: str = "mlp"
    """`mlp` (50 and 25 hidden units), `cnn`, or `package.module:factory`, called with (input shape, classes)."""
    epochs: int = Field(5, ge=1)
    """Local epochs, E."""
    epochs_by_strategy: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Epochs for particular strategies in place of `epochs`; unequal budgets, as in the published figures."""
    batches: int = Field(5, ge=1)
    """Minibatches per epoch, B."""
    lr: float = Field(0.01, gt=0, le=1e6)
    """Learning rate of SGD."""
    momentum: float = Field(0.5, ge=0, lt=1)
    """Momentum of SGD."""
    proximal: float = Field(0.0, ge=0, le=1e6)
    """FedProx's mu: adds mu / 2 * |w - w_global|^2 to the local loss; 0 is plain FedAvg."""
    optimizer: str = "sgd"
    """`sgd`, or `package.module:factory`, called with (parameters, lr) for each UE and round,
    which returns a `torch.optim.Optimizer`; `momentum` is then not used."""
    engine: Literal["auto", "torch", "compiled"] = "auto"
    """`torch` trains any network; `compiled` (Numba) only plain ReLU perceptrons by SGD on a CPU, faster and equal
    up to rounding; `auto` is `compiled` where that is possible. `summary.json` says which was used."""
    pooled: bool | None = None
    """Whether received UEs send their samples, and the PS trains on all of them, instead of model updates; no update
    can then be valued. Null: only under `centralized`."""
    device: str = "cpu"
    """Where PyTorch computes: `cpu`, `cuda`, `cuda:1`."""


class Strategy(Section):
    """Who is granted the pull slots."""

    name: str = "push-pull"
    """`push-pull` (the paper's), `greedy-shap`, `only-pull`, `ucb`, `s-fedavg`, `power-of-choice`, `fedavg`,
    `round-robin`, `centralized`, or `package.module:Name`."""
    warmup: int | None = Field(None, ge=0)
    """First rounds in which all slots pull: a full pass over the UEs, then greedy. Null: just the full pass. Of
    `push-pull`, `only-pull` and `greedy-shap`."""
    memory: Annotated[float, Field(ge=0, lt=1)] | Literal["mean"] = 0.5
    """Weight of the old value in the exponential smoothing; `mean` keeps the running mean."""
    share: Probability = 0.1
    """Share of the UEs that send their data to the PS under `centralized`."""
    options: dict[str, Any] = {}
    """Options of this strategy alone. `ucb`: `exploration`, factor of the confidence bonus (1.0). `s-fedavg`:
    `temperature` of the softmax, relative to the spread of values (1.0). `power-of-choice`: `candidates` that are asked
    for their loss (null: twice frame.slots), and `answer_slots`, uplink slots per answer (0.05). Or those of your own
    strategy."""


class Valuation(Section):
    """How the PS values the updates that it received."""

    method: str = "kriging"
    """Shapley values by `kriging` (the default: predicts most utilities), `cyclic` (no assumptions), `gtg` (the
    paper's) or `exact`; `leave-one-out` or `banzhaf` values; or `package.module:Name`."""
    utility: Literal["loss", "accuracy"] = "loss"
    """Utility of a coalition: minus the validation loss of its averaged model, or its validation accuracy."""
    samples: int | None = Field(None, ge=1)
    """Use only this many validation samples for utilities, a fixed random subset; null means all."""
    utilities_per_ue: int = Field(5, ge=3, le=1000)
    """`kriging`, `banzhaf`: number of coalition utilities to evaluate in a round, divided by that of received UEs."""
    max_utilities: int = Field(1000, ge=2)
    """`cyclic`: number of coalition utilities to evaluate in a round at most, if that allows for two blocks."""
    tolerance: float = Field(0.25, gt=0)
    """`cyclic`: stop once the standard error is below this share of the spread of values over UEs."""
    permutations: int = Field(20, ge=1)
    """`gtg`: permutations per round, rounded up to whole sweeps over the received UEs."""
    between: float = Field(1e-4, ge=0)
    """`gtg`: leave a round out (all values 0) if it changed the utility by less than this."""
    within: float = Field(1e-4, ge=0)
    """`gtg`: cut a permutation short once its utility is this close to that of all UEs."""
    options: dict[str, Any] = {}
    """Options of a method of your own, which is called with them as keyword arguments."""


class Aggregation(Section):
    """What the PS makes of the updates that it received."""

    name: str = "average"
    """`average` (the paper's), `fedavgm`, `fedadam`, `fedyogi`, `median`, `trimmed-mean`, `krum`, or
    `package.module:Name`."""
    options: dict[str, Any] = {}
    """Options of the aggregation, e.g. `{lr: 0.05}` for `fedadam`."""


class Scenario(Section):
    """Everything that determines a run's result."""

    seed: int = Field(0, ge=0)
    """Seed of every random stream. Strategies with one seed see the same fleet, noise and contention."""
    rounds: int = Field(60, ge=1)
    """Global rounds at most."""
    time_budget: int | None = Field(None, ge=1)
    """Slots that may be spent; a frame begins only if a whole one still fits. Null: no limit."""
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
            super().__init__(**fields)
        except ValidationError as error:
            raise _one_line(error) from None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        slots, pull, ues = self.frame.slots, self.frame.pull, self.data.ues
        _plain("push.channel_options", self.push.channel_options)
        _plain("strategy.options", self.strategy.options)
        _plain("aggregation.options", self.aggregation.options)
        _plain("valuation.options", self.valuation.options)
        if pull > slots:
            raise InputError("frame.pull", pull, f"at most frame.slots ({slots})")
        if pull > ues:
            raise InputError("frame.pull", pull, f"at most data.ues ({ues}), since a UE is pulled once a frame")
        contenders = self.push.contenders
        if contenders == "ready":
            if self.fleet.computing is None:
                raise InputError("push.contenders", "ready", "a number, unless fleet.computing gives times")
        elif contenders > ues - pull:
            raise InputError(
                "push.contenders", contenders, f"at most data.ues - frame.pull ({ues} - {pull} = {ues - pull})"
            )
        if self.time_budget is not None and self.time_budget < slots + 1:
            raise InputError("time_budget", self.time_budget, f"at least one frame, 1 + frame.slots ({slots + 1})")
        if self.pools_data and self.aggregation.name != "average":
            allowed = f"average where the PS pools the data, as under {self.strategy.name}"
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
        """Whether received UEs send their samples, on which the PS itself trains, instead of model updates."""
        pooled = self.training.pooled
        return self.strategy.name == "centralized" if pooled is None else pooled

    @property
    def epochs(self) -> int:
        """Local epochs of this scenario's strategy."""
        return self.training.epochs_by_strategy.get(self.strategy.name, self.training.epochs)

    @property
    def digest(self) -> str:
        """A fingerprint: equal for equal scenarios, wherever they came from."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    def difference(self, other: Scenario, apart_from: Iterable[str] = ()) -> str:
        """The first field in which another scenario differs, in words; empty if there is none."""
        ours, theirs = _flat(self.model_dump()), _flat(other.model_dump())
        for key in {**theirs, **ours}:
            ignored = any(f"{key}.".startswith(f"{prefix}.") for prefix in apart_from)
            if ours.get(key) != theirs.get(key) and not ignored:
                return f": its {key} is {ours.get(key)!r}, not {theirs.get(key)!r}"
        return ""

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any], overrides: Mapping[str, object] | None = None) -> Self:
        """Take a preset by name, a YAML file or a mapping of fields, then apply overrides by dotted keys."""
        given = source if isinstance(source, Mapping) else read_fields(source)
        fields = {str(key): value for key, value in given.items()}
        for key, value in (overrides or {}).items():
            _set(fields, key, value)
        return cls(**fields)

    def replace(self, overrides: Mapping[str, object]) -> Self:
        """A copy with some fields changed, by dotted keys.

        >>> Scenario().replace({"seed": 3, "strategy.name": "fedavg"}).strategy.name
        'fedavg'
        """
        fields = self.model_dump()
        for key, value in overrides.items():
            _set(fields, key, value)
        return type(self)(**fields)

    def to_yaml(self) -> str:
        """The complete scenario, every field, in the order of the documentation."""
        return write_yaml(self.model_dump())


def presets() -> dict[str, str]:
    """Names of the presets in the package, each with the first comment line of its file."""
    files = sorted(resources.files("fedslot").joinpath("presets").iterdir(), key=lambda file: file.name[:-5])
    texts = {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in files if file.name.endswith(".yaml")}
    return {name: text.splitlines()[0].lstrip("# ") for name, text in texts.items()}


def preset_text(name: str) -> str:
    """The YAML of a preset, comments included."""
    return resources.files("fedslot").joinpath("presets", f"{name}.yaml").read_text("utf-8")


def parse_overrides(words: Iterable[str]) -> dict[str, object]:
    """Turn `key=value` words into overrides; values are read as YAML.

    >>> parse_overrides(["frame.pull=5", "strategy.memory=mean"])
    {'frame.pull': 5, 'strategy.memory': 'mean'}
    """
    overrides: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputError("-o", word, "of the form key=value, e.g. frame.pull=5")
        try:
            overrides[key.strip()] = parse_yaml(value)
        except YAMLError:
            raise InputError(key, value, "a YAML value: a number, a word, true, false, null, [a, b]") from None
    return overrides


def keys() -> dict[str, str]:
    """Every dotted key of a scenario with its documentation, for completion and help."""

    def walk(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, str]]:
        for name, field in model.model_fields.items():
            inner = _section(field.annotation)
            if inner is None or name == "computing":
                yield prefix + name, field.description or ""
            if inner is not None:
                yield from walk(inner, f"{prefix}{name}.")

    return dict(walk(Scenario, ""))


def _section(annotation: object) -> type[BaseModel] | None:
    kinds = getattr(annotation, "__args__", (annotation,))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def read_fields(source: str | Path) -> dict[str, Any]:
    """The fields that a preset or a YAML file gives, not yet checked."""
    names = list(presets())
    if str(source) in names:
        text = preset_text(str(source))
    else:
        path = Path(source)
        if path.suffix not in {".yaml", ".yml"} or not _is_file(path):
            close = difflib.get_close_matches(str(source), names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError("scenario", str(source), f"a preset ({', '.join(names)}) or a YAML file that exists{hint}")
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("scenario", str(source), f"a readable UTF-8 file ({error})") from None
    try:
        fields = parse_yaml(text)
    except YAMLError as error:
        raise InputError("scenario", str(source), f"valid YAML ({error})") from None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise InputError("scenario", str(source), "a YAML mapping of sections, e.g. `frame: {slots: 20}`")
    return fields


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # say, a name that is too long
        return False


def _set(fields: dict[str, Any], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for name in sections:
        inner = fields.get(name)
        if inner is None:
            inner = fields[name] = {}
        if not isinstance(inner, dict):
            raise InputError(key, value, "a key of the scenario; `fedslot schema --keys` lists them")
        fields[name] = fields = dict(inner)
    fields[last] = value


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _plain(field: str, value: object, depth: int = 0) -> None:
    """Refuse what cannot be written to a file and read back as it was."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value) | all(type(key) is int for key in value):
        inside: Iterable[object] = value.values()
    elif isinstance(value, list):
        inside = value
    elif value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return
    else:
        inside, depth = (), MOST_NESTED
    if depth >= MOST_NESTED:
        raise InputError(field, value, "plain: numbers, words, true, false, null, and lists and mappings of these")
    for inner in inside:
        _plain(field, inner, depth + 1)


def _one_line(error: ValidationError) -> InputError:
    """The first of pydantic's complaints, as one line in our words."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    known = keys()
    parts = [str(part) for part in first["loc"]]
    # pydantic appends the alternatives of a union ("int", "literal['ready']") to the path; keep the field
    while len(parts) > 1 and not any(key.startswith(".".join(parts)) for key in known):
        if first["type"] == "extra_forbidden":
            break
        parts.pop()
    field = ".".join(parts) or "scenario"
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(field, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else "; `fedslot schema --keys` lists them"
        return InputError(field, first["input"], f"left out: there is no such key{hint}")
    if first["type"] in {"model_type", "model_attributes_type"}:
        section = [key for key in known if key.startswith(f"{field}.")]
        return InputError(field, first["input"], f"a section with keys such as {', '.join(section[:3])}")
    if first["type"] == "invalid_key":
        return InputError(field, first["input"], "a word, as every key is")
    same_field = [e for e in error.errors() if tuple(map(str, e["loc"][: len(parts)])) == tuple(parts)]
    allowed = " or ".join(dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in same_field))
    return InputError(
        field, first["input"], allowed.replace("a valid integer", "a whole number").replace("a valid ", "a ")
    )
