"""The runs of the attacks, and what was measured in those that are finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from fedslot.experiments import Task
from fedslot.runs import ATTACK_STUDY
from fedslot.studies.attacks.settings import ATTACKS, MOST_SEEDS, SETTINGS, attack_on
from fedslot.studies.curves import SUCCESS, load_curves
from fedslot.studies.frame import StudyFolder

CHANCE = 0.1  # accuracy that counts for a run that diverged: all data sets have ten classes


@dataclass(frozen=True)
class AttackStudy(StudyFolder):
    """Attacks on strategies; each cell has a file of curves."""

    name: ClassVar = "attacks"
    kind: ClassVar = ATTACK_STUDY

    def tasks(self, key: str, attacks: Iterable[str], seeds: int) -> dict[str, Task]:
        """Return the runs of a cell that have no curve yet, by name."""
        study = SETTINGS[key].study(min(seeds, MOST_SEEDS.get(key, seeds)))
        finished, tasks = load_curves(self.curves_file(key)), {}
        for title in attacks:
            honest = study.tasks(self.out / "runs" / f"{key}-{title.replace(' ', '-').replace(',', '')}")
            for label, task in zip(study.run_labels, honest, strict=True):
                attack = attack_on(label, title)
                if (name := f"{title}: {label}") not in finished:
                    tasks[name] = Task(task.scenario.replace({"fleet.attack": attack}), task.folder)
        return tasks

    def measured(self, key: str) -> pd.DataFrame:
        """Return the final accuracy and the attack's success in each finished run; diverged ones have no success."""
        rows = []
        for run, rounds in load_curves(self.curves_file(key)).items():
            title, _, label = run.partition(": ")
            strategy, _, seed = label.rpartition(", seed ")
            last = rounds.iloc[-1]
            accuracy, success = float(last["test_accuracy"]), float(last.get(SUCCESS, float("nan")))
            rows.append((title, strategy, int(seed), accuracy, success))
        table = pd.DataFrame(rows, columns=["attack", "strategy", "seed", "accuracy", "success"])
        table["diverged"] = table["accuracy"].isna()
        table["accuracy"] = table["accuracy"].fillna(CHANCE)
        return table[table["attack"].isin(ATTACKS)]
