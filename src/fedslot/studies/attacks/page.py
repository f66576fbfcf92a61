"""The page on attacks: the accuracy of each strategy under each attack beside that of honest UEs, losses first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedslot import RefusedError
from fedslot.studies.attacks.folder import AttackStudy
from fedslot.studies.attacks.settings import (
    BACKDOORS,
    RECOMMENDED,
    ROBUST,
    SETTINGS,
    SHARE,
    STRATEGIES,
    TURN,
    TURN_FULL,
)
from fedslot.studies.equal_slots.settings import Setting
from fedslot.studies.frame import render

MOST_LOSS = 0.02  # of accuracy, against honest UEs
MOST_SUCCESS = 0.1  # of a backdoor


@dataclass(frozen=True)
class Attacked:
    """An attack in a cell: means over seeds, by strategy.

    accuracy, success: the latter of backdoors. loss: of accuracy against honest UEs. diverged: share of the runs.
    """

    title: str
    accuracy: Mapping[str, float]
    success: Mapping[str, float]
    loss: Mapping[str, float]
    diverged: Mapping[str, float]

    @property
    def best_robust(self) -> str:
        """The best under this attack of the strategies that the recommended one shall not do worse than."""
        return max(ROBUST, key=lambda name: self.accuracy[name])

    @property
    def behind(self) -> float:
        """By how much the recommended strategy is behind the best of these."""
        return self.accuracy[self.best_robust] - self.accuracy[RECOMMENDED]

    @property
    def keeps(self) -> bool:
        """Whether the recommended strategy loses no more than was aimed at."""
        return self.loss[RECOMMENDED] <= MOST_LOSS and not self.success.get(RECOMMENDED, 0.0) >= MOST_SUCCESS

    @property
    def leads(self) -> bool:
        """Whether no other is ahead of the recommended strategy."""
        return self.behind <= 0


@dataclass(frozen=True)
class Table:
    """The attacks in a cell, losses of the recommended strategy first. honest: accuracies without liars."""

    setting: Setting
    seeds: list[int]
    honest: Mapping[str, float]
    attacks: list[Attacked]


def publish(study: AttackStudy) -> list[Path]:
    """Write `attacks.md` of the attacks that are finished, and return its path."""
    tables = [table for key in SETTINGS if (table := _table(SETTINGS[key], study.measured(key)))]
    if not tables:
        raise RefusedError(f"{study.out} has no attack that all strategies have met, beside their honest runs")
    attacks = [attacked for table in tables for attacked in table.attacks]
    text = render(
        __package__,
        {"accuracy": "{:.3f}".format, "loss": lambda loss: f"{-100 * loss:+z.1f}", "percent": "{:.0%}".format},
        tables=tables,
        strategies=STRATEGIES,
        recommended=RECOMMENDED,
        robust=ROBUST,
        attacks=attacks,
        backdoors=BACKDOORS,
        share=SHARE,
        turn=TURN,
        turn_full=TURN_FULL,
        most_loss=MOST_LOSS,
        most_success=MOST_SUCCESS,
        curves=f"curves/{AttackStudy.name}",
    )
    return study.write({}, {study.name: text})


def _table(setting: Setting, runs: pd.DataFrame) -> Table | None:
    """Return the attacks of a cell that all strategies have met, over the seeds of their honest runs; None: no such."""
    counts = runs.groupby(["attack", "seed"])["strategy"].nunique()
    complete = counts[counts == len(STRATEGIES)].reset_index()
    seeds = set(complete.loc[complete["attack"] == "none", "seed"])
    if not seeds:
        return None
    honest = _means(runs[runs["attack"] == "none"], seeds, "accuracy")
    attacks = []
    for title, mine in runs.groupby("attack", sort=False):
        if title == "none" or not seeds <= set(complete.loc[complete["attack"] == title, "seed"]):
            continue
        accuracy = _means(mine, seeds, "accuracy")
        success = _means(mine, seeds, "success") if title in BACKDOORS else {}
        loss = {name: honest[name] - accuracy[name] for name in STRATEGIES}
        diverged = _means(mine, seeds, "diverged")
        attacks.append(Attacked(str(title), accuracy, success, loss, diverged))
    attacks.sort(key=lambda attacked: -attacked.loss[RECOMMENDED])
    return Table(setting, sorted(seeds), honest, attacks) if attacks else None


def _means(runs: pd.DataFrame, seeds: set[int], column: str) -> dict[str, float]:
    means = runs[runs["seed"].isin(seeds)].groupby("strategy")[column].mean()
    return {str(name): float(mean) for name, mean in means.items()}
