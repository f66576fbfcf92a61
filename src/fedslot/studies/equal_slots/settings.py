"""The comparisons at equal slots: a cell each, the strategies that are compared in it, and the targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedslot import InputError, Scenario
from fedslot.experiments import VariantStudy, make_variants
from fedslot.support import one_of

FIRST_SEED = 20  # the defaults of `scout`, `merit-push` and `filtered` were chosen on seeds below
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
    group: `main` and `robust` settings are shown by different tables, and `table` is one.
    """

    title: str
    preset: str
    overrides: Mapping[str, Any]
    strategies: tuple[str, ...]
    targets: tuple[float, ...]
    budget: int = BUDGET
    group: str = "main"

    def scenario(self) -> Scenario:
        """Return the scenario of the first seed, without a strategy of its own."""
        fixed = {"seed": FIRST_SEED, "rounds": self.budget, "time_budget": self.budget, "valuation.name": "kriging"}
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


FEW = 200  # labelled samples of the PS
MAIN = (*WINNERS, *PAPER, CONTROL)
CLEAN = {"fleet.noise": 0.0}
CLEAN_PEERS = (*WINNERS, REFERENCE, "fedavg", SHORT, CONTROL)
ROBUST = (*WINNERS, REFERENCE, CONTROL)


def _robust(title: str, change: Mapping[str, Any], targets: tuple[float, ...] = (0.85, 0.9)) -> Setting:
    """Return MNIST with few labels and one change."""
    return Setting(title, "paper", _mnist(FEW, change), ROBUST, targets, group="robust")


SETTINGS: dict[str, Setting] = {
    "mnist-200": Setting(
        "MNIST, 200 labelled samples",
        "paper",
        _mnist(FEW),
        (*MAIN, *SHORT_GREEDY, *PEERS),
        (0.85, 0.9, 0.92),
    ),
    "mnist-5000": Setting("MNIST, 5000 labelled samples", "paper", _mnist(None), MAIN, (0.85, 0.9, 0.92)),
    "mnist-200-clean": Setting(
        "MNIST, 200 labelled samples, no noise", "paper", _mnist(FEW, CLEAN), CLEAN_PEERS, (0.9, 0.92, 0.95)
    ),
    "fashion-200": Setting(
        "Fashion-MNIST, 200 labelled samples", "paper", _fashion(FEW), (*MAIN, *SHORT_GREEDY), (0.75, 0.78, 0.8)
    ),
    "fashion-5000": Setting("Fashion-MNIST, 5000 labelled samples", "paper", _fashion(None), MAIN, (0.75, 0.78, 0.8)),
    "fashion-200-clean": Setting(
        "Fashion-MNIST, 200 labelled samples, no noise", "paper", _fashion(FEW, CLEAN), CLEAN_PEERS, (0.78, 0.8, 0.83)
    ),
    "cifar10-200": Setting(
        "CIFAR-10 with the CNN, 200 labelled samples", "paper-cifar10", _cifar(FEW), ROBUST, (0.35, 0.4, 0.45)
    ),
    "cifar10-5000": Setting(
        "CIFAR-10 with the CNN, 5000 labelled samples", "paper-cifar10", _cifar(None), ROBUST, (0.35, 0.4, 0.45)
    ),
    "cifar10-200-clean": Setting(
        "CIFAR-10 with the CNN, 200 labelled samples, no noise",
        "paper-cifar10",
        _cifar(FEW, CLEAN),
        CLEAN_PEERS,
        (0.4, 0.45, 0.5),
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
    ),
}


def chosen(names: Iterable[str], budget: int | None = None) -> dict[str, Setting]:
    """Return the settings of these names, all if there are none; budget: replaces theirs, for a quick look."""
    wanted = list(names) or list(SETTINGS)
    for name in wanted:
        if name not in SETTINGS:
            raise InputError("setting", name, one_of(name, SETTINGS))
    return {name: replace(SETTINGS[name], budget=budget or SETTINGS[name].budget) for name in wanted}
