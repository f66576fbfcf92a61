"""Curves of finished runs: accuracy and costs of each round, many runs in one small file.

The long experiments are published with their curves, so that their pages can be made, and continued, without the run
folders, and from the runs of several machines.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedslot import RefusedError
from fedslot.runs import write_atomically

COLUMNS = ["test_accuracy", "cost_max", "cost_frame", "cost_sum", "seconds"]
SUCCESS, TRAININGS = "attack_success", "trainings"  # further columns, if a run has them


def save_curves(runs: Mapping[str, pd.DataFrame], file: Path) -> None:
    """Write the curves of runs.

    runs: the rounds of each run by its name.
    """
    table = pd.concat([rounds[[*COLUMNS, *_more(rounds)]].assign(run=name) for name, rounds in runs.items()])
    columns = ["run", *COLUMNS, *_more(table)]
    text = (
        table[columns]
        .round({"test_accuracy": 6, "cost_max": 6, "cost_frame": 6, "seconds": 3, SUCCESS: 6})
        .to_csv(index=False)
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, gzip.compress(text.encode(), mtime=0))


def load_curves(file: Path) -> dict[str, pd.DataFrame]:
    """Return the rounds of each run in a file, in the order in which they were written; none if there is no file."""
    if not file.exists():
        return {}
    try:
        table = pd.read_csv(file)
        table = table[["run", *COLUMNS, *_more(table)]]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise RefusedError(f"{file} is damaged ({error}); restore it, or delete it and measure again") from None
    runs = table.groupby("run", sort=False)
    return {
        str(name): rounds.drop(columns="run")
        .reset_index(drop=True)
        .assign(slots_spent=rounds["cost_max"].cumsum().to_numpy())
        for name, rounds in runs
    }


def _more(rounds: pd.DataFrame) -> list[str]:
    return [column for column in (SUCCESS, TRAININGS) if column in rounds and rounds[column].notna().any()]
