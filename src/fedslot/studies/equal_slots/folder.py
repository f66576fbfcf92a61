"""The runs of the settings at equal slots, and their comparisons from the curves of those that are finished.

Curves are kept in a file for each setting. Runs of another budget, for a quick look, are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedslot import Comparison, RefusedError, Result
from fedslot.experiments import Task
from fedslot.runs import EQUAL_SLOTS
from fedslot.studies.curves import load_curves
from fedslot.studies.equal_slots.settings import SETTINGS, Setting, chosen
from fedslot.studies.frame import StudyFolder

NAME = "equal-slots"


def study_folder(out: Path) -> StudyFolder:
    """Return the folder of this study."""
    return StudyFolder(out, NAME, EQUAL_SLOTS)


def curves_file(key: str, setting: Setting, out: Path) -> Path:
    """Return the file with the curves of a setting."""
    return study_folder(out).curves_file(_name(key, setting))


def runs_left(key: str, setting: Setting, seeds: int, out: Path) -> dict[str, Task]:
    """Return the runs of a setting that have no curve yet, by name."""
    study, known = setting.study(seeds), load_curves(curves_file(key, setting, out))
    named = zip(study.run_labels, study.tasks(out / "runs" / _name(key, setting)), strict=True)
    return {name: task for name, task in named if name not in known}


def finished(out: Path, budget: int | None = None) -> dict[str, tuple[Setting, Comparison]]:
    """Return the settings whose curves are in a folder, with their comparisons."""
    comparisons = {}
    for key, setting in chosen(SETTINGS, budget).items():
        file = curves_file(key, setting, out)
        if runs := load_curves(file):
            comparisons[key] = (setting, _comparison(setting, runs, file))
    return comparisons


def _name(key: str, setting: Setting) -> str:
    return key if setting.budget == SETTINGS[key].budget else f"{key}-{setting.budget}-slots"


def _comparison(setting: Setting, runs: Mapping[str, pd.DataFrame], file: Path) -> Comparison:
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
