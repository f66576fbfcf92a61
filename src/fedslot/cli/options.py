"""Arguments that several commands share, with their completion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedslot.scenario import Scenario


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


def read_scenario(source: str, overrides: list[str]) -> Scenario:
    """The scenario that the arguments ask for."""
    from fedslot.scenario import Scenario, parse_overrides

    return Scenario.load(source, parse_overrides(overrides))
