"""A task is one run into its own folder; `pool.py` runs many of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from torch import nn

from fedslot.data.partition import check_ues
from fedslot.data.sources import Outline, check_exists, outline
from fedslot.fleet import Computing, check_owners, link_rates
from fedslot.learning.models import MODELS, Model
from fedslot.learning.training import choose_engine
from fedslot.rounds.held_out import held_out_counts
from fedslot.rounds.local_training import recipe_of
from fedslot.rounds.memory import check_memory
from fedslot.rounds.round import Round, cell
from fedslot.rounds.simulation import check_strategy
from fedslot.runs.callbacks import Report
from fedslot.runs.execution import is_finished, run
from fedslot.runs.provenance import fingerprints
from fedslot.runs.records import RunFolder
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError, reason

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

    threads: of each run. resume: continue the runs in the folders. frames: whether runs write `frames.csv`.
    """

    threads: int = 1
    resume: bool = False
    frames: bool = True


def check(scenario: Scenario, *, data: bool = True, workers: int = 1) -> None:
    """Refuse a scenario whose parts cannot be built or that does not fit its data set.

    Data sets that can be fetched are not read; faults of their content show in the run.

    data: whether to look for the data set; it may be on other machines only.
    workers: number of local processes that run such scenarios at the same time.
    """
    sizes = np.broadcast_to(np.int64(1), scenario.data.ues)  # not known without the data
    check_strategy(scenario, scenario.strategy.make(cell(scenario, sizes)))
    attack = () if scenario.fleet.attack is None else (scenario.fleet.attack,)
    wholes = (scenario.push.channel, scenario.aggregation, scenario.staleness, scenario.valuation)
    for whole in (*wholes, *attack):
        whole.make()
    for part in scenario.parts:
        part.bind()
    if data:
        check_exists(scenario.data.dataset)
        _check_data(scenario, outline(scenario.data.dataset), workers)
        link_rates(scenario)  # they may be in a file
        if scenario.fleet.computing is not None:  # and so may these times
            Computing(scenario.fleet.computing, sizes, scenario.seed)
        if scenario.fleet.availability is not None:
            computing = scenario.fleet.computing
            slot = scenario.radio.slot_seconds if computing is None else computing.slot
            scenario.fleet.availability.make(scenario.data.ues, scenario.seed, slot)


def _check_data(scenario: Scenario, data: Outline, workers: int) -> None:
    held_out_counts(scenario, data.test)
    if data.ues is not None:
        check_owners(scenario, data.ues)
    elif scenario.data.samples_per_ue is None and scenario.data.partition.name == "dirichlet":
        check_ues(scenario.data.ues, data.train)
    part = scenario.training.model
    options = json.dumps(part.options)
    scenario.training.task.make().check(scenario.data.dataset, data.classes > 0)
    model = _build(MODELS.find(part.name), part.name, options, data.shape, data.outputs, scenario.training.device)
    choose_engine(model, recipe_of(scenario), scenario.training.engine)
    check_memory(scenario, data, model, workers)


@lru_cache(maxsize=4)  # the runs of a study mostly have the same model; another factory may have the same name
def _build(
    factory: Callable[..., nn.Module], name: str, options: str, shape: tuple[int, ...], classes: int, device: str
) -> Model:
    return Model.build(name, shape, classes, seed=0, device=device, options=json.loads(options))


def attempt(task: Task, settings: Settings, report: Callable[[Round], object]) -> str | None:
    """Run a task, and call `report` with each round; return None, or the reason if it failed."""
    try:
        run(task.scenario, task.folder, callbacks=[Report(report)], progress=False, **asdict(settings))
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        return reason(error)
    return None
