"""`fedslot compare`: run several strategies with the same seeds; print a table, write figures and a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedslot.cli.options import (
    SAME_AND_RESUME,
    Against,
    OverrideOption,
    Running,
    ScenarioArgument,
    TargetsOption,
    WorkersOption,
    check_study,
    computing,
    live_view,
    read_scenario,
    read_targets,
    say_more,
    stoppable,
    takes_running,
)
from fedslot.support.errors import InputError

if TYPE_CHECKING:
    from fedslot.scenario import Scenario


def complete_strategies(incomplete: str) -> list[str]:
    """Return completions of the last name in a list of strategies with commas between."""
    from fedslot.strategies import STRATEGIES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in STRATEGIES if name.startswith(last)]


@takes_running()
def compare(
    scenario: ScenarioArgument,
    strategies: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Strategies to compare; differences are to the first. Each may have its own aggregation, options and "
            "fields: `ucb+fedadam,ucb{exploration: 2},fedavg{training.epochs: 2}`.",
            autocompletion=complete_strategies,
        ),
    ] = "push-pull,greedy-shap,only-pull,fedavg,centralized,ps-alone",
    seeds: Annotated[int, typer.Option(help="Number of seeds; the first is the scenario's.")] = 3,
    override: OverrideOption = [],  # noqa: B006
    targets: TargetsOption = "0.7,0.8,0.9",
    against: Annotated[
        Against,
        typer.Option(help="Draw curves against this too; seconds and joules need the scenario's `radio` fields."),
    ] = "slots",
    out: Annotated[Path, typer.Option(help="Folder for runs, tables, figures and report.html.")] = Path("out/compare"),
    workers: WorkersOption = None,
    how: Running = Running(),  # noqa: B008
) -> None:
    """Compare strategies with the same seeds, and write tables with 95% confidence intervals, figures and a report.

    Example: fedslot compare quickstart --strategies push-pull,fedavg --seeds 5
    """
    wanted = read_scenario(scenario, override)
    goals = read_targets(targets)

    from rich.console import Console

    from fedslot.experiments.comparison import compare as compare_strategies
    from fedslot.experiments.comparison import left_out
    from fedslot.experiments.variants import VariantStudy, make_variants

    study = VariantStudy(wanted, make_variants(strategies), seeds, goals)
    _check_against(against, study.scenarios)
    check_study(study, scenario, how.dask)
    for note in study.notes():
        typer.echo(f"note: {note}", err=True)
    with live_view(out, how):
        with computing(study, out, workers, how) as options:
            comparison = compare_strategies(wanted, strategies, seeds, out, targets=goals, **options)
        for note in left_out(out, study.tasks(out)):
            typer.echo(f"note: {note}", err=True)
        with stoppable(SAME_AND_RESUME):
            from fedslot.views.report import write_report
            from fedslot.views.tables import study_tables

            report = write_report(comparison, out, against)
            console = Console(markup=False, emoji=False)
            for table in study_tables(comparison, console):
                console.print(table)
            typer.echo(f"figures and tables in {out}; report: {report}")
            say_more(out)


def _check_against(against: Against, scenarios: Sequence[Scenario]) -> None:
    """Refuse curves against seconds or joules that the scenarios do not give, before anything is run."""
    for scenario in scenarios:
        timed = scenario.radio.slot_seconds is not None or scenario.fleet.computing is not None
        if against == "seconds" and not timed:
            raise InputError("--against", against, "slots or rounds without radio.slot_seconds")
        if against == "joules" and scenario.radio.send_joules is None:
            raise InputError("--against", against, "slots or rounds without radio.send_joules")
