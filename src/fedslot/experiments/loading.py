"""Load the results in a folder: of a run, a comparison or a sweep, also of one that is not finished."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.grid import GridStudy
from fedslot.experiments.measures import TARGETS, check_targets
from fedslot.experiments.study import Study
from fedslot.experiments.sweeps import NOT_FINISHED, Sweep, table_entry
from fedslot.experiments.variants import VariantStudy
from fedslot.runs import execution as runs
from fedslot.runs.execution import is_finished
from fedslot.runs.folders import COMPARISON, RUN, SWEEP, FolderKind, no_folder
from fedslot.runs.results import Result
from fedslot.support.errors import RefusedError, first_names

_TARGET = re.compile(r"slots_to_([0-9.e-]+)_max")


class NothingFinishedError(RefusedError):
    """The folder holds a comparison or a sweep that has no results yet."""


def load(out: str | Path) -> Result | Comparison | Sweep:
    """Load a run, a comparison or a sweep, whichever the folder holds; a warning says which runs are missing.

    A comparison is paired, so it is loaded without strategies that have no finished run, and without seeds that one of
    the others has not finished; `missing` names the runs that are not finished. In a sweep, they are in `failures`.
    """
    path = Path(out)
    if not path.is_dir():
        raise no_folder(path)
    if (path / COMPARISON.marker).is_file():
        return _load_comparison(path)
    if (path / SWEEP.marker).is_file():
        return _load_sweep(path)
    if (path / RUN.marker).is_file():
        return runs.load(path)
    raise RefusedError(f"{path} holds no run, comparison or sweep")


def read_study(path: Path, kind: FolderKind) -> Study:
    """Return the study of a comparison or a sweep in a folder."""
    return (VariantStudy if kind is COMPARISON else GridStudy).load(path / kind.marker)


def _load_runs(study: Study, path: Path) -> tuple[list[Result | None], list[str]]:
    """Return the finished runs of a study, None for the others, and the names of all run folders."""
    folders = study.folders(path)
    return [runs.load(folder) if is_finished(folder) else None for folder in folders], [f.name for f in folders]


def _load_comparison(path: Path) -> Comparison:
    study = VariantStudy.load(path / COMPARISON.marker)
    results, names = _load_runs(study, path)
    finished: dict[str, dict[int, Result]] = {}
    for index, result in enumerate(results):
        if result is not None:
            finished.setdefault(study.labels[index // study.seeds], {})[result.scenario.seed] = result
    common = [seed for seed in study.all_seeds if all(seed in own for own in finished.values())]
    if not finished or not common:
        raise NothingFinishedError(
            f"{path} holds a comparison without a seed that was finished; continue it with --resume"
        )
    missing = [name for name, result in zip(names, results, strict=True) if result is None]
    _warn(path, missing, len(names), "are not finished")
    paired = {label: [own[seed] for seed in common] for label, own in finished.items()}
    return Comparison(study.scenario, common, paired, study.targets, tuple(missing))


def _load_sweep(path: Path) -> Sweep:
    study = GridStudy.load(path / SWEEP.marker)
    results, names = _load_runs(study, path)
    table = _read_table(path / "runs.csv")
    reasons = _reasons(table, study)
    failures = {index: reasons[index] for index, result in enumerate(results) if result is None}
    failed = [index for index in failures if failures[index] != NOT_FINISHED]
    if len(failed) == len(names):
        raise RefusedError(f"{path} holds a sweep whose runs all failed; {names[0]}: {failures[0]}")
    for indices, what in ((failures.keys() - failed, "are not finished"), (failed, "failed")):
        _warn(path, [names[index] for index in sorted(indices)], len(names), what)
    if len(failures) == len(names):
        raise NothingFinishedError(f"{path} holds a sweep without a finished run; continue it with --resume")
    if table is None:
        return Sweep(study, results, failures, check_targets(TARGETS, study.scenario))
    targets = [float(match[1]) for name in table.columns if (match := _TARGET.fullmatch(name))]
    return Sweep(study, results, failures, tuple(targets))


def _read_table(file: Path) -> pd.DataFrame | None:
    """Return the table of all runs, as text; None if there is none yet."""
    try:
        return pd.read_csv(file, dtype=str, keep_default_na=False) if file.is_file() else None
    except ValueError as error:
        raise RefusedError(f"{file} is damaged ({error}); --resume writes it anew") from None


def _reasons(table: pd.DataFrame | None, study: GridStudy) -> list[str]:
    """Return why each run of a sweep is not finished, as the table of all runs says it."""
    rows = pd.DataFrame() if table is None else table
    rows = rows.reindex(columns=[*study.grid, "seed", "failure"], fill_value="")
    failures = {tuple(map(_as_number, row)): failure for *row, failure in rows.to_numpy().tolist()}
    cases = [(*map(table_entry, each.values()), seed) for each in study.combinations for seed in study.all_seeds]
    return [failures.get(tuple(_as_number(str(value)) for value in case)) or NOT_FINISHED for case in cases]


def _as_number(text: str) -> float | str:
    """Return the number that a text says, or the text; a table may write 5 as 5.0."""
    try:
        return float(text)
    except ValueError:
        return text


def _warn(path: Path, names: Sequence[str], count: int, what: str) -> None:
    if names:
        warnings.warn(f"{path}: {len(names)} of {count} runs {what}: {first_names(names)}", stacklevel=4)
