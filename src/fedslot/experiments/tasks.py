"""A task is one run into its own folder; `pool.py` runs many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedslot.access.channels import make_channel
from fedslot.aggregation import make_aggregation
from fedslot.callbacks import Report
from fedslot.data.sources import check_exists
from fedslot.errors import InputError, RefusedError, reason
from fedslot.learning.models import MODELS
from fedslot.plugins import find
from fedslot.provenance import fingerprints
from fedslot.records import RunFolder
from fedslot.round import Round, cell
from fedslot.runs import is_finished, run
from fedslot.scenario import Scenario
from fedslot.strategies import make_strategy
from fedslot.valuation import make_method

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
        """Whether the folder holds this run, and it is complete; where that is in doubt, the run itself says why."""
        try:
            return is_finished(self.folder) and RunFolder(self.folder).holds(self.scenario, fingerprints(self.scenario))
        except (InputError, RefusedError, OSError):
            return False


@dataclass(frozen=True)
class Settings:
    """How tasks are run.

    threads: number of threads of each run. resume: continue the runs in the folders.
    frames: whether runs write `frames.csv`.
    """

    threads: int = 1
    resume: bool = False
    frames: bool = True


def check(scenario: Scenario, *, data: bool = True) -> None:
    """Refuse a scenario whose parts cannot be built or whose data set is not there, without loading it.

    data: whether to look for the data set; it may be on other machines only.
    """
    sizes = np.broadcast_to(np.int64(1), scenario.data.ues)  # not known without the data
    make_strategy(scenario.strategy.name, cell(scenario, sizes))
    make_channel(scenario.push.channel, **scenario.push.channel_options)
    make_aggregation(scenario.aggregation.name, scenario.aggregation.options)
    make_method(scenario.valuation.method, scenario.valuation.model_dump(), scenario.valuation.options)
    find("training.model", scenario.training.model, MODELS)
    find("training.optimizer", scenario.training.optimizer, {"sgd": None})
    if data:
        check_exists(scenario.data.dataset)


def attempt(task: Task, settings: Settings, report: Callable[[Round], object]) -> str | None:
    """Run a task, and call `report` with each round; return None, or the reason if it failed."""
    try:
        run(
            task.scenario,
            task.folder,
            resume=settings.resume,
            threads=settings.threads,
            callbacks=[Report(report)],
            frames=settings.frames,
            progress=False,
        )
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        return reason(error)
    return None
