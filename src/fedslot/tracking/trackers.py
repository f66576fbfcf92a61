"""Trackers by name, of one run or of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedslot.rounds.round import Round
from fedslot.runs.callbacks import Callback, Callbacks
from fedslot.runs.execution import is_finished, load
from fedslot.support.errors import InputError, one_of
from fedslot.tracking.mlflow import MLflow
from fedslot.tracking.tensorboard import FOLDER, TensorBoard

if TYPE_CHECKING:
    from fedslot.experiments.tasks import Task

TRACKERS: dict[str, Callable[[str, Path | None], Callback]] = {
    "tensorboard": lambda label, folder: TensorBoard(folder),
    "mlflow": lambda label, folder: MLflow(name=label),
}
"""Make a tracker from the name of the run and the folder for its files, by default one in the folder of the run."""


def make_trackers(names: Iterable[str], label: str, folder: Path | None = None) -> list[Callback]:
    """Return the trackers of a run that has these names; unknown ones are refused."""
    for name in names:
        if name not in TRACKERS:
            raise InputError("track", name, one_of(name, TRACKERS))
    return [TRACKERS[name](label, folder) for name in dict.fromkeys(names)]


class RunTrackers:
    """Tracks many runs that are done elsewhere: called with the index of a run and each of its rounds.

    Their frames are not known here. A run that was finished before is not tracked again.

    names: of the trackers. tasks, labels: the runs and their names. out: the folder of all results.
    """

    def __init__(self, names: Sequence[str], tasks: Sequence[Task], labels: Sequence[str], out: Path) -> None:
        make_trackers(names, "")  # refuses unknown ones
        self._names, self._tasks, self._labels, self._out = names, tasks, labels, out
        self._started: dict[int, Callbacks] = {}

    def __call__(self, index: int, round: Round | None) -> None:
        """Track a round of a run; None means that the run is over."""
        task = self._tasks[index]
        if round is None:
            if callbacks := self._started.pop(index, None):
                callbacks.end(load(task.folder) if is_finished(task.folder) else None)
            return
        if index not in self._started:
            trackers = make_trackers(self._names, self._labels[index], self._out / FOLDER / task.folder.name)
            self._started[index] = Callbacks(trackers)
            self._started[index].start(task.scenario, round.round, task.folder)
        self._started[index].round(round, ())

    def close(self) -> None:
        """End the tracking of all runs that were interrupted."""
        for index in list(self._started):
            self(index, None)
