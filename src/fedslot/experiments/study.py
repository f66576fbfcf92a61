"""A study: several cases of a scenario, each with the same seeds, as independent runs in one folder.

The studies of comparisons (`variants.py`) and sweeps (`grid.py`) differ only in their cases.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, TypeVar

from fedslot.experiments.measures import MeasuredStudy
from fedslot.experiments.pool import check_workers, cores, failure_of, run_all
from fedslot.experiments.tasks import Listener, Settings, Task, check
from fedslot.runs.execution import load
from fedslot.runs.folders import FolderKind, claim
from fedslot.runs.records import LENGTH, RunFolder
from fedslot.runs.results import Result
from fedslot.scenario import Scenario, read_fields
from fedslot.support import display
from fedslot.support.errors import InputError, RefusedError, whole_number
from fedslot.support.plain import plain

MOST_RUNS = 100_000
LONGEST_NAME = 120  # characters of a folder's name, without the seed
SEEDS = 3


Results = TypeVar("Results", bound=MeasuredStudy)


class Study(ABC):
    """Cases of a scenario, each of which runs with several seeds; the scenario's seed is the first.

    kind: of its folder. field: what messages call the cases. blame: how messages refer to one of them.
    all_or_none: whether a failed run is a failure of the study.
    """

    kind: ClassVar[FolderKind]
    field: ClassVar[str]
    blame: ClassVar[str]
    all_or_none: ClassVar[bool]

    scenario: Scenario
    seeds: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", plain(self.seeds))
        if type(self.seeds) is not int or self.seeds < 1:
            raise InputError("seeds", self.seeds, f"{whole_number(self.seeds)}, at least 1")

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """The name of each case in tables and figures."""

    @property
    @abstractmethod
    def folder_names(self) -> list[str]:
        """The name of each case in folders, without the seed."""

    @property
    @abstractmethod
    def varied(self) -> list[str]:
        """The fields in which the cases may differ, by dotted key."""

    @abstractmethod
    def make_scenario(self, index: int) -> Scenario:
        """Return the scenario of a case with the first seed."""

    @abstractmethod
    def to_yaml(self) -> str:
        """Return the content of the marker of its folder, which `load` reads."""

    def check_same(self, out: Path) -> None:
        """Refuse to continue the results of another scenario; cases, seeds and length may change."""
        saved = Scenario.load(read_fields(out / self.kind.marker).get("scenario", {}))
        if difference := saved.difference(self.scenario, apart_from=["seed", *LENGTH, *self.varied]):
            raise RefusedError(f"{out} holds a {self.kind.name} of another scenario{difference}")

    @cached_property
    def scenarios(self) -> list[Scenario]:
        """The scenario of each case, with the first seed; cases with the same scenario are refused."""
        digests: dict[str, str] = {}
        scenarios = []
        for index, label in enumerate(self.labels):
            with self._blaming(label):
                scenarios.append(self.make_scenario(index))
            twin = digests.setdefault(scenarios[-1].digest, label)
            if twin is not label:
                raise InputError(self.field, label, f"left out: it is the same scenario as {twin}")
        return scenarios

    def check(self, *, data: bool = True, workers: int = 1) -> None:
        """Refuse cases whose parts cannot be built or, with `data`, that do not fit their data set or the memory."""
        for label, scenario in zip(self.labels, self.scenarios, strict=True):
            with self._blaming(label):
                check(scenario, data=data, workers=workers)

    @property
    def all_seeds(self) -> range:
        """The seeds of each case."""
        return range(self.scenario.seed, self.scenario.seed + self.seeds)

    @property
    def run_labels(self) -> list[str]:
        """The name of each run, case by case."""
        return [f"{label}, seed {seed}" for label in self.labels for seed in self.all_seeds]

    def tasks(self, out: Path) -> list[Task]:
        """Return the runs, case by case, each with its folder below `out`."""
        scenarios = [each.replace({"seed": seed}) for each in self.scenarios for seed in self.all_seeds]
        return list(map(Task, scenarios, self.folders(out)))

    def folders(self, out: Path) -> list[Path]:
        """Return the folder of each run below `out`, case by case."""
        return [out / "runs" / f"{name}-seed{seed}" for name in self.folder_names for seed in self.all_seeds]

    @contextmanager
    def _blaming(self, label: str) -> Iterator[None]:
        """Add the case to the message of an `InputError`."""
        try:
            yield
        except InputError as error:
            raise InputError(error.field, error.value, f"{error.allowed} ({self.blame} {label})") from None


def compute(
    study: Study,
    out: str | Path | None,
    make: Callable[[list[Result | None], dict[int, str]], Results],
    settings: Settings,
    workers: int | None,
    dask: str | None,
    force: bool,
    listener: Listener | None,
    progress: bool | None,
) -> Results:
    """Compute all runs of a study in a folder, or without one, and return and save what `make` makes of them.

    Nothing is written, and nothing deleted, before all cases are checked. Where a failure is one of the study, a folder
    that holds no run is then left as it was.

    make: called with the results, None where a run failed, and the reasons of failures by index.
    """
    check_workers(workers, dask)
    study.check(data=dask is None, workers=1 if dask else min(workers or cores(), len(study.run_labels)))
    with TemporaryDirectory() as temporary:
        folder = Path(out or temporary).absolute()
        tasks = study.tasks(folder)

        def check_same() -> None:
            study.check_same(folder)
            for task in tasks:
                RunFolder(task.folder).check_length(task.scenario)

        with claim(folder, study.kind, study.to_yaml(), check_same, resume=settings.resume, force=force) as claimed:
            with display.progress(progress, study.run_labels, [task.scenario for task in tasks]) as show:
                failures = run_all(tasks, settings, workers=workers, dask=dask, listener=listener or show)
            if failures and study.all_or_none:
                claimed.withdraw()  # stays if there are runs to continue
                raise failure_of(tasks, failures)
            results = [None if index in failures else load(task.folder) for index, task in enumerate(tasks)]
            if out is None:
                results = [result and result.in_memory() for result in results]
            whole = make(results, failures)
            whole.save(folder)
    return whole


def unique_name(name: str, plain: str) -> str:
    """Return a name as it is if it is plain and short, else its plain text with a hash of it.

    >>> unique_name("fedavg", "fedavg"), unique_name("mine:Oldest", "mine-oldest")
    ('fedavg', 'mine-oldest-5e62a53d1305')
    """
    if name == plain and len(name) <= LONGEST_NAME:
        return name
    return f"{plain[: LONGEST_NAME - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def plain_text(text: str) -> str:
    """Replace the characters that some file systems do not allow or distinguish."""
    return re.sub(r"[^a-z0-9._+-]+", "-", text.lower()).strip("-")
