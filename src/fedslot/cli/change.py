"""`fedslot change`: ask the parameter server of a deployment to go on with other values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import complete_override
from fedslot.support.errors import RefusedError


def change(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a training that `fedslot serve` runs.")],
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...",
            help="Fields of the scenario with new values, e.g. frame.pull=3.",
            autocompletion=complete_override,
        ),
    ],
) -> None:
    """Change the frame, the push slots, the strategy or the number of UEs of a training that runs.

    The parameter server takes the change at the end of its frame, or when it is started again, and notes it in
    changes.csv.

    Example: fedslot change out/cell frame.pull=3 strategy.name=greedy-shap
    """
    from fedslot.deployment.changes import CHANGES, changed, present, write_request
    from fedslot.scenario import parse_overrides

    if not (folder / "scenario.yaml").is_file():
        raise RefusedError(f"{folder} holds no run; give the folder that --out named")
    if (folder / "summary.json").is_file():
        raise RefusedError(f"the training in {folder} is over")
    wanted = parse_overrides(fields)
    changed(present(folder), wanted)
    write_request(folder, wanted)
    typer.echo(f"asked for; once the parameter server has taken it, {folder / CHANGES} has a line about it")
