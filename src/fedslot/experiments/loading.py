"""Load the results in a folder: of a run, a comparison or a sweep, also of one that is not finished."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.grid import GridStudy
from fedslot.experiments.measures import TARGETS
from fedslot.experiments.study import Study
from fedslot.experiments.sweeps import NOT_FINISHED, Sweep, table_entry
from fedslot.experiments.variants import VariantStudy
from fedslot.runs import execution as runs
from fedslot.runs.execution import is_finished
from fedslot.runs.folders import COMPARISON, RUN, SWEEP, Kind, no_folder
from fedslot.runs.results import Result
from fedslot.support.errors import RefusedError, first_names

_TARGET = re.compile(r"slots_to_[0-9.e-]+_max")


class NothingFinishedError(RefusedError):
    """The folder holds a comparison or a sweep from which nothing can be told yet."""


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


def read_study(path: Path, kind: Kind) -> Study:
    """Return the study of a comparison or a sweep in a folder."""
    marker = path / kind.marker
    return VariantStudy.load(marker) if kind is COMPARISON else GridStudy.load(marker)


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
    _warn(path, missing, len(names))
    paired = {label: [own[seed] for seed in common] for label, own in finished.items()}
    return Comparison(study.scenario, common, paired, study.targets, tuple(missing))


def _load_sweep(path: Path) -> Sweep:
    study = GridStudy.load(path / SWEEP.marker)
    results, names = _load_runs(study, path)
    reasons = _reasons(path, study)
    failures = {index: reasons[index] for index, result in enumerate(results) if result is None}
    failed = [index for index in failures if failures[index] != NOT_FINISHED]
    if len(failed) == len(names):
        raise RefusedError(f"{path} holds a sweep whose runs all failed; {names[0]}: {failures[0]}")
    for indices, what in ((failures.keys() - failed, "are not finished"), (failed, "failed")):
        _warn(path, [names[index] for index in sorted(indices)], len(names), what)
    if len(failures) == len(names):
        raise NothingFinishedError(f"{path} holds a sweep without a finished run; continue it with --resume")
    return Sweep(study, results, failures, _targets(path))


def _reasons(path: Path, study: GridStudy) -> list[str]:
    """Return why each run of a sweep is not finished, as `runs.csv` says it."""
    keys = [*study.grid, "seed"]
    known: dict[tuple[float | str, ...], str] = {}
    if (path / "runs.csv").is_file():
        rows = _table(path).reindex(columns=[*keys, "failure"], fill_value="").to_numpy().tolist()
        known = {tuple(map(_as_number, row)): failure for *row, failure in rows}
    wanted = [(*map(table_entry, each.values()), seed) for each in study.combinations for seed in study.all_seeds]
    return [known.get(tuple(_as_number(str(value)) for value in row)) or NOT_FINISHED for row in wanted]


def _as_number(text: str) -> float | str:
    """Return the number that a text says, or the text; a table may write 5 as 5.0."""
    try:
        return float(text)
    except ValueError:
        return text


def _targets(path: Path) -> tuple[float, ...]:
    """Return the target accuracies of a sweep, as the header of `runs.csv` says them."""
    if not (path / "runs.csv").is_file():
        return TARGETS
    names = [name[len("slots_to_") : -len("_max")] for name in _table(path).columns if _TARGET.fullmatch(name)]
    return tuple(map(float, names))


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path / "runs.csv", dtype=str, keep_default_na=False)
    except ValueError as error:
        raise RefusedError(f"{path / 'runs.csv'} is damaged ({error}); --resume writes it anew") from None


def _warn(path: Path, missing: Iterable[str], count: int, what: str = "are not finished") -> None:
    if names := list(missing):
        warnings.warn(f"{path}: {len(names)} of {count} runs {what}: {first_names(names)}", stacklevel=4)
