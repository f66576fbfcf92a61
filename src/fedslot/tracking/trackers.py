"""Trackers by name, of one run or of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from fedslot.callbacks import Callback
from fedslot.errors import InputError, one_of
from fedslot.round import Round
from fedslot.runs import is_finished, load
from fedslot.scenario import Scenario
from fedslot.tracking.mlflow import MLflow
from fedslot.tracking.tensorboard import FOLDER, TensorBoard

TRACKERS: dict[str, Callable[[str, Path | None], Callback]] = {
    "tensorboard": lambda label, folder: TensorBoard(folder),
    "mlflow": lambda label, folder: MLflow(name=label),
}
"""Make a tracker from the name of the run and the folder for its files, by default one in the folder of the run."""


class Work(Protocol):
    """One of many runs: its scenario and its folder."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def folder(self) -> Path: ...


def make_trackers(names: Iterable[str], label: str, folder: Path | None = None) -> list[Callback]:
    """Return the trackers of a run that has these names; unknown ones are refused."""
    for name in names:
        if name not in TRACKERS:
            raise InputError("track", name, one_of(name, TRACKERS))
    return [TRACKERS[name](label, folder) for name in dict.fromkeys(names)]


class Many:
    """Tracks many runs that are done elsewhere: called with the index of a run and each of its rounds.

    Their frames are not known here. A run that was finished before is not tracked again.

    names: of the trackers. runs, labels: the runs and their names. out: the folder of all results.
    """

    def __init__(self, names: Sequence[str], runs: Sequence[Work], labels: Sequence[str], out: Path) -> None:
        make_trackers(names, "")  # refuses unknown ones
        self._runs = runs
        self._make = [
            partial(make_trackers, names, label, out / FOLDER / run.folder.name)
            for run, label in zip(runs, labels, strict=True)
        ]
        self._at_work: dict[int, list[Callback]] = {}

    def __call__(self, index: int, round: Round | None) -> None:
        """Track a round of a run; None means that the run is over."""
        if round is None:
            self._end(index)
            return
        if index not in self._at_work:
            run, self._at_work[index] = self._runs[index], self._make[index]()
            for tracker in self._at_work[index]:
                tracker.on_start(run.scenario, round.round, run.folder)
        for tracker in self._at_work[index]:
            tracker.on_round(round, ())

    def close(self) -> None:
        """End all that are still at work, because they were interrupted."""
        for index in list(self._at_work):
            self._end(index)

    def _end(self, index: int) -> None:
        folder = self._runs[index].folder
        for tracker in self._at_work.pop(index, []):
            tracker.on_end(load(folder) if is_finished(folder) else None)
