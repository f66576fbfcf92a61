"""The late door to the views: the only module below `fedslot.views` that reaches up to it.

Views stand on top of all other rooms, and nothing below imports them. Results can still draw themselves in a notebook
(`Result.plot`, `_repr_html_`) and runs can show their progress: these functions load the views on first use and hand
the object over. Which view shows which type is registered in `fedslot.views.notebook`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

Show: TypeAlias = Callable[[int, Any], object]
"""Shows the rounds of runs: called with the index of a run and each of its rounds, or None when it is over."""


def plot(result: object, *arguments: object) -> Any:
    """Draw a result by the view of its type, and return the axes."""
    return _view("notebook").plot(result, *arguments)


def plot_frames(frames: object, rounds: Sequence[int]) -> Any:
    """Draw frames of a trace slot by slot, and return the axes."""
    return _view("frames").plot_frames(frames, rounds)


def html(result: object) -> str:
    """Return a result as HTML for a notebook, by the view of its type."""
    return str(_view("notebook").html(result))


@contextmanager
def progress(wanted: bool | None, labels: Sequence[str], scenarios: Sequence[object]) -> Iterator[Show | None]:
    """Show the progress of runs; None: in a notebook only, since scripts print what they themselves want."""
    if not (in_notebook() if wanted is None else wanted):
        yield None
        return
    with _view("progress").Display(labels, scenarios) as display:
        yield display


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _view(module: str) -> Any:
    return importlib.import_module(f"fedslot.views.{module}")
