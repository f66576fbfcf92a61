"""The runs that the figures need; figures share runs, and each is done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from fedslot import Result, Scenario
from fedslot.experiments import Task
from fedslot.runs import REPRODUCTION
from fedslot.studies.curves import load_curves
from fedslot.studies.frame import StudyFolder
from fedslot.support import write_yaml

FEW, MANY = 5, 30  # local epochs that match the published curves of FedAvg and Centralized, and of the others
CONTENDERS = (5, 10, 20, 40)  # Fig. 5's sweep
QUICK_SAMPLES = 200  # validation images for utilities with --quick
OUT = Path("out/reproduction")  # the default folder

CURVES: dict[str, dict[str, object]] = {
    **{f"Proposed ({n}/10)": {"strategy.name": "push-pull", "push.contenders": n} for n in CONTENDERS},
    "GreedyShap (20)": {"strategy.name": "greedy-shap"},
    "FedAvg (20)": {"strategy.name": "fedavg"},
    "Centralized (20)": {"strategy.name": "centralized"},
    "Only pull": {"strategy.name": "only-pull"},
}
PUBLISHED_EPOCHS = {name: FEW if name in {"FedAvg (20)", "Centralized (20)"} else MANY for name in CURVES}
FIG2 = ("Proposed (5/10)", "Proposed (10/10)", "Proposed (20/10)", "GreedyShap (20)", "FedAvg (20)", "Centralized (20)")
FIVE = ("Proposed (10/10)", "GreedyShap (20)", "Only pull", "FedAvg (20)", "Centralized (20)")
PUBLISHED_NAMES = {name: name.partition(" (")[0] for name in FIVE}  # in Fig. 5 and Fig. 6
FIGURES = ("fig2", "fig3", "fig5", "fig6")


@dataclass(frozen=True, order=True)
class Experiment:
    """One curve: a data set, a name from `CURVES`, and the number of local epochs."""

    dataset: str
    curve: str
    epochs: int

    def scenario(self, rounds: int | None = None) -> Scenario:
        """Return the scenario, from the preset of the data set; `rounds` shortens it for --quick."""
        preset = "paper" if self.dataset == "mnist" else f"paper-{self.dataset}"
        shorter: dict[str, object] = {} if rounds is None else {"rounds": rounds, "valuation.samples": QUICK_SAMPLES}
        return Scenario.load(preset, {**CURVES[self.curve], "training.epochs": self.epochs, **shorter})

    def folder(self, seed: int) -> str:
        """Return the name of the run folder."""
        word = self.curve.replace(" ", "-").replace("/", "-").replace("(", "").replace(")", "").lower()
        return f"{self.dataset}-{word}-E{self.epochs}-seed{seed}"


def experiments(figures: Iterable[str]) -> list[Experiment]:
    """Return the experiments that the figures need, each once, the quick ones first."""
    as_published = {Experiment("mnist", name, PUBLISHED_EPOCHS[name]) for name in FIG2}
    compared = as_published | {Experiment("mnist", name, epochs) for name in FIVE for epochs in (FEW, MANY)}
    needs = {
        "fig2": compared,
        "fig3": {Experiment(dataset, name, FEW) for dataset in ("mnist", "cifar10") for name in FIVE},
        "fig5": compared | {Experiment("mnist", f"Proposed ({n}/10)", MANY) for n in CONTENDERS},
        "fig6": compared,
    }
    wanted = set().union(*(needs[figure] for figure in figures))
    return sorted(wanted, key=lambda experiment: (experiment.dataset != "mnist", experiment.epochs, experiment.curve))


@dataclass(frozen=True)
class Reproduction(StudyFolder):
    """The number of seeds of each experiment, and the length of the runs.

    seeds: by data set. rounds: number of rounds with --quick; None for the full length.
    """

    name: ClassVar = "reproduction"
    kind: ClassVar = REPRODUCTION

    seeds: dict[str, int]
    rounds: int | None = None

    def tasks(self, wanted: Sequence[Experiment]) -> dict[str, Task]:
        """Return the runs of experiments that have no curve yet, by name: all for the first seed, then for the next."""
        finished = self.curves()
        return {
            name: Task(experiment.scenario(self.rounds).replace({"seed": seed}), self.runs / name)
            for seed in range(max(self.seeds.values()))
            for experiment in wanted
            if seed < self.seeds[experiment.dataset] and (name := experiment.folder(seed)) not in finished
        }

    def describe(self, figures: Sequence[str]) -> str:
        """Return the content of `reproduction.yaml`."""
        return write_yaml({"figures": [*figures], "seeds": self.seeds, "rounds": self.rounds})

    @property
    def runs(self) -> Path:
        """The folder of all runs; --quick has its own."""
        return self.out / ("runs" if self.rounds is None else f"runs-{self.rounds}-rounds")

    @property
    def all_curves(self) -> Path:
        """The file with the curves of all finished runs."""
        return self.curves_file(self.runs.name)

    def curves(self) -> dict[str, pd.DataFrame]:
        """Return the rounds of all finished runs, by the name of their folder."""
        return load_curves(self.all_curves)

    def results(self, dataset: str, curve: str, epochs: int) -> list[Result]:
        """Return the finished runs of an experiment, one per seed."""
        experiment, curves = Experiment(dataset, curve, epochs), self.curves()
        names = {seed: experiment.folder(seed) for seed in range(self.seeds[dataset])}
        scenario = experiment.scenario(self.rounds)
        return [
            Result(scenario.replace({"seed": seed}), curves[name]) for seed, name in names.items() if name in curves
        ]
