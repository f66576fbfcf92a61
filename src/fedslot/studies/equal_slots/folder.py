"""The runs of the settings at equal slots, and their comparisons from the curves of those that are finished.

Curves are stored in a file for each setting. Runs of another budget, for a quick look, have files of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from fedslot import Comparison, RefusedError, Result
from fedslot.experiments import Task
from fedslot.runs import EQUAL_SLOTS
from fedslot.studies.curves import load_curves
from fedslot.studies.equal_slots.settings import SETTINGS, Setting, chosen
from fedslot.studies.frame import StudyFolder


@dataclass(frozen=True)
class EqualSlots(StudyFolder):
    """The comparisons at equal slots; budget: slots of each run instead of those of its setting."""

    name: ClassVar = "equal-slots"
    kind: ClassVar = EQUAL_SLOTS

    budget: int | None = None

    def curves_of(self, key: str) -> Path:
        """Return the file with the curves of a setting."""
        return self.curves_file(self._folder(key))

    def tasks(self, key: str, seeds: int) -> dict[str, Task]:
        """Return the runs of a setting that have no curve yet, by name."""
        study, finished = chosen([key], self.budget)[key].study(seeds), load_curves(self.curves_of(key))
        named = zip(study.run_labels, study.tasks(self.out / "runs" / self._folder(key)), strict=True)
        return {name: task for name, task in named if name not in finished}

    def comparisons(self) -> dict[str, tuple[Setting, Comparison]]:
        """Return the settings whose curves are in the folder, with their comparisons."""
        comparisons = {}
        for key, setting in chosen(SETTINGS, self.budget).items():
            file = self.curves_of(key)
            if runs := load_curves(file):
                comparisons[key] = (setting, _compare(setting, runs, file))
        return comparisons

    def _folder(self, key: str) -> str:
        return key if self.budget in (None, SETTINGS[key].budget) else f"{key}-{self.budget}-slots"


def _compare(setting: Setting, runs: Mapping[str, pd.DataFrame], file: Path) -> Comparison:
    """Return the comparison with these curves, over the seeds that all strategies have: its results have no models."""
    by_name: dict[str, dict[int, Result]] = {}
    scenario = setting.scenario()
    for run, rounds in runs.items():
        name, _, seed = run.rpartition(", seed ")  # as in `run_labels`
        by_name.setdefault(name, {})[int(seed)] = Result(scenario.replace({"seed": int(seed)}), rounds)
    seeds = sorted(set.intersection(*map(set, by_name.values())))
    if not seeds:
        raise RefusedError(f"{file} has no seed with runs of all its strategies; measure more seeds, or delete it")
    paired = {name: [results[seed] for seed in seeds] for name, results in by_name.items()}
    return Comparison(scenario, seeds, paired, setting.targets)
