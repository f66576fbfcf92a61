"""The folder of a study at equal slots: its runs, and the curves of those that are finished.

Curves are kept in a file for each setting. A run whose curve is known is not repeated, also if its folder is gone or
was on another machine; whoever changes a setting or a strategy deletes its curves. Runs of another budget, for a quick
look, are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedslot import __version__
from fedslot.experiments.comparison import Comparison
from fedslot.experiments.curves import load_curves, save_curves
from fedslot.experiments.equal_slots.settings import SETTINGS, Setting, chosen
from fedslot.experiments.tasks import Task
from fedslot.experiments.variants import VariantStudy, make_variants
from fedslot.runs.execution import load
from fedslot.runs.folders import EQUAL_SLOTS, Claim, claim
from fedslot.runs.results import Result
from fedslot.support.errors import RefusedError

CURVES = "curves/equal-slots"
SEED = ", seed "  # between strategy and seed in the name of a run, as in `run_labels`


def claim_folder(out: Path) -> Claim:
    """Take a folder. A study continues the one in it, also with other settings and seeds."""
    return claim(out, EQUAL_SLOTS, f"fedslot: {__version__}\n", lambda: None, resume=True)


def runs_left(key: str, setting: Setting, seeds: int, out: Path) -> dict[str, Task]:
    """Return the runs of a setting that have no curve yet, by name."""
    known = load_curves(_curves_file(out, key, setting))
    study = VariantStudy(setting.scenario(), make_variants(setting.strategies), seeds, setting.targets)
    named = zip(study.run_labels, study.tasks(out / "runs" / _name(key, setting)), strict=True)
    return {name: task for name, task in named if name not in known}


def keep(key: str, setting: Setting, tasks: Mapping[str, Task], out: Path) -> None:
    """Add the curves of finished runs to those of a setting."""
    file = _curves_file(out, key, setting)
    save_curves(load_curves(file) | {name: load(task.folder).rounds for name, task in tasks.items()}, file)


def finished(out: Path, budget: int | None = None) -> dict[str, tuple[Setting, Comparison]]:
    """Return the settings whose curves are in a folder, with their comparisons."""
    found = {}
    for key, setting in chosen(SETTINGS, budget).items():
        file = _curves_file(out, key, setting)
        if runs := load_curves(file):
            found[key] = (setting, _comparison(setting, runs, file))
    return found


def _name(key: str, setting: Setting) -> str:
    return key if setting.budget == SETTINGS[key].budget else f"{key}-{setting.budget}-slots"


def _curves_file(out: Path, key: str, setting: Setting) -> Path:
    return out / CURVES / f"{_name(key, setting)}.csv.gz"


def _comparison(setting: Setting, runs: Mapping[str, pd.DataFrame], file: Path) -> Comparison:
    """Return the comparison with these curves, over the seeds that all strategies have: its results have no models."""
    by_name: dict[str, dict[int, Result]] = {}
    scenario = setting.scenario()
    for run, rounds in runs.items():
        name, _, seed = run.rpartition(SEED)
        by_name.setdefault(name, {})[int(seed)] = Result(scenario.replace({"seed": int(seed)}), rounds)
    seeds = sorted(set.intersection(*map(set, by_name.values())))
    if not seeds:
        raise RefusedError(f"{file} has no seed with runs of all its strategies; measure more seeds, or delete it")
    paired = {name: [results[seed] for seed in seeds] for name, results in by_name.items()}
    return Comparison(scenario, seeds, paired, setting.targets)
