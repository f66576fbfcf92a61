"""`fedslot show`: summarise a run, a comparison or a sweep in the terminal."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.cli.options import say_more

if TYPE_CHECKING:
    from rich.console import Console

    from fedslot.results import Result


def show(folder: Annotated[Path, typer.Argument(help="Folder of a run, a comparison or a sweep.")]) -> None:
    """Summarise the results in a folder, finished or not: a run with a small plot, a comparison or sweep as tables.

    Example: fedslot show out/run
    """
    from rich.console import Console

    from fedslot.errors import RefusedError
    from fedslot.experiments.comparison import Comparison
    from fedslot.experiments.loading import load
    from fedslot.results import Result
    from fedslot.views.tables import comparison_tables, sweep_table

    if not folder.is_dir():
        raise RefusedError(f"{folder} is no folder")
    console = Console(markup=False, emoji=False, highlight=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = load(folder)
    for warning in told:  # which runs are missing
        typer.echo(f"note: {warning.message}", err=True)
    if isinstance(found, Result):
        _show_run(found, folder, console)
    elif isinstance(found, Comparison):
        for table in comparison_tables(found, console):
            console.print(table)
    else:
        console.print(sweep_table(found, console))
    say_more(folder, shown=True)


def _show_run(run: Result, folder: Path, console: Console) -> None:
    from fedslot.runs import is_finished
    from fedslot.views.text_plot import text_plot

    scenario, rounds = run.scenario, run.rounds
    name = scenario.strategy.name + ("" if scenario.aggregation.name == "average" else f"+{scenario.aggregation.name}")
    console.print(f"{name} on {scenario.data.dataset}, seed {scenario.seed}, {scenario.data.ues} UEs")
    if not len(rounds):
        console.print("no round is finished yet")
        return
    state = "finished" if is_finished(folder) else "not finished; continue with --resume"
    console.print(f"{len(rounds)} rounds and {run.slots_spent} slots, {state}")
    console.print(f"test accuracy {run.final_accuracy:.4f}, at best {rounds['test_accuracy'].max():.4f}")
    sums = rounds[["pulled", "wasted", "push_received", "collided"]].sum()
    console.print(
        f"received: {sums['pulled']} pulled, {sums['push_received']} pushed; "
        f"lost: {sums['wasted']} pulled, {sums['collided']} collided"
    )
    if len(rounds) > 1 and run.slots_spent:
        width = max(20, min(72, console.width - 8))
        slots, accuracy = rounds["slots_spent"].tolist(), rounds["test_accuracy"].tolist()
        console.print(text_plot(slots, accuracy, width, "test accuracy by slots spent"))
