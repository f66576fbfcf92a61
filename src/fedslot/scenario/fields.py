"""Scenarios: a scenario has all parameters of a run, validated and documented.

It comes from a preset, a YAML file or Python, with overrides by dotted keys. A run folder holds the complete scenario,
so that the run can be repeated.

>>> scenario = Scenario.load("quickstart", {"frame.pull": 5})
>>> scenario.frame.pull, scenario.data.dataset
(5, 'digits')
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.parts.registry import part_name
from fedslot.scenario.aliases import read_aliases
from fedslot.scenario.hints import one_line
from fedslot.scenario.overrides import flatten, merge_overrides, nest
from fedslot.scenario.sources import beside, read_fields
from fedslot.support.errors import InputError
from fedslot.support.plain import LARGEST_INT, check_plain
from fedslot.support.yaml_text import write_yaml

MOST = 10**9  # numbers of UEs, samples, rounds, epochs: products of two of them fit into 64 bits
MOST_SLOTS = 10**6  # of a frame: each of them is held in memory, and written to frames.csv
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


class PartSection(Section):
    """A part that is chosen by name, with its options; the name alone may stand for the section."""

    kind: ClassVar[Kind[Any]]
    name: Part
    options: dict[str, Any] = {}
    """Options of the part: the keyword parameters of its class or function."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) or callable(given) else given

    def make(self, *arguments: Any) -> Any:
        """Build the part from the arguments of its kind."""
        return self.kind.make(self.name, self.options, *arguments)

    def bind(self) -> Callable[..., Any]:
        """Return the class or function with its options set, to be called more than once."""
        return self.kind.bind(self.name, self.options)


def _name(kind: Kind[Any], default: str, more: str = "") -> Any:
    """Return the field with the name of a part, whose description lists the built-in ones."""
    names = ", ".join(f"`{name}`" for name in kind)
    return Field(default, description=f"Name of {kind.noun}: {names}, or `package.module:Name`. {more}".strip())


def _options(example: str) -> Any:
    """Return the field with the options of a part, whose description has an example."""
    return Field({}, description=f"Options of the part: the keyword parameters of its class or function. {example}")


class PartitionPart(PartSection):
    """How the training samples are divided among the UEs."""

    kind = kinds.PARTITIONS
    name: Part = _name(
        kind,
        "dirichlet",
        "Only `dirichlet` goes by `data.alpha`, `data.sizes` and `data.samples_per_ue`. With `iid`, UEs get equal "
        "numbers of random samples. With `label-quantity`, each has `labels_per_ue` labels (2), and shares the samples "
        "of a label equally with the others that have it; with `label-dirichlet`, the shares of a label are drawn from "
        "a Dirichlet distribution (`alpha`, 0.5), again until each UE has `least` samples (10): both as in NIID-Bench. "
        "Your own function is called with (labels, ues, rng), and returns the owner of each sample or a list of index "
        "arrays.",
    )


class NoiseLawPart(PartSection):
    """How the noise differs between UEs."""

    kind = kinds.NOISE_LAWS
    name: Part = _name(
        kind,
        "linear",
        "The standard deviation of UE k of 0..K-1 is k * sigma / K with `linear`, as in the paper; with `half`, 0 for "
        "one half of the UEs and sigma for the other; with `equal`, sigma. Your own function is called with (ues, "
        "sigma), and returns an array (K,).",
    )


class ChannelPart(PartSection):
    """The channel of the push slots."""

    kind = kinds.CHANNELS
    name: Part = _name(kind, "collision")
    options: dict[str, Any] = _options("E.g. `{threshold_db: 3.0}` for `capture`.")


class ModelPart(PartSection):
    """The network that is trained."""

    kind = kinds.MODELS
    name: Part = _name(
        kind,
        "mlp",
        "`mlp` has 50 and 25 hidden units. `cnn` and `lenet` take images; `cnn1d` and `gru` take series, of which a "
        "file has inputs (n, time, channels). With `gru`, `filtered` weighs updates, but cannot filter them. Your own "
        "factory is called with (input shape, number of outputs) and returns an `nn.Module`.",
    )


class TaskPart(PartSection):
    """What the targets of the samples are, and the loss and the score of models."""

    kind = kinds.TASKS
    name: Part = _name(
        kind,
        "classification",
        "`classification` trains by cross-entropy, and reports the `score` `accuracy` or `macro-f1`. `regression` "
        "predicts numbers: it trains by the `loss` `mse` or `mae`, and reports `rmse`, `mae` or `r2`. Your own is a "
        "subclass of `fedslot.LearningTask`.",
    )
    options: dict[str, Any] = _options("E.g. `{loss: mae, score: mae}` for `regression`.")


class OptimizerPart(PartSection):
    """The optimiser of local training."""

    kind = kinds.OPTIMIZERS
    name: Part = _name(
        kind,
        "sgd",
        "Your own factory is called with (parameters, lr) for each UE and round, and returns a "
        "`torch.optim.Optimizer`; `momentum` is then not used.",
    )


class DataSection(Section):
    """The data set, and how its samples are divided among the UEs."""

    dataset: str = "digits"
    """`digits` (embedded), `mnist`, `fashion-mnist`, `cifar10`, `smartwatch` (fetched once), or the path of an `.npz`
    file. In a YAML file, the path is relative to that file, elsewhere to the current folder."""
    ues: int = Field(50, ge=1, le=MOST)
    """Number of UEs in the cell, K."""
    partition: PartitionPart = PartitionPart()
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
    def _absolute(cls, dataset: str) -> Any:
        """Make the path of a file absolute, so that it means the same file in whatever folder it is read."""
        return beside(dataset, Path(), ".data.dataset")


LAW_SCALE = ("scale", "bits_per_sample", "frequency", "accuracy", "iterations")
"""Fields of the law of computing times that do nothing but scale them."""


class ComputingSection(Section):
    """Computing times of the UEs: T = I(eps) D c / f with c ~ Gamma(shape, scale) cycles per bit.

    `mean_slots` sets their mean, and `times` replaces the law by a file.
    """

    mean_slots: float | None = Field(None, ge=0, le=MOST)
    """Mean computing time of the fleet's UEs [slots]: times follow the same law, with the scale that this takes. Null:
    they follow from the fields of the law."""
    times: str | None = None
    """Path of a CSV file with computing times, which ends in .csv, with the columns `ue` (from 0) and `slots` or
    `seconds`; every UE has a row, or several with `redraw`. In a YAML file, the path is relative to that file,
    elsewhere to the current folder. Null: times follow the law."""
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
    """Whether times are drawn for every training. False: once per UE, so that a slow UE stays slow."""

    @field_validator("times")
    @classmethod
    def _absolute(cls, times: str | None) -> Any:
        """Make the path of a file absolute, as that of a data set."""
        return beside(times, Path(), ".fleet.computing.times")

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        law = ("shape", *LAW_SCALE)
        for given, others in (("times", ("mean_slots", *law)), ("mean_slots", LAW_SCALE)):
            if getattr(self, given) is None:
                continue
            for name in others:
                value = getattr(self, name)
                if value != type(self).model_fields[name].default:
                    raise InputError(f"fleet.computing.{name}", value, f"left out beside {given}, which replaces it")
        return self


class AttackPart(PartSection):
    """Lying UEs: who they are, when they lie, and what they send."""

    kind = kinds.ATTACKS
    name: Part = _name(kind, "sign-flip", "Your own attack is a subclass of `fedslot.Attack`.")
    options: dict[str, Any] = _options("E.g. `{scale: 10}` for `sign-flip`.")
    share: Fraction = 0.2
    """Share of the UEs that lie; drawn from the seed, so that they are the same for all strategies and attacks."""
    from_round: int = Field(0, ge=0, le=MOST)
    """The first round in which liars lie. Before it they train and send their own updates."""
    probability: Probability = 1.0
    """Probability with which a liar lies in a round; it sends its own update in the others."""
    chain: bool = False
    """Whether updates of liars pass the update chain. False: in no round, so that they have neither noise nor clipping,
    and look like the cleanest UEs."""
    at_limit: bool = False
    """Whether lies are as long as the PS of a deployment accepts: ten times the norm of the initial model."""
    claimed_noise: float | None = Field(None, ge=0, le=1e6)
    """The noise that liars claim where UEs push by merit; with 0 they are never barred. Null: that of
    `fleet.noise_law`."""


class AvailabilityPart(PartSection):
    """When UEs are there, and when they are switched off or out of reach."""

    kind = kinds.AVAILABILITIES
    name: Part = _name(
        kind,
        "markov",
        "With `markov`, each UE is there and away in turns, for exponentially distributed times; `csv` reads when. "
        "Your own class is called with (ues, seed, slot_seconds), and has a method `at(time)`, which returns who is "
        "there (K,) at a time in slots.",
    )
    options: dict[str, Any] = _options("E.g. `{on: 200, off: 50}` for `markov`.")

    @field_validator("options")
    @classmethod
    def _absolute(cls, options: dict[str, Any]) -> Any:
        """Make the path of a file absolute, as that of a data set."""
        return beside(options, Path(), ".fleet.availability.options")


class FleetSection(Section):
    """Differences between the UEs, apart from their data."""

    stragglers: Fraction = 0.5
    """Share of UEs that train fewer epochs: a number uniform in [1, epochs], drawn once per UE."""
    noise: float = Field(0.1, ge=0, le=1e6)
    """Standard deviation sigma of the Gaussian noise that UEs add to every parameter of their updates;
    `noise_law` says how it differs between UEs."""
    noise_law: NoiseLawPart = NoiseLawPart()
    noise_order: Literal["shuffled", "index"] = "shuffled"
    """Whether the noise levels are assigned to the UEs at random or by index."""
    computing: ComputingSection | None = None
    """Computing times; null means that every UE is ready as soon as the frame begins."""
    availability: AvailabilityPart | None = None
    """When UEs are there, e.g. `{name: markov, options: {on: 200, off: 50}}`. The PS knows who is there when a frame
    begins, and pulls nobody else; who is away neither hears a broadcast nor pushes. Null: all are always there."""
    attack: AttackPart | None = None
    """Lying UEs, e.g. `{name: sign-flip, share: 0.05, options: {scale: 10}}`; null means that all are honest."""


class FrameSection(Section):
    """A frame is one global round: a downlink slot, pull slots and push slots."""

    slots: int = Field(20, ge=1, le=MOST_SLOTS)
    """Uplink slots per frame, M."""
    pull: int = Field(10, ge=0)
    """Uplink slots that are granted to chosen UEs, Q; the other M - Q are open to contention."""
    order: bool | None = None
    """Whether the PS goes by computing times, which UEs report with their updates: it pulls slower UEs in later slots,
    waits before the first slot for as long as that yields more updates per slot, and leaves UEs that cannot be ready to
    push. False: the order of the strategy, as in the paper. Null: only with `fleet.computing`."""


class PushSection(Section):
    """The contenders for the push slots, and the channel."""

    contenders: Annotated[int, Field(ge=0, le=MOST)] | Literal["ready"] = 10
    """Number of backlogged UEs in a frame, drawn from those that are not pulled. `ready`: all UEs whose computing is
    done. Not used with `arrivals`."""
    arrivals: float | None = Field(None, gt=0, le=MOST_ARRIVALS)
    """Mean number of UEs per slot that become backlogged; each stays backlogged until it is received. So a short frame
    has fewer new contenders than a long one. Null: `contenders` in every frame, even if it is short."""
    retries: int | None = Field(None, ge=0, le=MOST)
    """Number of times that a UE pushes again after a push that was not received; then it gives up. With `contenders`,
    UEs that collided are among the backlogged UEs of the next frame, and others are drawn up to that number; UEs that
    did not push are drawn anew. Null: 0 with `contenders`, as in the paper, and no limit with `arrivals`."""
    probability: Probability | Literal["auto"] = 1.0
    """Access barring: a backlogged UE contends with this probability. With `auto` the PS controls it: it estimates the
    number of backlogged UEs from the received updates and the collided slots of each frame, and lets so many contend as
    the channel receives best, one per push slot with `collision`. With `arrivals`, a fixed probability can jam a cell
    for ever."""
    channel: ChannelPart = ChannelPart()


class RatesPart(PartSection):
    """How the rates of the UEs' links differ."""

    kind = kinds.RATES
    name: Part = _name(
        kind,
        "equal",
        "A rate is relative to that for which a slot is made: a UE of rate 0.5 needs two slots for an update. `disc` "
        "draws rates and outage probabilities from distances, shadowing and a table of rates; `csv` reads them. Your "
        "own function is called with (ues, rng), and returns the rates (K,), or a pair of rates and outage "
        "probabilities.",
    )
    options: dict[str, Any] = _options("E.g. `{path: rates.csv}` for `csv`.")

    @field_validator("options")
    @classmethod
    def _absolute(cls, options: dict[str, Any]) -> Any:
        """Make the path of a file absolute, as that of a data set."""
        return beside(options, Path(), ".radio.rates.options")


class RadioSection(Section):
    """Rates and losses of the links; length, bits and energy of the slots of the radio, for seconds and joules."""

    rates: RatesPart = RatesPart()
    outage: float = Field(0.0, ge=0, lt=1)
    """Probability that a transmission is lost, pulled ones included, beside collisions and what `rates` says."""
    duty_cycle: float | None = Field(None, gt=0, le=1)
    """Share of the time in which a UE may send, as the law asks for in some bands: after a transmission it is silent
    until this share is kept. Null: no limit."""

    slot_seconds: float | None = Field(None, ge=1e-9, le=1e9)
    """Length of a slot of the radio [s]. Null: seconds are not computed, unless `fleet.computing` gives the length."""
    bits_per_slot: float | None = Field(None, ge=1e-9, le=1e15)
    """Bits that a slot of the radio carries. An update takes as many slots of the radio as its bits need, which
    together are one slot of the frame. Null: an update takes one."""
    downlink_bits: float | None = Field(None, ge=1e-9, le=1e15)
    """Bits that a slot of the radio carries in the downlink, which sends the model; null means as in the uplink."""
    bits_per_parameter: int = Field(32, ge=1, le=1024)
    """Bits of a parameter in an update, where `bits_per_slot` is given."""
    send_joules: float | None = Field(None, ge=0, le=1e9)
    """Energy of a UE for a slot of the radio in which it sends [J]. Null: joules are not computed."""
    listen_joules: float | None = Field(None, ge=0, le=1e9)
    """Energy of a UE for a slot of the radio in which it listens [J]: all UEs listen to the downlink. Null means 0."""
    compute_joules: float | None = Field(None, ge=0, le=1e9)
    """Energy of a UE for a second of computing [J], with the times of `fleet.computing`. It counts for UEs that send,
    or are pulled but not ready. Null: computing is not counted."""
    joules_per_ue: float | None = Field(None, gt=0, le=1e12)
    """Energy of each UE for the whole run [J]. What a frame costs a UE is known only after it: the frame in which it
    uses up its energy is its last one, and from then on it is silent. Null: no limit."""


class TrainingSection(Section):
    """Local training of a UE."""

    task: TaskPart = TaskPart()
    model: ModelPart = ModelPart()
    epochs: int = Field(5, ge=1, le=MOST)
    """Local epochs, E."""
    epochs_by_strategy: dict[str, Annotated[int, Field(ge=1, le=MOST)]] = {}
    """Epochs by strategy, for those that do not train `epochs`: unequal budgets, as in the published figures."""
    batches: Annotated[int, Field(ge=1, le=MOST)] | None = 5
    """Minibatches per epoch, B. Null with `batch_size`."""
    batch_size: int | None = Field(None, ge=1, le=MOST)
    """Samples per minibatch, in place of `batches`; the last minibatch of an epoch has the rest. Null: an epoch has
    `batches` minibatches, whatever the number of samples."""
    lr: float = Field(0.01, gt=0, le=1e6)
    """Learning rate of SGD."""
    momentum: float = Field(0.5, ge=0, lt=1)
    """Momentum of SGD."""
    proximal: float = Field(0.0, ge=0, le=1e6)
    """FedProx's mu: adds mu / 2 * |w - w_global|^2 to the local loss; 0 is plain FedAvg."""
    optimizer: OptimizerPart = OptimizerPart()
    engine: Literal["auto", "torch", "compiled"] = "auto"
    """`torch` trains any network. `compiled` (Numba) trains only plain ReLU perceptrons by SGD on a CPU; it is faster
    and gives the same models up to rounding. `auto`: `compiled` if possible. `summary.json` names the one used."""
    pooled: bool | None = None
    """Whether received UEs send their samples instead of model updates, and the PS trains on these samples. Then no
    update can be valued. Null: only under `centralized`."""
    ps: Literal["alone", "start", "join"] | None = None
    """What the PS trains on its labels. Null: nothing. `alone`: before the first round, a model of its own, as under
    `ps-alone`. It is reported until the federated model is better, by a standard error, on labels that neither was
    trained on; nothing else changes. With fewer than two labels of some class, it is not reported. `start`: besides,
    federated training starts from a model that the PS trained on a part of its labels. Only the others then validate:
    half of them, but at most 500, or a fifth if that is more. `join`: besides, the PS trains on that part from each
    broadcast, as one more UE that needs no slot; only `filtered` takes its updates. `start` and `join` are for
    thousands of labels."""
    device: str = "cpu"
    """Device of PyTorch: `cpu`, `cuda`, `cuda:1`."""

    @model_validator(mode="before")
    @classmethod
    def _size_alone(cls, given: Any) -> Any:
        sized = isinstance(given, dict) and given.get("batch_size") is not None
        return {"batches": None, **given} if sized else given

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.batches is not None and self.batch_size is not None:
            raise InputError("training.batches", self.batches, "null with training.batch_size")
        if self.batches is None and self.batch_size is None:
            raise InputError("training.batches", None, "a number, unless training.batch_size is given")
        return self


class StrategyPart(PartSection):
    """The strategy, which grants the pull slots."""

    kind = kinds.STRATEGIES
    name: Part = _name(kind, "push-pull", "`push-pull` is the paper's; under `ps-alone` no UE is heard.")
    warmup: int | None = Field(None, ge=0, le=MOST)
    """Number of warm-up rounds, in which all slots pull: every UE once, then the most valued. Null: until every UE
    was pulled once. Used by `push-pull`, `planned`, `only-pull` and `greedy-shap`."""
    memory: Annotated[float, Field(ge=0, lt=1)] | Literal["mean"] = 0.5
    """Weight of the old value in the exponential smoothing; `mean`: the running mean instead."""
    share: Probability = 0.1
    """Share of the UEs that send their data to the PS under `centralized`."""
    options: dict[str, Any] = _options("E.g. `{exploration: 2.0}` for `ucb`.")


class ValuationPart(PartSection):
    """How the PS values the received updates."""

    kind = kinds.VALUATIONS
    name: Part = _name(
        kind,
        "kriging",
        "Shapley values by `kriging` (predicts most utilities), `cyclic` (makes no assumptions), `gtg` (the paper's) "
        "or `exact`; `leave-one-out` or `banzhaf` values.",
    )
    utility: Literal["loss", "accuracy"] = "loss"
    """Utility of a coalition: minus the validation loss of its averaged model, or, where that is the score of
    `training.task`, its validation accuracy."""
    samples: int | None = Field(None, ge=1, le=MOST)
    """Number of validation samples on which utilities are evaluated, a fixed random subset; null means all."""
    options: dict[str, Any] = _options("E.g. `{utilities_per_ue: 8}` for `kriging`.")


class AggregationPart(PartSection):
    """How the PS combines the received updates into the next global model."""

    kind = kinds.AGGREGATIONS
    name: Part = _name(kind, "average", "`average` is the paper's; `filtered` weighs and filters by noise.")
    options: dict[str, Any] = _options("E.g. `{lr: 0.05}` for `fedadam`.")


class CompressionPart(PartSection):
    """How the change of a model is written as bytes."""

    kind = kinds.CODECS
    name: Part = _name(kind, "quantise", "Your own scheme is a subclass of `fedslot.Codec`.")
    options: dict[str, Any] = _options("E.g. `{bits: 2}` for `quantise`.")


class UpdateCompressionPart(CompressionPart):
    """How updates are compressed."""

    feedback: bool = False
    """Error feedback: a UE adds the error that compression left in its last received update to its next one."""


class LinkPart(PartSection):
    """A link of the update chain."""

    kind = kinds.LINKS
    name: Part = _name(kind, "noise")
    options: dict[str, Any] = _options("E.g. `{norm: 1.0}` for `clip`.")


class CostRulePart(PartSection):
    """The slots that a frame spends."""

    kind = kinds.COST_RULES
    name: Part = _name(
        kind,
        "max",
        "With `max`, those up to the last received one; with `frame`, all that were announced. Your own function is "
        "called with the `Receipt` of a frame, and returns a whole number of slots, at least 1. The downlink slot "
        "counts in both. The costs by `max` and `frame` are always recorded.",
    )


class StalenessPart(PartSection):
    """What the PS makes of updates that were trained from an older model than the present one."""

    kind = kinds.STALENESS
    name: Part = _name(kind, "ps", "Your own is a subclass of `fedslot.Staleness`.")
    options: dict[str, Any] = _options("E.g. `{weight: 0.6, law: hinge}` for `fedasync`.")
    most: int = Field(100, ge=0, le=10_000)
    """Largest age of an update [frames]: older ones are dropped where they were trained, and refused by the PS."""


class Scenario(Section):
    """All parameters that determine the result of a run."""

    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    """Seed of all random streams. With the same seed, all strategies see the same fleet, noise and contention."""
    rounds: int = Field(60, ge=1, le=MOST)
    """Largest number of global rounds."""
    time_budget: int | None = Field(None, ge=1, le=LARGEST_INT)
    """Number of slots that may be spent; a frame begins only if all its slots fit. Null: no limit."""
    seconds_budget: float | None = Field(None, gt=0)
    """Seconds on the air that may be spent; a frame begins only if all its slots fit. Null: no limit."""
    joules_budget: float | None = Field(None, gt=0)
    """Joules that the UEs may spend in all. What a frame costs is known only after it: the first frame that uses up the
    budget is the last one. Null: no limit."""
    cost_rule: CostRulePart = CostRulePart()
    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """`synchronous`: in each frame, UEs train from its broadcast, and what is not ready by its slot is lost, as in the
    paper. `asynchronous`: frames wait for nobody. A UE trains from the broadcast that orders an update, or whenever it
    is idle, for as long as that takes, and then holds its update, which may be of an older model when it is sent."""
    data: DataSection = DataSection()
    fleet: FleetSection = FleetSection()
    frame: FrameSection = FrameSection()
    push: PushSection = PushSection()
    radio: RadioSection = RadioSection()
    training: TrainingSection = TrainingSection()
    chain: list[LinkPart] = Field([LinkPart()], max_length=16)
    """What happens to an update between training and the PS, in this order: a list of links, each a name or
    `{name, options}`. `noise` adds the UE's Gaussian noise, `clip` limits the norm of the update; your own link is a
    subclass of `fedslot.Link`."""
    compression: UpdateCompressionPart | None = None
    """How updates are compressed, after the chain; a slot is then as long as a compressed update. Null: an update has
    32 bits for each parameter."""
    broadcast_compression: CompressionPart | None = None
    """How the model is compressed for the downlink. Null: it is not, and takes as many bits as a full update."""
    strategy: StrategyPart = StrategyPart()
    valuation: ValuationPart = ValuationPart()
    aggregation: AggregationPart = AggregationPart()
    staleness: StalenessPart = StalenessPart()

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**read_aliases(nest(type(self), merge_overrides(type(self), fields))))
        except ValidationError as error:
            raise one_line(type(self), error) from None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        slots, pull, ues = self.frame.slots, self.frame.pull, self.data.ues
        for part in self.parts:
            check_plain(f"{part.kind.section}.options", part.options)
        if pull > slots:
            raise InputError("frame.pull", pull, f"at most frame.slots ({slots})")
        if pull > ues:
            raise InputError("frame.pull", pull, f"at most data.ues ({ues}), since a UE is pulled once a frame")
        contenders = self.push.contenders if self.push.arrivals is None else 0
        if contenders == "ready":
            if self.fleet.computing is None:
                raise InputError("push.contenders", "ready", "a number, unless fleet.computing gives times")
        elif contenders > ues - pull:
            allowed = f"at most data.ues - frame.pull ({ues} - {pull} = {ues - pull})"
            raise InputError("push.contenders", contenders, allowed)
        if self.time_budget is not None and self.time_budget < slots + 1:
            raise InputError("time_budget", self.time_budget, f"at least one frame, 1 + frame.slots ({slots + 1})")
        self._check_costs()
        self._check_times()
        if (self.pools_data or self.trains_alone) and self.aggregation.name != "average":
            allowed = f"average where the PS trains, as under {self.strategy.name}"
            raise InputError("aggregation.name", self.aggregation.name, allowed)
        if self.pools_data and self.fleet.attack is not None:
            raise InputError("fleet.attack", self.fleet.attack.name, "null where UEs send samples, not updates")
        if self.ps_joins and self.aggregation.name in kinds.AGGREGATIONS and self.aggregation.name != "filtered":
            raise InputError("training.ps", "join", f"null, alone or start with {self.aggregation.name}; use filtered")
        if self.valuation.name == "exact" and min(slots, ues) > MOST_EXACT_PLAYERS:
            where = f"where more than {MOST_EXACT_PLAYERS} UEs may be received (frame.slots is {slots})"
            raise InputError("valuation.name", "exact", f"kriging, cyclic or gtg {where}")
        return self

    def _check_times(self) -> None:
        """Refuse what does not go with the mode, or with UEs without computing times."""
        if self.frame.order and self.fleet.computing is None:
            raise InputError("frame.order", True, "false or null without fleet.computing")
        if not self.is_asynchronous:
            return
        if self.pools_data or self.trains_alone:
            raise InputError("mode", self.mode, f"synchronous under {self.strategy.name}, which has no stale updates")
        if self.frame.order is False:
            raise InputError("frame.order", False, "true or null with mode=asynchronous, in which UEs are ordered")

    def _check_costs(self) -> None:
        """Refuse budgets and fields of the radio that cannot be counted without others."""
        radio, computing = self.radio, self.fleet.computing
        if computing is not None and radio.slot_seconds is not None:
            allowed = "null with fleet.computing, whose slot is the length of a slot of the frame"
            raise InputError("radio.slot_seconds", radio.slot_seconds, allowed)
        for name, value, needed, given in (
            ("radio.downlink_bits", radio.downlink_bits, "radio.bits_per_slot", radio.bits_per_slot),
            ("radio.listen_joules", radio.listen_joules, "radio.send_joules", radio.send_joules),
            ("radio.compute_joules", radio.compute_joules, "radio.send_joules", radio.send_joules),
            ("radio.compute_joules", radio.compute_joules, "fleet.computing", computing),
            ("radio.joules_per_ue", radio.joules_per_ue, "radio.send_joules", radio.send_joules),
            ("seconds_budget", self.seconds_budget, "radio.slot_seconds", radio.slot_seconds or computing),
            ("joules_budget", self.joules_budget, "radio.send_joules", radio.send_joules),
        ):
            if value is not None and given is None:
                raise InputError(name, value, f"null without {needed}")

    @property
    def is_asynchronous(self) -> bool:
        """Whether frames wait for no training."""
        return self.mode == "asynchronous"

    @property
    def orders(self) -> bool:
        """Whether the PS decides by computing times whom it pulls in which slot."""
        given = self.frame.order
        return self.is_asynchronous or (self.fleet.computing is not None if given is None else given)

    @property
    def pools_data(self) -> bool:
        """Whether received UEs send their samples instead of model updates, and the PS trains on them."""
        pooled = self.training.pooled
        return self.strategy.name == "centralized" if pooled is None else pooled

    @property
    def ps_trains(self) -> bool:
        """Whether the PS trains a model on its labels, beside the federated one."""
        return self.training.ps is not None and not self.pools_data and not self.trains_alone

    @property
    def ps_starts(self) -> bool:
        """Whether the federated training starts from a model that the PS trained on a part of its labels."""
        return self.ps_trains and self.training.ps != "alone"

    @property
    def ps_joins(self) -> bool:
        """Whether the PS trains on these labels in every round, as one more UE."""
        return self.ps_trains and self.training.ps == "join"

    @property
    def own_parts(self) -> list[str]:
        """Names of the parts that are not built in: the user's own, `package.module:Name`, and those of packages."""
        return list(dict.fromkeys(part.name for part in self.parts if part.name not in part.kind))

    @property
    def parts(self) -> tuple[PartSection, ...]:
        """All parts that are chosen by name."""
        training = self.training
        learning = (training.task, training.model, training.optimizer, self.valuation, self.aggregation)
        access = (self.strategy, self.push.channel, self.cost_rule, self.staleness)
        given = (self.compression, self.broadcast_compression, self.fleet.availability, self.fleet.attack)
        optional = tuple(part for part in given if part is not None)
        laws = (self.fleet.noise_law, self.data.partition, self.radio.rates)
        return (*access, *learning, *self.chain, *laws, *optional)

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

    @property
    def rule_label(self) -> str:
        """The cost rule in names of measures: `max`, `frame`, or `own` for a function."""
        return self.cost_rule.name if self.cost_rule.name in kinds.COST_RULES else "own"

    def part_done(self, rounds: int, slots_spent: float, seconds: float = 0.0, joules: float = 0.0) -> float:
        """Return the part of a run that is done, from 0 to 1, by its rounds or by the budget that is used up most.

        >>> Scenario(rounds=4200, time_budget=4200).part_done(100, 2100)
        0.5
        """
        return min(1.0, max(rounds / self.most_rounds, *self.used(slots_spent, seconds, joules).values(), 0.0))

    def used(self, slots: float, seconds: float, joules: float) -> dict[str, float]:
        """Return the part of each budget that is spent, by its field; empty without budgets."""
        spent = {"time_budget": slots, "seconds_budget": seconds, "joules_budget": joules}
        return {name: value / budget for name, value in spent.items() if (budget := getattr(self, name)) is not None}

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
        ours, theirs = flatten(self.model_dump()), flatten(other.model_dump())
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
        return cls(**merge_overrides(cls, given, _mapping(overrides or {})))

    def replace(self, overrides: Mapping[str, object]) -> Self:
        """Return a copy with some fields changed, by dotted keys.

        An override of a section changes the fields that it names and no others. Mappings that are values, such as
        `strategy.options`, are replaced as a whole; `strategy.options.exploration` changes one entry.

        >>> changed = Scenario(frame={"slots": 12}).replace({"strategy.name": "fedavg", "frame": {"pull": 3}})
        >>> changed.strategy.name, changed.frame.slots, changed.frame.pull
        ('fedavg', 12, 3)
        """
        return type(self)(**merge_overrides(type(self), self.model_dump(), _mapping(overrides)))

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
