"""The comparisons at equal slots: a cell each, the strategies that are compared in it, and the targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedslot import InputError, Scenario
from fedslot.experiments import Choice, VariantStudy, make_variants
from fedslot.support import one_of

FIRST_SEED = 200  # no default was chosen after a look at runs of this seed or a later one
FORMER_SEED = 20  # of settings whose runs take hours; variants of `filtered` were compared on seeds 20 to 22
BUDGET = 4200  # slots: 200 frames of 20 uplink slots and a downlink slot
REFERENCE = "greedy-shap"
WINNERS = ("merit-push+filtered", "scout+filtered")
PAPER = (REFERENCE, "push-pull", "fedavg")
SHORT = "fedavg{frame.slots: 2, frame.pull: 2}"  # frames as short as those of the winners, and nothing else
SHORT_GREEDY = (
    "greedy-shap{frame.slots: 2, frame.pull: 2, strategy.warmup: null}",
    "greedy-shap{frame.slots: 5, frame.pull: 5, strategy.warmup: null}",
)
CONTROL = "ps-alone"
PEERS = ("planned", "ucb", "s-fedavg", "power-of-choice", "only-pull", "round-robin")
SCHEDULERS = ("merit-push", "scout", *PAPER, *PEERS)
AGGREGATIONS = ("average", "fedavgm", "fedadam", "fedyogi", "median", "trimmed-mean", "krum", "filtered")


@dataclass(frozen=True)
class Setting:
    """One comparison.

    title: its heading on the page. preset, overrides: the cell.
    strategies: as `fedslot.compare` takes them. targets: accuracies to reach. budget: slots of each run.
    group: `main` and `robust` settings are shown by different tables, and so are those of `airtime` and `time`, beside
    the best of another setting, `beside`; `table` is one.
    """

    title: str
    preset: str
    overrides: Mapping[str, Any]
    strategies: tuple[Choice, ...]
    targets: tuple[float, ...]
    budget: int = BUDGET
    group: str = "main"
    first_seed: int = FIRST_SEED
    beside: str = ""

    def scenario(self) -> Scenario:
        """Return the scenario of the first seed, without a strategy of its own."""
        fixed = {
            "seed": self.first_seed,
            "rounds": self.budget,
            "time_budget": self.budget,
            "valuation.name": "kriging",
        }
        return Scenario.load(self.preset, {**fixed, **self.overrides})

    def study(self, seeds: int = 1) -> VariantStudy:
        """Return the variants that are compared."""
        return VariantStudy(self.scenario(), make_variants(self.strategies), seeds, self.targets)

    @property
    def labels(self) -> list[str]:
        """The labels of the strategies."""
        return [variant.label for variant in make_variants(self.strategies)]


def _mnist(labels: int | None, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"data.validation_samples": labels, **(more or {})}


def _fashion(labels: int | None, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return _mnist(labels, {"data.dataset": "fashion-mnist", **(more or {})})


def _cifar(labels: int | None, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Utilities on 500 of 5000 labelled samples, as in the preset, or on all of fewer."""
    return _mnist(labels, {"valuation.samples": 500 if labels is None else None, **(more or {})})


BITS = {
    "merit-push+filtered": 0.5,
    "scout+filtered": 0.5,
    "greedy-shap": 0.5,
    "push-pull": 0.5,
    "fedavg": 2,
    "fedavg+fedyogi{frame.slots: 5, frame.pull: 5}": 2,
}  # bits per parameter of the updates of each strategy, the best of 0.5, 1, 2 and 4 on seed 0
CLEAN_BITS = {"merit-push+filtered": 0.2, "scout+filtered": 0.2, "greedy-shap": 0.5, "fedavg": 2}
SLOW = (5, 20, 100)  # slots of training, the mean over all UEs
MODES = ("asynchronous", "synchronous")
FEW = 200  # labelled samples of the PS
MAIN = (*WINNERS, *PAPER, CONTROL)
CLEAN = {"fleet.noise": 0.0}
CLEAN_PEERS = (*WINNERS, REFERENCE, "fedavg", SHORT, CONTROL)
ROBUST = (*WINNERS, REFERENCE, CONTROL)
CHARGED = {"cost_rule": "frame", "rounds": BUDGET}  # all announced slots; frames may be shorter than a slot


def _compressed(strategy: str, bits: float) -> Mapping[str, Any]:
    """Return a strategy whose updates have so many bits per parameter, and whose broadcast models have 4."""
    codecs = {
        section: {"name": "quantise", "options": {"bits": size, "coding": "range"}}
        for section, size in (("compression", bits), ("broadcast_compression", 4))
    }
    return {f"{strategy}, {bits} bits": {**make_variants(strategy)[0].overrides, **codecs}}


def _slow(strategy: str, slots: int, mode: str) -> Mapping[str, Any]:
    """Return a strategy whose UEs train for so many slots on average."""
    fields = {"fleet.computing": {"mean_slots": slots}, "mode": mode}
    return {f"{strategy}, {slots} slots, {mode}": {**make_variants(strategy)[0].overrides, **fields}}


def _robust(title: str, change: Mapping[str, Any], targets: tuple[float, ...] = (0.85, 0.9)) -> Setting:
    """Return MNIST with few labels and one change."""
    overrides = _mnist(FEW, change)
    return Setting(title, "paper", overrides, ROBUST, targets, group="robust", first_seed=FORMER_SEED)


SETTINGS: dict[str, Setting] = {
    "mnist-200": Setting(
        "MNIST, 200 labelled samples",
        "paper",
        _mnist(FEW),
        (*MAIN, *SHORT_GREEDY),
        (0.85, 0.9, 0.92),
    ),
    "mnist-5000": Setting(
        "MNIST, 5000 labelled samples", "paper", _mnist(None), MAIN, (0.85, 0.9, 0.92), first_seed=FORMER_SEED
    ),
    "mnist-200-clean": Setting(
        "MNIST, 200 labelled samples, no noise", "paper", _mnist(FEW, CLEAN), CLEAN_PEERS, (0.9, 0.92, 0.95)
    ),
    "fashion-200": Setting(
        "Fashion-MNIST, 200 labelled samples", "paper", _fashion(FEW), (*MAIN, *SHORT_GREEDY), (0.75, 0.78, 0.8)
    ),
    "fashion-5000": Setting(
        "Fashion-MNIST, 5000 labelled samples", "paper", _fashion(None), MAIN, (0.75, 0.78, 0.8), first_seed=FORMER_SEED
    ),
    "fashion-200-clean": Setting(
        "Fashion-MNIST, 200 labelled samples, no noise",
        "paper",
        _fashion(FEW, CLEAN),
        CLEAN_PEERS,
        (0.78, 0.8, 0.83),
        first_seed=FORMER_SEED,
    ),
    "cifar10-200": Setting(
        "CIFAR-10 with the CNN, 200 labelled samples",
        "paper-cifar10",
        _cifar(FEW),
        ROBUST,
        (0.35, 0.4, 0.45),
        first_seed=FORMER_SEED,
    ),
    "cifar10-5000": Setting(
        "CIFAR-10 with the CNN, 5000 labelled samples",
        "paper-cifar10",
        _cifar(None),
        ROBUST,
        (0.35, 0.4, 0.45),
        first_seed=FORMER_SEED,
    ),
    "cifar10-200-clean": Setting(
        "CIFAR-10 with the CNN, 200 labelled samples, no noise",
        "paper-cifar10",
        _cifar(FEW, CLEAN),
        CLEAN_PEERS,
        (0.4, 0.45, 0.5),
        first_seed=FORMER_SEED,
    ),
    "airtime": Setting(
        "MNIST, 200 labelled samples, updates of fewer bits",
        "paper",
        _mnist(FEW, CHARGED),
        tuple(_compressed(strategy, bits) for strategy, bits in BITS.items()),
        (0.85, 0.9, 0.92),
        budget=105,
        group="airtime",
        beside="mnist-200",
    ),
    "airtime-clean": Setting(
        "MNIST, 200 labelled samples, no noise, updates of fewer bits",
        "paper",
        _mnist(FEW, CLEAN | CHARGED),
        tuple(_compressed(strategy, bits) for strategy, bits in CLEAN_BITS.items()),
        (0.9, 0.92, 0.95),
        budget=105,
        group="airtime",
        beside="mnist-200-clean",
    ),
    "airtime-cifar10": Setting(
        "CIFAR-10 with the CNN, 200 labelled samples, updates of fewer bits",
        "paper-cifar10",
        _cifar(FEW, CHARGED),
        tuple(_compressed(strategy, BITS[strategy]) for strategy in (WINNERS[0], REFERENCE)),
        (0.35, 0.4, 0.45),
        budget=105,
        group="airtime",
        beside="cifar10-200",
        first_seed=FORMER_SEED,
    ),
    "time": Setting(
        "MNIST, 200 labelled samples, UEs that train for a time",
        "paper",
        _mnist(FEW, CHARGED),
        tuple(_slow(name, slots, mode) for slots in SLOW for name in (WINNERS[0], REFERENCE) for mode in MODES),
        (0.85, 0.9),
        budget=2100,
        group="time",
        beside="mnist-200",
    ),
    "skewed": _robust("label mixes of alpha = 0.1", {"data.alpha": 0.1}, (0.8, 0.85)),
    "half-noisy": _robust("half of the UEs clean, half with noise 0.1", {"fleet.noise_law": "half"}),
    "equal-noise": _robust("noise 0.03 on all UEs", {"fleet.noise_law": "equal", "fleet.noise": 0.03}),
    "many-ues": _robust("1000 UEs", {"data.ues": 1000}, (0.8, 0.85)),
    "capture": _robust("capture channel", {"push.channel": "capture"}),
    "irsa": _robust("IRSA channel", {"push.channel": "irsa"}),
    "arrivals": _robust("on average, a UE becomes backlogged every two slots", {"push.arrivals": 0.5}),
    "table": Setting(
        "Scheduler x aggregation",
        "paper",
        _mnist(FEW),
        tuple(f"{name}+{aggregation}" for name in SCHEDULERS for aggregation in AGGREGATIONS),
        (0.85, 0.9),
        budget=2100,
        group="table",
        first_seed=FORMER_SEED,
    ),
}


def chosen(names: Iterable[str], budget: int | None = None) -> dict[str, Setting]:
    """Return the settings of these names, all if there are none; budget: replaces theirs, for a quick look."""
    wanted = list(names) or list(SETTINGS)
    for name in wanted:
        if name not in SETTINGS:
            raise InputError("setting", name, one_of(name, SETTINGS))
    return {name: replace(SETTINGS[name], budget=budget or SETTINGS[name].budget) for name in wanted}
