"""The kinds of parts with the built-in ones: a new part is one line here.

Parts are named by their import paths, so that lists of names need none of their modules.
"""

from __future__ import annotations

from typing import Any

from fedslot.parts.kind import Kind

STRATEGIES: Kind[Any] = Kind(
    "strategy",
    "a strategy",
    "fedslot.strategies",
    {
        "fedavg": "fedslot.strategies.fedavg:FedAvg",
        "greedy-shap": "fedslot.strategies.greedy_shap:GreedyShap",
        "push-pull": "fedslot.strategies.push_pull:PushPull",
        "only-pull": "fedslot.strategies.only_pull:OnlyPull",
        "centralized": "fedslot.strategies.centralized:Centralized",
        "round-robin": "fedslot.strategies.round_robin:RoundRobin",
        "ucb": "fedslot.strategies.ucb:UCB",
        "s-fedavg": "fedslot.strategies.s_fedavg:SFedAvg",
        "power-of-choice": "fedslot.strategies.power_of_choice:PowerOfChoice",
        "oort": "fedslot.strategies.oort:Oort",
        "load-split": "fedslot.strategies.load_split:LoadSplit",
        "planned": "fedslot.strategies.planned:Planned",
        "scout": "fedslot.strategies.scout:Scout",
        "merit-push": "fedslot.strategies.merit_push:MeritPush",
        "ps-alone": "fedslot.strategies.ps_alone:PSAlone",
    },
    arguments=("cell",),
    needs=("init", "schedule", "observe", "needs_values"),
    entailed={"ask": ("hear", "overhead")},
)
CHANNELS: Kind[Any] = Kind(
    "push.channel",
    "a channel",
    "fedslot.channels",
    {
        "collision": "fedslot.access.channels:Collision",
        "capture": "fedslot.access.channels:Capture",
        "crdsa": "fedslot.access.channels:crdsa",
        "irsa": "fedslot.access.channels:irsa",
    },
    base="fedslot.access.channels:Channel",
)
AGGREGATIONS: Kind[Any] = Kind(
    "aggregation",
    "an aggregation",
    "fedslot.aggregations",
    {
        "average": "fedslot.aggregation.average:Average",
        "fedavgm": "fedslot.aggregation.fedavgm:FedAvgM",
        "fedbuff": "fedslot.aggregation.fedbuff:FedBuff",
        "fedadam": "fedslot.aggregation.fedadam:FedAdam",
        "fedyogi": "fedslot.aggregation.fedyogi:FedYogi",
        "median": "fedslot.aggregation.median:Median",
        "trimmed-mean": "fedslot.aggregation.trimmed_mean:TrimmedMean",
        "krum": "fedslot.aggregation.krum:Krum",
        "filtered": "fedslot.aggregation.filtered:Filtered",
    },
    needs=("init", "apply"),
)
VALUATIONS: Kind[Any] = Kind(
    "valuation",
    "a valuation method",
    "fedslot.valuations",
    {
        "kriging": "fedslot.valuation.kriging:Kriging",
        "cyclic": "fedslot.valuation.cyclic:Cyclic",
        "gtg": "fedslot.valuation.gtg:GTG",
        "exact": "fedslot.valuation.exact:Exact",
        "leave-one-out": "fedslot.valuation.exact:LeaveOneOut",
        "banzhaf": "fedslot.valuation.kriging:Banzhaf",
    },
    needs=("__call__",),
)
MODELS: Kind[Any] = Kind(
    "training.model",
    "a network",
    "fedslot.models",
    {
        "mlp": "fedslot.learning.models:mlp",
        "cnn": "fedslot.learning.models:cnn",
        "lenet": "fedslot.learning.models:lenet",
        "cnn1d": "fedslot.learning.series:cnn1d",
        "gru": "fedslot.learning.series:gru",
    },
    arguments=("shape", "classes"),
    base="torch.nn:Module",
)
TASKS: Kind[Any] = Kind(
    "training.task",
    "a task",
    "fedslot.tasks",
    {
        "classification": "fedslot.learning.tasks:Classification",
        "regression": "fedslot.learning.tasks:Regression",
    },
    base="fedslot.learning.tasks:LearningTask",
)
OPTIMIZERS: Kind[Any] = Kind(
    "training.optimizer",
    "an optimiser",
    "fedslot.optimizers",
    {"sgd": "fedslot.learning.autograd_training:sgd"},
    arguments=("parameters", "lr"),
    base="torch.optim:Optimizer",
)
NOISE_LAWS: Kind[Any] = Kind(
    "fleet.noise_law",
    "a noise law",
    "fedslot.noise_laws",
    {
        "linear": "fedslot.fleet.noise:linear",
        "half": "fedslot.fleet.noise:half",
        "equal": "fedslot.fleet.noise:equal",
    },
    arguments=("ues", "level"),
)
PARTITIONS: Kind[Any] = Kind(
    "data.partition",
    "a partition",
    "fedslot.partitions",
    {
        "dirichlet": "fedslot.data.partition:dirichlet",
        "iid": "fedslot.data.label_skew:iid",
        "label-quantity": "fedslot.data.label_skew:label_quantity",
        "label-dirichlet": "fedslot.data.label_skew:label_dirichlet",
    },
    arguments=("labels", "ues", "rng"),
)
LINKS: Kind[Any] = Kind(
    "chain",
    "a link of the update chain",
    "fedslot.links",
    {"noise": "fedslot.updates.noise:Noise", "clip": "fedslot.updates.clip:Clip"},
    base="fedslot.updates.chain:Link",
)
CODECS: Kind[Any] = Kind(
    "compression",
    "a compression scheme",
    "fedslot.codecs",
    {
        "quantise": "fedslot.compression.quantise:Quantise",
        "eden": "fedslot.compression.eden:Eden",
        "drive": "fedslot.compression.eden:Drive",
        "top-k": "fedslot.compression.sparse:TopK",
        "rand-k": "fedslot.compression.sparse:RandK",
        "sign": "fedslot.compression.sign:Sign",
    },
    base="fedslot.compression.codec:Codec",
)
STALENESS: Kind[Any] = Kind(
    "staleness",
    "a rule for stale updates",
    "fedslot.staleness",
    {
        "plain": "fedslot.updates.staleness:Plain",
        "fedasync": "fedslot.updates.staleness:FedAsync",
        "discount": "fedslot.updates.staleness:Discount",
        "ps": "fedslot.updates.compensation:PSCompensation",
        "soft": "fedslot.updates.compensation:SoftCompensation",
    },
    base="fedslot.updates.staleness:Staleness",
)
RATES: Kind[Any] = Kind(
    "radio.rates",
    "a law of rates",
    "fedslot.rates",
    {
        "equal": "fedslot.fleet.rates:equal",
        "disc": "fedslot.fleet.rates:disc",
        "csv": "fedslot.fleet.rates_file:listed",
    },
    arguments=("ues", "rng"),
)
AVAILABILITIES: Kind[Any] = Kind(
    "fleet.availability",
    "a law of availability",
    "fedslot.availabilities",
    {
        "markov": "fedslot.fleet.availability:Markov",
        "csv": "fedslot.fleet.availability_file:Listed",
    },
    arguments=("ues", "seed", "slot_seconds"),
    needs=("at",),
)
ATTACKS: Kind[Any] = Kind(
    "fleet.attack",
    "an attack",
    "fedslot.attacks",
    {
        "sign-flip": "fedslot.attacks.own_update:SignFlip",
        "scaled": "fedslot.attacks.own_update:Scaled",
        "gaussian": "fedslot.attacks.own_update:Gaussian",
        "direction": "fedslot.attacks.own_update:Direction",
        "free-rider": "fedslot.attacks.own_update:FreeRider",
        "little-is-enough": "fedslot.attacks.collusion:LittleIsEnough",
        "inner-product": "fedslot.attacks.collusion:InnerProduct",
        "label-flip": "fedslot.attacks.poisoning:LabelFlip",
        "backdoor": "fedslot.attacks.poisoning:Backdoor",
    },
    base="fedslot.attacks:Attack",
)
COST_RULES: Kind[int] = Kind(
    "cost_rule",
    "a cost rule",
    "fedslot.cost_rules",
    {"max": "fedslot.access.clock:cost_max", "frame": "fedslot.access.clock:cost_frame"},
    arguments=("receipt",),
)

KINDS = (
    STRATEGIES,
    CHANNELS,
    AGGREGATIONS,
    VALUATIONS,
    MODELS,
    TASKS,
    OPTIMIZERS,
    NOISE_LAWS,
    PARTITIONS,
    LINKS,
    CODECS,
    STALENESS,
    RATES,
    AVAILABILITIES,
    ATTACKS,
    COST_RULES,
)
