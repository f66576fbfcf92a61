"""The runs that the figures need; figures share runs, and each is done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedslot.experiments.curves import load_curves, save_curves
from fedslot.experiments.tasks import Task
from fedslot.runs.execution import load
from fedslot.runs.folders import REPRODUCTION, Claim, claim
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.yaml_text import write_yaml

FEW, MANY = 5, 30  # local epochs that match the published curves of FedAvg and Centralized, and of the others
CONTENDERS = (5, 10, 20, 40)  # Fig. 5's sweep
QUICK_SAMPLES = 200  # validation images for utilities with --quick
OUT = Path("out/reproduction")  # the default folder

CURVES: dict[str, dict[str, object]] = {
    "Proposed (5/10)": {"strategy.name": "push-pull", "push.contenders": 5},
    "Proposed (10/10)": {"strategy.name": "push-pull", "push.contenders": 10},
    "Proposed (20/10)": {"strategy.name": "push-pull", "push.contenders": 20},
    "Proposed (40/10)": {"strategy.name": "push-pull", "push.contenders": 40},
    "GreedyShap (20)": {"strategy.name": "greedy-shap"},
    "FedAvg (20)": {"strategy.name": "fedavg"},
    "Centralized (20)": {"strategy.name": "centralized"},
    "Only pull": {"strategy.name": "only-pull"},
}
PUBLISHED_EPOCHS = {name: FEW if name in {"FedAvg (20)", "Centralized (20)"} else MANY for name in CURVES}
FIG2 = ("Proposed (5/10)", "Proposed (10/10)", "Proposed (20/10)", "GreedyShap (20)", "FedAvg (20)", "Centralized (20)")
FIVE = ("Proposed (10/10)", "GreedyShap (20)", "Only pull", "FedAvg (20)", "Centralized (20)")
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
    equal = {Experiment("mnist", name, epochs) for name in FIVE for epochs in (FEW, MANY)}
    sweep = {Experiment("mnist", f"Proposed ({n}/10)", MANY) for n in CONTENDERS}
    needs = {
        "fig2": as_published | equal,
        "fig3": {Experiment("mnist", name, FEW) for name in FIVE} | {Experiment("cifar10", name, FEW) for name in FIVE},
        "fig5": as_published | equal | sweep,
        "fig6": as_published | equal,
    }
    wanted = set().union(*(needs[figure] for figure in figures))
    return sorted(wanted, key=lambda experiment: (experiment.dataset != "mnist", experiment.epochs, experiment.curve))


@dataclass(frozen=True)
class Reproduction:
    """The folder of the runs, the number of seeds of each experiment, and their length.

    seeds: by data set. rounds: number of rounds with --quick; None for the full length.
    """

    out: Path
    seeds: dict[str, int]
    rounds: int | None = None

    def tasks(self, wanted: Sequence[Experiment]) -> list[Task]:
        """Return the runs of experiments that have no curve yet: all for the first seed, then for the next."""
        known = self.curves()
        return [
            Task(experiment.scenario(self.rounds).replace({"seed": seed}), self.path(experiment, seed))
            for seed in range(max(self.seeds.values()))
            for experiment in wanted
            if seed < self.seeds[experiment.dataset] and experiment.folder(seed) not in known
        ]

    def claim(self, figures: Sequence[str], force: bool = False) -> Claim:
        """Take the folder. A reproduction continues the one in it, also with other figures, seeds and lengths."""
        description = write_yaml({"figures": [*figures], "seeds": self.seeds, "rounds": self.rounds})
        return claim(self.out, REPRODUCTION, description, lambda: None, resume=not force, force=force)

    @property
    def runs(self) -> Path:
        """The folder of all runs; --quick has its own."""
        return self.out / ("runs" if self.rounds is None else f"runs-{self.rounds}-rounds")

    def path(self, experiment: Experiment, seed: int) -> Path:
        """Return the folder of one run."""
        return self.runs / experiment.folder(seed)

    @property
    def curves_file(self) -> Path:
        """The file with the curves of all finished runs."""
        return self.out / "curves" / "reproduction" / f"{self.runs.name}.csv.gz"

    def curves(self) -> dict[str, pd.DataFrame]:
        """Return the rounds of all runs whose curves are kept, by the name of their folder."""
        return load_curves(self.curves_file)

    def keep(self, tasks: Iterable[Task]) -> None:
        """Add the curves of finished runs to those that are kept."""
        save_curves(self.curves() | {task.folder.name: load(task.folder).rounds for task in tasks}, self.curves_file)

    def results(self, dataset: str, curve: str, epochs: int) -> list[Result]:
        """Return the finished runs of an experiment, one per seed."""
        experiment, known = Experiment(dataset, curve, epochs), self.curves()
        names = {seed: experiment.folder(seed) for seed in range(self.seeds[dataset])}
        scenario = experiment.scenario(self.rounds)
        return [Result(scenario.replace({"seed": seed}), known[name]) for seed, name in names.items() if name in known]
