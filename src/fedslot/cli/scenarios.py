"""`fedslot presets` and `fedslot schema`: print presets and the fields of a scenario."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedslot.cli.options import complete_scenario


def presets(
    name: Annotated[
        str | None, typer.Argument(help="Show this preset's YAML.", autocompletion=complete_scenario)
    ] = None,
) -> None:
    """List the presets, or print one as YAML to copy and change.

    Example: fedslot presets quickstart > mine.yaml && fedslot run mine.yaml
    """
    from fedslot.scenario import preset_text
    from fedslot.scenario import presets as all_presets
    from fedslot.support.errors import InputError, one_of

    if name is None:
        width = max(map(len, all_presets()))
        for preset, about in all_presets().items():
            typer.echo(f"{preset:<{width}}  {about}")
    elif name in all_presets():
        typer.echo(preset_text(name), nl=False)
    else:
        raise InputError("preset", name, one_of(name, all_presets()))


def schema(
    keys: Annotated[
        bool, typer.Option("--keys", help="List the fields with their meanings, defaults and allowed values.")
    ] = False,
) -> None:
    """Print the JSON schema of a scenario for editors and programs."""
    from fedslot.scenario import Scenario, ranges
    from fedslot.scenario import keys as all_keys

    if not keys:
        typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
        return
    allowed, width = ranges(), max(map(len, all_keys()))
    for key, about in all_keys().items():
        typer.echo(f"{key:<{width}}  {' '.join(about.split())} ({allowed[key]})")
