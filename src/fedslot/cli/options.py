"""Arguments that several commands share, with their completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedslot.scenario import Scenario
    from fedslot.views.progress import Display


def _complete_scenario(incomplete: str) -> list[str]:
    from fedslot.scenario import presets

    files = [str(file) for file in Path().glob(f"{incomplete}*.y*ml")]
    return [name for name in presets() if name.startswith(incomplete)] + files


def _complete_override(incomplete: str) -> list[str]:
    from fedslot.scenario import keys

    return [f"{key}=" for key in keys() if key.startswith(incomplete)]


def _complete_strategies(incomplete: str) -> list[str]:
    from fedslot.strategies import STRATEGIES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in STRATEGIES if name.startswith(last)]


ScenarioArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A preset (see `fedslot presets`) or a YAML file.",
        autocompletion=_complete_scenario,
    ),
]
OverrideOption = Annotated[
    list[str],
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        help="Change a field of the scenario, e.g. `-o frame.pull=5`; may be repeated. `fedslot schema --keys` "
        "lists the fields.",
        autocompletion=_complete_override,
        show_default=False,
    ),
]
StrategiesOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,C",
        help="Strategies to compare, the first being the reference of the differences.",
        autocompletion=_complete_strategies,
    ),
]
ThreadsOption = Annotated[
    int, typer.Option(min=1, help="Threads that share the work of a round; for several runs, processes are better.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue what the folder holds; the result is that of an unbroken run.")
]
WorkersOption = Annotated[int | None, typer.Option(help="Processes; by default one per core.", min=1)]
TargetsOption = Annotated[str, typer.Option(metavar="A,B,C", help="Target accuracies.")]
SAME_AND_RESUME = "continue with the same command and --resume"
DaskOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Compute on the Dask cluster whose scheduler is at this address, e.g. tcp://host:8786.",
        show_default=False,
    ),
]


def read_scenario(source: str, overrides: list[str]) -> Scenario:
    """The scenario that the arguments ask for."""
    from fedslot.scenario import Scenario, parse_overrides

    return Scenario.load(source, parse_overrides(overrides))


def read_targets(words: str) -> list[float]:
    """Target accuracies, which stand with commas between."""
    from fedslot.errors import InputError

    try:
        return [float(word) for word in words.split(",") if word]
    except ValueError:
        raise InputError("targets", words, "numbers with commas between, e.g. 0.8,0.9") from None


@contextmanager
def watch(labels: Sequence[str], rounds: int, again: str) -> Iterator[Display]:
    """Show how far runs are. Ctrl-C ends the command with one line: what was stopped, and how to go on (`again`)."""
    from fedslot.views.progress import Display

    try:
        with Display(labels, rounds) as display:
            yield display
    except KeyboardInterrupt:
        typer.secho(f"stopped; {again}", err=True)
        raise typer.Exit(130) from None


def greet_cluster(address: str | None) -> None:
    """Refuse a Dask cluster that cannot be used before anything is written; say what will make it slow."""
    if address is None:
        return
    from fedslot.experiments.cluster import find_workers

    threads = find_workers(address).values()
    if not threads:
        typer.secho(f"{address} has no workers yet; the work waits for them", err=True)
    elif max(threads) > 1:
        advice = "start one per core: dask worker ADDRESS --nworkers auto --nthreads 1"
        typer.secho(f"a worker has {max(threads)} threads, of which one will work at a time; {advice}", err=True)
