"""What studies share: a folder with runs, curves of the finished ones, figures and a page.

A run whose curve is known is not repeated, also if its folder is gone or was on another machine; whoever changes a
setting or a strategy deletes its curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from jinja2 import Environment, StrictUndefined

from fedslot import Result, __version__, load
from fedslot.experiments import Listener, Settings, Task, failure_of, run_all
from fedslot.runs import Claim, FolderKind, claim, write_atomically
from fedslot.studies.curves import load_curves, save_curves
from fedslot.views import save_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DIVERGED = "finite"  # a word of the reasons of runs that failed so: an update, a loss or a model is not finite


@dataclass(frozen=True)
class StudyFolder:
    """A study and its folder.

    name: of its page, and of the folders of its curves and figures. kind: by which the folder is known.
    """

    name: ClassVar[str]
    kind: ClassVar[FolderKind]

    out: Path

    def claim(self, description: str, force: bool = False) -> Claim:
        """Take the folder. A study continues the one in it, also with other settings, seeds and lengths."""
        return claim(self.out, self.kind, description, lambda: None, resume=not force, force=force)

    def curves_file(self, name: str) -> Path:
        """Return the file with the curves of some of the runs."""
        return self.out / "curves" / self.name / f"{name}.csv.gz"

    def adopt(self, curves: Path | None) -> None:
        """Copy the files of curves of earlier runs, as far as the folder does not have them."""
        for file in sorted((curves / self.name).glob("*.csv.gz")) if curves else []:
            own = self.curves_file(file.name.removesuffix(".csv.gz"))
            if not own.exists():
                save_curves(load_curves(file), own)

    def write(self, figures: Mapping[str, Callable[[], Figure]], pages: Mapping[str, str]) -> list[Path]:
        """Draw figures as PNG and PDF, write pages by their names, and return the paths of all files."""
        files = save_figures(figures, self.out / "images" / self.name)
        for name, page in pages.items():
            text = self.out / f"{name}.md"
            write_atomically(text, page)
            files.append(text)
        return files


def compute(
    tasks: Mapping[str, Task], curves: Path, *, workers: int | None, dask: str | None, listener: Listener | None
) -> None:
    """Compute runs, or continue them, and add their curves to a file.

    Of a run that attacks make diverge, the curve ends with a round without an accuracy.

    tasks: by the name of the curve.
    """
    runs, settings = list(tasks.values()), Settings(resume=True, frames=False)
    failures = run_all(runs, settings, workers=workers, dask=dask, listener=listener)
    diverged = {index for index, reason in failures.items() if runs[index].scenario.fleet.attack and DIVERGED in reason}
    if failures.keys() - diverged:
        raise failure_of(runs, {index: reason for index, reason in failures.items() if index not in diverged})
    added = {name: _rounds(task, index in diverged) for index, (name, task) in enumerate(tasks.items())}
    save_curves(load_curves(curves) | added, curves)


def render(package: str, filters: Mapping[str, Callable[..., str]], page: str = "page.md", /, **facts: Any) -> str:
    """Return a page of a study: the template of its package with these facts."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"points": lambda estimate: estimate.text("+.2f", factor=100), **filters}
    template = environment.from_string(resources.files(package).joinpath(page).read_text("utf-8"))
    return template.render(**facts, version=__version__)


def _rounds(task: Task, diverged: bool) -> pd.DataFrame:
    result = load(task.folder)
    assert isinstance(result, Result)  # the folder of a task holds a run
    rounds = result.rounds
    if diverged:
        last = rounds.iloc[[-1]].assign(test_accuracy=math.nan, attack_success=math.nan)
        rounds = pd.concat([rounds, last], ignore_index=True)
    return rounds
