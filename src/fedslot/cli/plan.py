"""`fedslot plan`: compare the splits of a frame into pull and push slots, and size a cell."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedslot.cli.options import OverrideOption, complete_scenario, read_scenario
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from fedslot.access.channels import Channel
    from fedslot.access.clock import Radio
    from fedslot.access.pushes import Progress
    from fedslot.planning.inputs import Taken
    from fedslot.planning.sizing import Sizing
    from fedslot.planning.value_ratio import ValueRatio
    from fedslot.scenario import Scenario

RADIO, GOALS, SIMULATION = "Seconds and joules", "Goals", "Simulation of channels other than collision"


def plan(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="A preset or a YAML file, from which all that is not given is taken: slots, contenders, channel, "
            "barring, readiness, time budget, number of UEs, size of the model, radio.",
            autocompletion=complete_scenario,
            show_default=False,
        ),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    slots: Annotated[
        int | None, typer.Option(help="Uplink slots of a frame, M; 20 without a scenario.", show_default=False)
    ] = None,
    contenders: Annotated[
        str | None,
        typer.Option(
            help="Number of UEs that would contend for push slots: a number, poisson:MEAN, binomial:N:P, or numbers "
            "with their probabilities as 5:0.5,10:0.5; 10 without a scenario.",
            show_default=False,
        ),
    ] = None,
    pull: Annotated[int | None, typer.Option(help="Only this number of pull slots, Q.")] = None,
    value_ratio: Annotated[
        float | None,
        typer.Option(
            help="Value of a pushed update; that of a pulled one is 1. The default, 1, says that a pushed update is "
            "worth as much as a pulled one: then pulling wins, unless pulled UEs are not ready.",
            show_default=False,
        ),
    ] = None,
    value_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Estimate the value ratio from the folder of a run, whose pulled and pushed updates were valued.",
            show_default=False,
        ),
    ] = None,
    ready: Annotated[
        float | None,
        typer.Option(
            help="Probability that a pulled UE is ready; one that is not wastes its slot. 1 unless the scenario has "
            "computing times.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Slots to spend; the best split is then the one with the most value in this budget."),
    ] = None,
    frame_limit: Annotated[
        float | None,
        typer.Option(
            help="Slots that a frame may cost, in expectation; each number of pull slots gets the most push slots that "
            "the limit allows."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Keep the limit per frame with this probability instead of in expectation.")
    ] = None,
    barring: Annotated[
        str | None,
        typer.Option(
            help="Probability with which contenders contend, or `best` for the best of each split; 1 without a "
            "scenario.",
            show_default=False,
        ),
    ] = None,
    ues: Annotated[
        int | None,
        typer.Option(help="UEs in the cell, which bounds those that are pulled or contend; all listen.", min=1),
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(
            help="collision (computed exactly); capture, crdsa, irsa or package.module:Name (simulated). collision "
            "without a scenario.",
            show_default=False,
        ),
    ] = None,
    threshold_db: Annotated[
        float | None, typer.Option(help="Capture threshold in dB (with --channel capture; 6 if not given).")
    ] = None,
    slot_ms: Annotated[
        float | None, typer.Option(help="Length of a slot of the radio, in ms.", rich_help_panel=RADIO)
    ] = None,
    bits_per_slot: Annotated[
        float | None,
        typer.Option(
            help="Bits that a slot of the radio carries. An update takes as many slots of the radio as its bits need, "
            "which together are one slot of the frame. Without it, an update takes one.",
            rich_help_panel=RADIO,
        ),
    ] = None,
    downlink_bits: Annotated[
        float | None,
        typer.Option(
            help="Bits that a slot of the downlink carries, which sends the model; by default as in the uplink.",
            rich_help_panel=RADIO,
            show_default=False,
        ),
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(help="Parameters of the model; by default the scenario's.", min=1, rich_help_panel=RADIO),
    ] = None,
    bits_per_parameter: Annotated[
        int | None,
        typer.Option(
            help="Bits of a parameter in an update; by default 32.",
            min=1,
            max=1024,
            rich_help_panel=RADIO,
            show_default=False,
        ),
    ] = None,
    send_mj: Annotated[
        float | None,
        typer.Option(help="Energy of a UE for a slot of the radio in which it sends, in mJ.", rich_help_panel=RADIO),
    ] = None,
    listen_mj: Annotated[
        float | None,
        typer.Option(
            help="Energy of a UE for a slot of the downlink, to which all UEs listen, in mJ; 0 if not given.",
            rich_help_panel=RADIO,
            show_default=False,
        ),
    ] = None,
    want_updates: Annotated[
        float | None,
        typer.Option(help="Find the shortest frame that receives this number of updates.", rich_help_panel=GOALS),
    ] = None,
    success: Annotated[
        float | None,
        typer.Option(
            help="Find how many contenders each split bears, if each is to be received with this probability.",
            rich_help_panel=GOALS,
        ),
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(
            help="Frames to simulate for each split; 4000 if not given.",
            rich_help_panel=SIMULATION,
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Simulate a split only until the standard errors of its pushes and of its cost are this part of them.",
            rich_help_panel=SIMULATION,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the simulation; 0 if not given.", rich_help_panel=SIMULATION, show_default=False),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw yield and cost of all splits into a .png, .pdf or .svg file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare the yield and the cost of all splits of a frame into pull and push slots, and size a cell.

    Example: fedslot plan quickstart --slot-ms 1 --bits-per-slot 1000 --send-mj 0.5 --listen-mj 0.1
    """
    import json

    from fedslot.access.clock import NO_RADIO
    from fedslot.planning.inputs import own_pull, take, take_radio
    from fedslot.planning.sizing import SizingRequest

    if plot is not None:
        _check_plot(plot, pull)
    if override and source is None:
        raise InputError("-o", override[0], "given with a SCENARIO")
    scenario = None if source is None else read_scenario(source, override)
    options = {
        "slots": slots,
        "contenders": contenders,
        "ues": ues,
        "barring": None if barring is None else _barring(barring),
        "channel": channel,
        "budget": budget,
        "ready": ready,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    taken = {} if scenario is None else {n: value for n, value in take(scenario, slots, ues).items() if n not in given}
    cell: dict[str, Any] = {"slots": 20, "contenders": "10", "channel": "collision"}
    cell |= {name: value.value for name, value in taken.items()} | given
    rates: dict[str, Any] = {
        "slot_ms": slot_ms,
        "bits_per_slot": bits_per_slot,
        "downlink_bits": downlink_bits,
        "send_mj": send_mj,
        "listen_mj": listen_mj,
    }
    if scenario is not None:
        own_radio = {name: value for name, value in take_radio(scenario).items() if rates[name] is None}
        rates |= {name: value.value for name, value in own_radio.items()}
        taken |= own_radio
        if bits_per_parameter is None and rates["bits_per_slot"] is not None:
            bits_per_parameter = scenario.radio.bits_per_parameter
    downlink_bits, bits_per_slot = rates["downlink_bits"], rates["bits_per_slot"]
    if cell.get("budget") is not None and downlink_bits is not None:
        allowed = "left out with a budget, whose slots include one for each downlink"
        raise InputError("--downlink-bits", downlink_bits, allowed)
    if frame_limit is not None and downlink_bits is not None:
        raise InputError(
            "--downlink-bits", downlink_bits, "left out with --frame-limit, which includes one downlink slot"
        )
    if budget is not None and scenario is not None and scenario.cost_rule.name != "max":
        allowed = f"left out with cost_rule: {scenario.cost_rule.name}; a plan counts slots by the clock"
        raise InputError("--budget", budget, allowed)
    own_channel = scenario.push.channel.options if scenario is not None and "channel" in taken else {}
    with _named_as_options({*given, "threshold_db"}):
        medium = _channel(cell["channel"], threshold_db, own_channel)
    size = _parameters(parameters, bits_per_slot, scenario)
    if bits_per_parameter is not None and bits_per_slot is None:
        raise InputError("--bits-per-parameter", bits_per_parameter, "given with --bits-per-slot")
    parameter_bits = bits_per_parameter or 32
    radio = _radio(
        scenario if cell.get("ready", 1.0) is None else None,
        bits=1 if size is None else size * parameter_bits,
        **rates,
    )
    estimate = None if value_from is None else _estimate(value_from, value_ratio)
    own = None if scenario is None else own_pull(scenario)
    wanted = {"frames": frames, "precision": precision, "seed": seed}
    simulation: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    request = SizingRequest(
        **{**cell, "channel": medium},
        pull=pull,
        own_pull=own if own is not None and own <= cell["slots"] else None,
        value_ratio=value_ratio if value_ratio is not None else 1.0 if estimate is None else max(0.0, estimate.ratio),
        frame_limit=frame_limit,
        confidence=confidence,
        **simulation,
        radio=radio,
        scenario=scenario,
        want_updates=want_updates,
        success=success,
    )
    with _named_as_options(given, taken, contenders):
        answer = _with_progress(pull is None or request.simulated, request.answer)
    if not request.simulated:
        for name in simulation:
            typer.echo(f"note: --{name} has no effect on the collision channel, which is computed", err=True)
    if plot is not None:
        from fedslot.views.plan import plot_plan

        plot_plan(answer.plan, plot)
    if as_json:
        asked = {
            **({"scenario": source, "taken": {name: value.field for name, value in taken.items()}} if source else {}),
            "slots": request.slots,
            "contenders": request.contenders,
            "ues": request.ues,
            "value_ratio": request.value_ratio,
            "ready": request.ready,
            "budget": request.budget,
            "barring": request.barring,
            "channel": cell["channel"],
            **({"threshold_db": threshold_db} if threshold_db is not None else {}),
            **({"frame_limit": frame_limit, "confidence": confidence} if frame_limit is not None else {}),
            **({name: getattr(request, name) for name in ("frames", "precision", "seed")} if request.simulated else {}),
            **({"value_estimate": estimate.as_dict()} if estimate else {}),
            **({"parameters": size, "bits_per_parameter": parameter_bits} if size else {}),
            **({"want_updates": want_updates} if want_updates is not None else {}),
        }
        typer.echo(json.dumps({**asked, **answer.as_dict()}, indent=2, allow_nan=False))
        return

    from rich.console import Console

    from fedslot.views.plan_tables import print_answer, say_taken, say_update, say_value_ratio

    console = Console(markup=False, emoji=False, highlight=False)
    if source is not None:
        console.print(say_taken(source, taken))
    notes = say_value_ratio(value_ratio, estimate, answer.plan.break_even if pull is None else None)
    print_answer(console, answer, notes, "" if radio == NO_RADIO else say_update(radio, size, parameter_bits))
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


@contextmanager
def _named_as_options(
    fields: Collection[str] = (), taken: Mapping[str, Taken] = MappingProxyType({}), contenders: str | None = None
) -> Iterator[None]:
    """Name the fields in errors as the options are; those of a scenario only if they are among `fields`.

    taken: what is taken from a scenario, and named as its fields. contenders: as the user gave them.
    """
    try:
        yield
    except InputError as error:
        section, _, name = error.field.rpartition(".")
        if section and name not in fields:
            raise
        if name in taken:
            raise InputError(taken[name].field, error.value, error.allowed) from None
        value = contenders if name == "contenders" and contenders else error.value
        raise InputError(f"--{name.replace('_', '-')}", value, error.allowed) from None


def _barring(text: str) -> float | Literal["best"]:
    try:
        return "best" if text == "best" else float(text)
    except ValueError:
        raise InputError("--barring", text, "a probability, from 0 to 1, or best") from None


def _channel(name: str, threshold_db: float | None, options: Mapping[str, Any]) -> Channel:
    from fedslot.access.channels import make_channel

    if threshold_db is None:
        return make_channel(name, **options)
    if name != "capture":
        raise InputError("threshold_db", threshold_db, f"left out with --channel {name}: only capture has one")
    return make_channel(name, **{**options, "threshold_db": threshold_db})


def _parameters(given: int | None, bits_per_slot: float | None, scenario: Scenario | None) -> int | None:
    """Return the number of parameters of the model, if it matters how many bits a slot carries."""
    if bits_per_slot is None:
        if given is not None:
            raise InputError("--parameters", given, "given with --bits-per-slot")
        return None
    if given is not None:
        return given
    if scenario is None:
        raise InputError("--bits-per-slot", bits_per_slot, "given with --parameters, or with a SCENARIO and its model")
    from fedslot.planning.inputs import count_parameters

    return count_parameters(scenario)


def _radio(late: Scenario | None, slot_ms: float | None, listen_mj: float | None, **fields: Any) -> Radio:
    """Return the radio. late: a scenario with computing times, whose slot has a length and carries an update."""
    from dataclasses import replace

    from fedslot.access.clock import Radio

    if listen_mj is not None and fields["send_mj"] is None:
        raise InputError("--listen-mj", listen_mj, "given with --send-mj")
    with _named_as_options():
        radio = Radio(slot_ms=slot_ms, listen_mj=listen_mj or 0.0, **fields)
    if slot_ms is None and late is not None and late.fleet.computing is not None:
        return replace(radio, slot_ms=1000 * late.fleet.computing.slot / radio.update_slots)
    return radio


def _estimate(folder: Path, value_ratio: float | None) -> ValueRatio:
    """Estimate the value ratio from the folder of a run."""
    from fedslot.experiments.loading import load
    from fedslot.runs.results import Result

    if value_ratio is not None:
        raise InputError("--value-from", str(folder), "left out with --value-ratio")
    if not folder.is_dir():
        raise RefusedError(f"{folder} is no folder")
    run = load(folder)
    if not isinstance(run, Result):
        raise RefusedError(f"{folder} holds several runs; give the folder of one of them for --value-from")
    return run.value_ratio()


def _with_progress(wanted: bool, compute: Callable[[Progress | None], Sizing]) -> Sizing:
    """Run a computation, with a progress bar if it is wanted and stderr is a terminal."""
    import sys

    if not wanted or not sys.stderr.isatty():
        return compute(None)
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Splits", total=None)
        return compute(lambda done, of: bar.update(task, completed=done, total=of))
