"""The page of the reproduction: published and measured numbers, each with a tolerance and a verdict."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedslot.experiments import ACCURACY, ACCURACY_DIFFERENCE, LEAST, Estimate
from fedslot.planning import PushPeriod, printed_bound
from fedslot.studies.frame import render
from fedslot.studies.reproduction.experiments import (
    CONTENDERS,
    FEW,
    FIGURES,
    FIVE,
    MANY,
    OUT,
    PUBLISHED_EPOCHS,
    PUBLISHED_NAMES,
    Reproduction,
)
from fedslot.studies.reproduction.figures import DRAWINGS, accuracy_after, slots_to
from fedslot.studies.reproduction.published import published

ROUNDS = (20, 50, 100, 199)
# Tolerances. Three seeds determine an accuracy to about one percentage point. Up to round 20, curves are so steep that
# one round changes the accuracy by several points; later, seeds and data splits explain less than two points.
STEEP, SETTLED, COST = 0.05, 0.02, 0.25


@dataclass(frozen=True)
class Check:
    """A published number and the measured one."""

    what: str
    published: float
    measured: Estimate
    tolerance: float
    digits: int = 3

    @property
    def agrees(self) -> bool:
        """Whether the measured mean is within the tolerance of the published number."""
        return abs(self.measured.mean - self.published) <= self.tolerance

    @property
    def surprises(self) -> bool:
        """Whether the published number lies outside of our confidence interval."""
        return self.published < self.measured.low or self.published > self.measured.high

    @property
    def verdict(self) -> str:
        """The result of the check in a few words."""
        if not self.measured.complete:
            return "not reached" if not self.measured.count else f"reached by {self.measured.reached}"
        if self.agrees:
            return "agrees"
        return f"differs by {self.measured.mean - self.published:+.{self.digits}f}"


def publish(reproduction: Reproduction, figures: Sequence[str]) -> list[Path]:
    """Write the figures (PNG and PDF) and `reproduction.md`, and return the paths of all files."""
    drawings = {name: partial(draw, reproduction) for figure in figures for name, draw in DRAWINGS[figure].items()}
    return reproduction.write(drawings, {reproduction.name: write(reproduction, figures)})


def write(reproduction: Reproduction, figures: Iterable[str]) -> str:
    """Return the page as Markdown, for the given figures."""
    wanted = set(figures)
    facts: dict[str, object] = {"figures": wanted, "seeds": reproduction.seeds, "rounds": reproduction.rounds}
    shown = [reproduction.seeds["mnist"], *([reproduction.seeds["cifar10"]] if "fig3" in wanted else [])]
    facts |= {"least": LEAST, "shown": shown, "command": command(reproduction, wanted)}
    if wanted & {"fig2", "fig6", "fig5"}:
        facts |= {"equal": equal_budgets(reproduction), "round0": first_round(reproduction)}
    if "fig2" in wanted:
        facts["fig2"] = fig2_checks(reproduction)
    if "fig3" in wanted:
        facts["cifar"] = {name: accuracy_after(reproduction, name, FEW, dataset="cifar10") for name in FIVE}
    if "fig5" in wanted:
        facts["fig5"] = fig5_checks(reproduction)
    if "fig6" in wanted:
        facts |= {"fig6": fig6_checks(reproduction), "clock": clock_costs(reproduction)}
    facts["cost"] = PushPeriod(10, 10)
    facts["theorem"] = printed_bound(8.0, ues=200, frame_length=20, budget=20, epsilon=0.1, theta=0.1, p=1e-6, q=0.5)
    facts["hours"] = _hours(reproduction)
    filters: dict[str, Callable[..., str]] = {
        "number": lambda value, digits=3: "–" if math.isnan(value) else f"{value:.{digits}f}",
        "estimate": lambda estimate, digits=3: estimate.text(f".{digits}f"),
    }
    return render(__package__, filters, **facts, few=FEW, many=MANY)


def command(reproduction: Reproduction, figures: Collection[str]) -> str:
    """Return the command that makes the page."""
    words = ["fedslot", "reproduce", "all" if set(figures) == set(FIGURES) else " ".join(sorted(figures))]
    if reproduction.rounds is not None:
        words.append("--quick")
    else:
        words += ["--seeds", str(reproduction.seeds["mnist"])]
        if "fig3" in figures:
            words += ["--cifar-seeds", str(reproduction.seeds["cifar10"])]
    if reproduction.out != OUT:
        words += ["--out", shlex.quote(str(reproduction.out))]
    return " ".join(words)


def fig2_checks(reproduction: Reproduction) -> list[Check]:
    """Compare Fig. 2 at four rounds, each curve with the local epochs that match it."""
    paper = published("fig2")
    return [
        Check(
            f"{name}, E = {PUBLISHED_EPOCHS[name]}, round {round}",
            paper[name][round],
            accuracy_after(reproduction, name, PUBLISHED_EPOCHS[name], round),
            STEEP if round <= 20 else SETTLED,
        )
        for name in paper.columns
        for round in ROUNDS
        if round < (reproduction.rounds or len(paper))
    ]


def fig5_checks(reproduction: Reproduction) -> list[Check]:
    """Compare Fig. 5's final accuracies; only those of the proposal depend on the number of contenders."""
    paper = published("fig5")
    checks = []
    for n in CONTENDERS:
        measured = accuracy_after(reproduction, f"Proposed ({n}/10)", MANY)
        checks.append(Check(f"Proposed, N = {n}", paper["Proposed"][n], measured, SETTLED))
    for name in ("GreedyShap (20)", "Only pull", "FedAvg (20)"):
        column, measured = PUBLISHED_NAMES[name], accuracy_after(reproduction, name, PUBLISHED_EPOCHS[name])
        for n in (CONTENDERS[0], CONTENDERS[-1]):
            what = f"{column}, N = {n} (ours does not depend on N)"
            checks.append(Check(what, paper[column][n], measured, SETTLED))
    return checks


def fig6_checks(reproduction: Reproduction) -> list[Check]:
    """Compare Fig. 6's costs, which are summed over UEs."""
    paper, checks = published("fig6"), []
    for name in ("FedAvg (20)", "GreedyShap (20)", "Proposed (10/10)"):
        column = PUBLISHED_NAMES[name]
        for target, cost in zip(paper.index.tolist(), paper[column].tolist(), strict=True):
            if not math.isnan(cost):
                measured = slots_to(reproduction, name, PUBLISHED_EPOCHS[name], target, "sum")
                checks.append(Check(f"{column} to {target:g}", cost, measured, COST * cost, digits=0))
    return checks


def clock_costs(reproduction: Reproduction) -> dict[str, dict[float, Estimate]]:
    """Return the slots by the clock to target accuracies, with many local epochs for all strategies."""
    targets = (0.8, 0.9, 0.92, 0.93)
    return {name: {target: slots_to(reproduction, name, MANY, target, "max") for target in targets} for name in FIVE}


def equal_budgets(reproduction: Reproduction) -> dict[int, dict[str, tuple[Estimate, Estimate]]]:
    """Return the final accuracy of five strategies, and the paired difference to the proposal, by local epochs."""
    table: dict[int, dict[str, tuple[Estimate, Estimate]]] = {}
    for epochs in (FEW, MANY):
        finals = {
            name: {r.scenario.seed: r.final_accuracy for r in reproduction.results("mnist", name, epochs)}
            for name in FIVE
        }
        reference = finals[FIVE[0]]
        table[epochs] = {
            name: (
                Estimate.of([*values.values()], ACCURACY),
                Estimate.of([values[seed] - reference[seed] for seed in values], ACCURACY_DIFFERENCE),
            )
            for name, values in finals.items()
        }
    return table


def first_round(reproduction: Reproduction) -> dict[str, list[Estimate]]:
    """Return the accuracy after round 0, before any valuation, with few and with many local epochs."""
    names = [name for name in FIVE if name != "Centralized (20)"]
    return {name: [accuracy_after(reproduction, name, epochs, 0) for epochs in (FEW, MANY)] for name in names}


def _hours(reproduction: Reproduction) -> dict[str, float]:
    """Return the computing time of the finished runs by data set, in hours of one core."""
    seconds = {name: float(rounds["seconds"].sum()) for name, rounds in reproduction.curves().items()}
    return {
        dataset: sum(spent for name, spent in seconds.items() if name.startswith(f"{dataset}-")) / 3600
        for dataset in reproduction.seeds
    }
