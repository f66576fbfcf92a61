"""`fedslot plan`: compare the splits of a frame into pull and push slots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedslot.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from fedslot.access.channels import Channel
    from fedslot.access.planner import FrameSplit, Plan
    from fedslot.access.pushes import Progress

ROWS = 25
"""Largest number of splits in a table; of more, it shows those around the best and evenly spaced ones."""


def plan(
    slots: Annotated[int, typer.Option(help="Uplink slots of a frame, M.")] = 20,
    contenders: Annotated[
        str,
        typer.Option(
            help="Number of UEs that would contend for push slots: a number, poisson:MEAN, binomial:N:P, or numbers "
            "with their probabilities as 5:0.5,10:0.5.",
        ),
    ] = "10",
    pull: Annotated[int | None, typer.Option(help="Only this number of pull slots, Q.")] = None,
    value_ratio: Annotated[float, typer.Option(help="Value of a pushed update; that of a pulled one is 1.")] = 1.0,
    ready: Annotated[
        float, typer.Option(help="Probability that a pulled UE is ready; one that is not wastes its slot.")
    ] = 1.0,
    budget: Annotated[
        float | None,
        typer.Option(help="Slots to spend; the best split is then the one with the most value in this budget."),
    ] = None,
    frame_limit: Annotated[
        float | None,
        typer.Option(
            help="Slots that a frame may cost, in expectation; each number of pull slots gets as many push slots as "
            "the limit allows."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Keep the limit per frame with this probability instead of in expectation.")
    ] = None,
    barring: Annotated[
        str,
        typer.Option(help="Probability with which contenders contend, or `best` for the best of each split."),
    ] = "1",
    channel: Annotated[
        str,
        typer.Option(help="collision (computed exactly); capture, crdsa, irsa or package.module:Name (simulated)."),
    ] = "collision",
    threshold_db: Annotated[
        float | None, typer.Option(help="Capture threshold in dB (with --channel capture; 6 if not given).")
    ] = None,
    frames: Annotated[int, typer.Option(help="Frames to simulate for each split.")] = 4000,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Simulate a split only until the standard errors of its pushes and of its cost are this part of them."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw yield and cost of all splits into a .png, .pdf or .svg file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare the yield and the cost of all splits of a frame into pull and push slots."""
    import json

    from fedslot.access.contenders import parse_contenders
    from fedslot.access.planner import plan as compare

    if plot is not None:
        _check_plot(plot, pull)
    expected, bar = parse_contenders(contenders), _barring(barring)
    result = _with_progress(
        pull is None or channel != "collision",
        lambda progress: compare(
            slots,
            expected,
            pulls=None if pull is None else [pull],
            value_ratio=value_ratio,
            ready=ready,
            budget=budget,
            frame_limit=frame_limit,
            confidence=confidence,
            barring=bar,
            channel=_channel(channel, threshold_db),
            frames=frames,
            precision=precision,
            seed=seed,
            progress=progress,
        ),
    )
    if plot is not None:
        from fedslot.views.plan import plot_plan

        plot_plan(result, plot)
    question = {
        "slots": slots,
        "contenders": contenders,
        "value_ratio": value_ratio,
        "ready": ready,
        "budget": budget,
        "barring": bar,
        "channel": channel,
        **({"threshold_db": threshold_db} if threshold_db is not None else {}),
        **({"frame_limit": frame_limit, "confidence": confidence} if frame_limit is not None else {}),
        **({"frames": frames, "precision": precision, "seed": seed} if result.best.standard_errors else {}),
    }
    if as_json:
        splits = [split.as_dict() for split in result.splits]
        answer = splits[0] if pull is not None else {"by": result.by, "best": result.best.as_dict(), "splits": splits}
        typer.echo(json.dumps({**question, **answer}, indent=2, allow_nan=False))
        return

    from rich.console import Console

    console = Console(markup=False, emoji=False)
    if pull is not None:
        _print_split(console, result.splits[0])
    else:
        _print_table(console, result, contenders)
    if plot is not None:
        console.print(f"Drawn in {plot}.")


def _check_plot(path: Path, pull: int | None) -> None:
    """Refuse a plot that could not be drawn, before anything is computed."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise InputError("--plot", str(path), "a file name that ends in .png, .pdf or .svg")
    if not path.absolute().parent.is_dir():
        raise InputError("--plot", str(path), "in a folder that exists")
    if pull is not None:
        raise InputError("--plot", str(path), "left out with --pull: a plot shows all splits")


def _barring(text: str) -> float | Literal["best"]:
    try:
        return "best" if text == "best" else float(text)
    except ValueError:
        raise InputError("--barring", text, "a probability, from 0 to 1, or best") from None


def _channel(name: str, threshold_db: float | None) -> Channel:
    from fedslot.access.channels import make_channel

    if threshold_db is None:
        return make_channel(name)
    if name != "capture":
        raise InputError("--threshold-db", threshold_db, f"left out with --channel {name}: only capture has one")
    return make_channel(name, threshold_db=threshold_db)


def _with_progress(wanted: bool, compute: Callable[[Progress | None], Plan]) -> Plan:
    """Run a computation, with a progress bar if it is wanted and stderr is a terminal."""
    import sys

    if not wanted or not sys.stderr.isatty():
        return compute(None)
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Splits", total=None)
        return compute(lambda done, of: bar.update(task, completed=done, total=of))


def _print_split(console: Console, split: FrameSplit) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in split.as_dict().items():
        if value is None or name == "standard_errors":
            continue
        error = split.standard_errors.get(name)
        text = str(value) if isinstance(value, int) else f"{value:.4f}"
        table.add_row(name.replace("_", " "), text if error is None else f"{text} ± {error:.4f}")
    console.print(table)


def _print_table(console: Console, result: Plan, contenders: str) -> None:
    """Print a table that fits into 80 characters, without columns that do not apply or repeat another."""
    from rich.table import Table

    best, splits = result.best, result.splits
    simulated = bool(best.standard_errors)
    columns: dict[str, Callable[[FrameSplit], str]] = {
        "pull": lambda split: f"{'▶ ' if split is best else ''}{split.pull}",
        "push": lambda split: f"{split.push}",
        "pushed": lambda split: (
            _number(split.expected_received_push)
            + (f" ±{split.standard_errors['expected_received_push']:.2f}" if simulated else "")
        ),
        "received": lambda split: _number(split.expected_received),
    }
    if any(split.expected_value != split.expected_received for split in splits):
        columns["value"] = lambda split: _number(split.expected_value)
    columns |= {
        "cost\nmax": lambda split: _number(split.expected_cost_max),
        "cost\nsum": lambda split: _number(split.expected_cost_sum),
        "P(no\npush)": lambda split: "<0.001" if 0 < split.nothing_pushed < 0.001 else f"{split.nothing_pushed:.3f}",
    }
    if any(split.probability < 1 for split in splits):
        columns["barring"] = lambda split: f"{split.probability:.3g}"
    elif not simulated:
        columns["cost in\npaper"] = lambda split: _number((split.expected_cost_paper or 0.0) + 1)
    if any(split.within_limit is not None for split in splits):
        columns["P(within\nlimit)"] = lambda split: f"{split.within_limit:.3f}"
    if result.by == "value_in_budget":
        columns["value in\nbudget"] = lambda split: _number(split.value_in_budget or 0.0)

    table = Table(box=None, padding=(0, 2 if len(columns) < 10 else 1, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    shown = _around(len(splits), splits.index(best))
    for before, index in zip([-1, *shown], shown, strict=False):
        if index != before + 1:
            table.add_row("⋮")
        cells = [cell(splits[index]) for cell in columns.values()]
        table.add_row(*cells, style="bold green" if splits[index] is best else None)
    console.print(f"A frame of {result.slots} uplink slots; contenders: {contenders}.\n", highlight=False)
    console.print(table)
    notes = [
        f"▶ most value {'a frame' if result.by == 'expected_value' else 'in the budget'}:"
        f" pull {best.pull}, leave {best.push} open.",
        "Costs are in slots and include the downlink slot.",
    ]
    if len(shown) < len(splits):
        notes.append(f"{len(shown)} of {len(splits)} splits shown; --json has them all.")
    if simulated:
        notes.append("Simulated; ± one standard error.")
    if best.within_limit is not None:
        notes.append("Splits that would exceed the limit end after fewer push slots, or are left out.")
    console.print("\n" + "\n".join(notes), highlight=False)


def _number(value: float) -> str:
    return f"{value:.{2 if value < 1000 else 1 if value < 10_000 else 0}f}"


def _around(count: int, best: int) -> list[int]:
    """Return the indices of the splits to show: those next to the best, and evenly spaced ones."""
    if count <= ROWS:
        return list(range(count))
    near = range(max(0, best - 5), min(count, best + 6))
    spaced = [round(k * (count - 1) / (ROWS - 12)) for k in range(ROWS - 11)]
    return sorted({*near, *spaced})
