"""`fedslot show`: summarise a run, a comparison or a sweep in the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.cli.options import Against, say_more
from fedslot.support.errors import InputError, say_time

if TYPE_CHECKING:
    from rich.console import Console

    from fedslot.runs.results import Result
    from fedslot.scenario import Scenario

INTERRUPTED = "if it was interrupted, the command that began it continues it with --resume"


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a comparison or a sweep.")],
    against: Annotated[
        Against, typer.Option(help="Plot the accuracy of a run against this; seconds and joules need `radio` fields.")
    ] = "slots",
) -> None:
    """Summarise the results in a folder: a run with a small plot, a comparison or a sweep as tables.

    The results need not be finished.

    Example: fedslot show out/run
    """
    from rich.console import Console

    from fedslot.experiments.comparison import Comparison
    from fedslot.experiments.loading import NothingFinishedError, load
    from fedslot.runs.results import Result
    from fedslot.views.tables import study_tables

    console = Console(markup=False, emoji=False, highlight=False)
    results = None
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        with suppress(NothingFinishedError):
            results = load(folder)
    for warning in notes:  # which runs are missing
        typer.echo(f"note: {warning.message}", err=True)
    if against != "slots" and not isinstance(results, Result):
        raise InputError("--against", against, "given for the folder of a single run, which is shown with a plot")
    if results is None:
        _show_runs(folder, console)
    elif isinstance(results, Result):
        _show_run(results, against, console)
    else:
        if isinstance(results, Comparison):
            what, seeds = f"comparison of {', '.join(results.strategies)}", _seeds(results.seeds)
        else:
            what, seeds = f"sweep over {', '.join(results.study.grid)}", _seeds(results.study.all_seeds)
        console.print(f"{what} {_where(results.base)}, {seeds}", soft_wrap=True)
        for table in study_tables(results, console):
            console.print(table)
    say_more(folder, shown=True)


def _show_runs(folder: Path, console: Console) -> None:
    """Show how far the runs of a comparison or a sweep are, of which too few are finished to tell more."""
    from fedslot.views.live.watched import read_folder
    from fedslot.views.tables import runs_table

    watched = read_folder(folder)
    finished = sum(run.is_finished for run in watched.runs)
    console.print(
        f"{watched.kind} {_where(watched.runs[0].scenario)}: {finished} of {len(watched.runs)} runs are finished"
    )
    if (table := runs_table(watched)).row_count:
        console.print(table)
    console.print(INTERRUPTED)


def _where(scenario: Scenario) -> str:
    from fedslot.data.sources import say_source

    return f"on {say_source(scenario.data.dataset)}, {scenario.data.ues} UEs"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _show_run(run: Result, against: Against, console: Console) -> None:
    from fedslot.runs.results import spent
    from fedslot.views.text_plot import text_plot

    scenario, rounds = run.scenario, run.rounds
    name = scenario.strategy.name + ("" if scenario.aggregation.name == "average" else f"+{scenario.aggregation.name}")
    console.print(f"{name} {_where(scenario)}, {_seeds([scenario.seed])}", soft_wrap=True)
    if not len(rounds):
        console.print("no round is finished yet")
        return
    state = "finished" if run.finished else "so far"
    console.print(f"{len(rounds)} of {scenario.most_rounds} rounds and {say_time(run.slots_spent)} slots, {state}")
    if not run.finished:
        console.print(INTERRUPTED)
    console.print(f"test {run.score.label} {run.final_score:.4f}, at best {run.best_score:.4f}")
    if (privacy := run.privacy()) is not None:
        console.print(f"privacy: {privacy}")
    sums = rounds[["pulled", "wasted", "push_received", "collided"]].sum()
    console.print(
        f"received: {sums['pulled']} pulled, {sums['push_received']} pushed; "
        f"lost: {sums['wasted']} pulled, {sums['collided']} collided"
    )
    if size := run.update_bits():
        reason = f"since noise is {size.noise_share:.0%} of the error of an update"
        bits = f"{size.best:.2g} bits per parameter, or {size.low:.2g} to {size.high:.2g}"
        console.print(f"most progress per slot: {bits}, {reason}", soft_wrap=True)
    if len(rounds) > 1 and run.slots_spent:
        width = max(20, min(72, console.width - 8))
        title = f"test {run.score.label} by {against}{'' if against == 'rounds' else ' spent'}"
        console.print(text_plot(spent(rounds, against).tolist(), run.scores.tolist(), width, title))
