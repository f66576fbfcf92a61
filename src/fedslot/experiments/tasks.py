"""A task is one run into its own folder; `pool.py` runs many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedslot.errors import reason
from fedslot.records import RunFolder
from fedslot.round import Round
from fedslot.runs import is_finished, run
from fedslot.scenario import Scenario

Listener = Callable[[int, Round | None], object]
"""Called with the index of a task and each of its rounds, and with None when the task is over."""
Over = Callable[[int, str | None], None]
"""Called with the index of a task that is over and, if it failed, the reason."""


@dataclass(frozen=True)
class Task:
    """One run: its scenario and its folder."""

    scenario: Scenario
    folder: Path

    @property
    def is_done(self) -> bool:
        """Whether the folder holds this run, and it is complete."""
        return is_finished(self.folder) and RunFolder(self.folder).scenario() == self.scenario


@dataclass(frozen=True)
class Settings:
    """How tasks are run.

    threads: number of threads of each run. resume: continue the runs in the folders.
    """

    threads: int = 1
    resume: bool = False


def attempt(task: Task, settings: Settings, on_round: Callable[[Round], object]) -> str | None:
    """Run a task; return None, or the reason if it failed."""
    try:
        run(task.scenario, task.folder, resume=settings.resume, threads=settings.threads, on_round=on_round)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        return reason(error)
    return None
