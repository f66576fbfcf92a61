"""`fedslot plan`: compare the splits of a frame into pull and push slots, and size a cell."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedslot.cli.options import OverrideOption, complete_scenario, read_scenario
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from fedslot.access.channels import Channel
    from fedslot.access.clock import Radio
    from fedslot.planning.cell import Progress
    from fedslot.planning.inputs import Taken
    from fedslot.planning.sizing import Sizing
    from fedslot.runs.value_ratio import ValueRatio
    from fedslot.scenario import Scenario


def _option(help: str, panel: str | None = None, **options: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=panel, show_default=False, **options)


RADIO, GOALS, SIMULATION = "Seconds and joules", "Goals", "Simulation of channels other than collision"
DEFAULTS = {
    "slots": 20,
    "contenders": "10",
    "ues": None,
    "barring": 1.0,
    "channel": "collision",
    "budget": None,
    "ready": 1.0,
}
"""Options that are taken from a scenario if they are not given, and their values without one."""


@dataclass(frozen=True)
class Options:
    """The options of the command, in the order of its help."""

    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="A preset or a YAML file, from which all that is not given is taken: slots, contenders, channel, "
            "barring, readiness, time budget, number of UEs, size of the model, radio.",
            autocompletion=complete_scenario,
            show_default=False,
        ),
    ] = None
    override: OverrideOption = ()  # type: ignore[assignment]
    slots: Annotated[int | None, _option("Uplink slots of a frame, M; 20 without a scenario.")] = None
    contenders: Annotated[
        str | None,
        _option(
            "Number of UEs that would contend for push slots: a number, poisson:MEAN, binomial:N:P, or numbers "
            "with their probabilities as 5:0.5,10:0.5; 10 without a scenario."
        ),
    ] = None
    pull: Annotated[int | None, _option("Only this number of pull slots, Q.")] = None
    value_ratio: Annotated[
        float | None,
        _option(
            "Value of a pushed update; that of a pulled one is 1. The default, 1, says that a pushed update is "
            "worth as much as a pulled one: then pulling wins, unless pulled UEs are not ready."
        ),
    ] = None
    value_from: Annotated[
        Path | None,
        _option(
            "Estimate the value ratio from the folder of a run, whose pulled and pushed updates were valued.",
            metavar="FOLDER",
        ),
    ] = None
    ready: Annotated[
        float | None,
        _option(
            "Probability that a pulled UE is ready; one that is not wastes its slot. 1 unless the scenario has "
            "computing times."
        ),
    ] = None
    budget: Annotated[
        float | None, _option("Slots to spend; the best split is then the one with the most value in this budget.")
    ] = None
    frame_limit: Annotated[
        float | None,
        _option(
            "Slots that a frame may cost, in expectation; each number of pull slots gets the most push slots that "
            "the limit allows."
        ),
    ] = None
    confidence: Annotated[
        float | None, _option("Keep the limit per frame with this probability instead of in expectation.")
    ] = None
    barring: Annotated[
        str | None,
        _option(
            "Probability with which contenders contend, or `best` for the best of each split; 1 without a scenario."
        ),
    ] = None
    ues: Annotated[
        int | None, _option("UEs in the cell, which bounds those that are pulled or contend; all listen.", min=1)
    ] = None
    channel: Annotated[
        str | None,
        _option(
            "collision (computed exactly); capture, crdsa, irsa or package.module:Name (simulated). collision "
            "without a scenario."
        ),
    ] = None
    threshold_db: Annotated[
        float | None, _option("Capture threshold in dB (with --channel capture; 6 if not given).")
    ] = None
    slot_ms: Annotated[float | None, _option("Length of a slot of the radio, in ms.", RADIO)] = None
    bits_per_slot: Annotated[
        float | None,
        _option(
            "Bits that a slot of the radio carries. An update takes as many slots of the radio as its bits need, "
            "which together are one slot of the frame. Without it, an update takes one.",
            RADIO,
        ),
    ] = None
    downlink_bits: Annotated[
        float | None,
        _option("Bits that a slot of the downlink carries, which sends the model; by default as in the uplink.", RADIO),
    ] = None
    parameters: Annotated[int | None, _option("Parameters of the model; by default the scenario's.", RADIO, min=1)] = (
        None
    )
    bits_per_parameter: Annotated[
        int | None, _option("Bits of a parameter in an update; by default 32.", RADIO, min=1, max=1024)
    ] = None
    send_mj: Annotated[
        float | None, _option("Energy of a UE for a slot of the radio in which it sends, in mJ.", RADIO)
    ] = None
    listen_mj: Annotated[
        float | None,
        _option("Energy of a UE for a slot of the downlink, to which all UEs listen, in mJ; 0 if not given.", RADIO),
    ] = None
    want_updates: Annotated[
        float | None, _option("Find the shortest frame that receives this number of updates.", GOALS)
    ] = None
    success: Annotated[
        float | None,
        _option("Find how many contenders each split bears, if each is to be received with this probability.", GOALS),
    ] = None
    frames: Annotated[int | None, _option("Frames to simulate for each split; 4000 if not given.", SIMULATION)] = None
    precision: Annotated[
        float | None,
        _option(
            "Simulate a split only until the standard errors of its pushes and of its cost are this part of them.",
            SIMULATION,
        ),
    ] = None
    seed: Annotated[int | None, _option("Seed of the simulation; 0 if not given.", SIMULATION)] = None
    plot: Annotated[Path | None, _option("Draw yield and cost of all splits into a .png, .pdf or .svg file.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False

    def given(self, *names: str) -> dict[str, Any]:
        """Return the options among `names` that are given."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def with_radio(self, scenario: Scenario) -> tuple[Options, dict[str, Taken]]:
        """Return the options with those of a scenario's radio that are not given, and which these are."""
        from fedslot.planning.inputs import take_radio

        taken = {name: value for name, value in take_radio(scenario).items() if getattr(self, name) is None}
        options = replace(self, **{name: value.value for name, value in taken.items()})
        if options.bits_per_slot is not None and options.bits_per_parameter is None:
            options = replace(options, bits_per_parameter=scenario.radio.bits_per_parameter)
        return options, taken

    def check(self) -> None:
        """Refuse options that do not go together, before anything is read or computed."""
        if self.plot is not None:
            if self.plot.suffix.lower() not in (".png", ".pdf", ".svg"):
                raise InputError("--plot", str(self.plot), "a file name that ends in .png, .pdf or .svg")
            if not self.plot.absolute().parent.is_dir():
                raise InputError("--plot", str(self.plot), "in a folder that exists")
            if self.pull is not None:
                raise InputError("--plot", str(self.plot), "left out with --pull: a plot shows all splits")
        if self.override and self.source is None:
            raise InputError("-o", self.override[0], "given with a SCENARIO")
        if self.value_from is not None and self.value_ratio is not None:
            raise InputError("--value-from", str(self.value_from), "left out with --value-ratio")


def _plan(options: Options) -> None:
    """Compare the yield and the cost of all splits of a frame into pull and push slots, and size a cell.

    Example: fedslot plan quickstart --slot-ms 1 --bits-per-slot 1000 --send-mj 0.5 --listen-mj 0.1
    """
    from fedslot.access.clock import NO_RADIO
    from fedslot.planning.cell import PushCell
    from fedslot.planning.contenders import parse_contenders
    from fedslot.planning.inputs import take
    from fedslot.planning.planner import Objective
    from fedslot.planning.sizing import SizingRequest

    options.check()
    source, pull = options.source, options.pull
    scenario = None if source is None else read_scenario(source, options.override)
    given = options.given(*DEFAULTS)
    if options.barring is not None:
        given["barring"] = _barring(options.barring)
    taken = {} if scenario is None else take(scenario, options.slots, options.ues)
    taken = {name: value for name, value in taken.items() if name not in given}
    if scenario is not None:
        options, own_radio = options.with_radio(scenario)
        taken |= own_radio
    chosen: dict[str, Any] = DEFAULTS | {name: value.value for name, value in taken.items()} | given
    _check_slots(options, chosen["budget"], scenario)
    simulation = options.given("frames", "precision", "seed")
    estimate = None if options.value_from is None else _estimate(options.value_from)
    ratio = 1.0 if estimate is None else max(0.0, estimate.ratio)
    ratio = options.value_ratio if options.value_ratio is not None else ratio
    parameters = _parameters(options, scenario)
    with _named_as_options({*given, "threshold_db"}, taken, options.contenders):
        late = scenario if chosen["ready"] is None else None
        cell = PushCell(
            parse_contenders(chosen["contenders"]),
            _channel(chosen["channel"], options.threshold_db, scenario if "channel" in taken else None),
            ready=1.0 if late else chosen["ready"],
            ues=chosen["ues"],
            barring=chosen["barring"],
            **simulation,
        )
        request = SizingRequest(
            chosen["slots"],
            cell,
            Objective(ratio, chosen["budget"], options.frame_limit, options.confidence),
            pull=pull,
            own_pull=None if scenario is None else _own_pull(scenario, chosen["slots"]),
            radio=_radio(options, parameters, late),
            late=late,
            want_updates=options.want_updates,
            success=options.success,
        )
        answer = _with_progress(pull is None or not cell.computed, request.answer)
    if cell.computed:
        for name in simulation:
            typer.echo(f"note: --{name} has no effect on the collision channel, which is computed", err=True)
    if options.plot is not None:
        from fedslot.views.plan import plot_plan

        plot_plan(answer.plan, options.plot)
    if options.as_json:
        _print_json(options, chosen, taken, estimate, parameters, answer)
        return

    from rich.console import Console

    from fedslot.views.plan_tables import print_answer, say_taken, say_update, say_value_ratio

    console = Console(markup=False, emoji=False, highlight=False)
    if source is not None:
        console.print(say_taken(source, taken))
    notes = say_value_ratio(options.value_ratio, estimate, answer.plan.break_even if pull is None else None)
    update = say_update(request.radio, parameters, options.bits_per_parameter or 32)
    arrivals = scenario.push.arrivals if scenario is not None and "contenders" in taken else None
    update = "" if request.radio == NO_RADIO else update
    print_answer(console, answer, chosen["contenders"], arrivals, notes, update)
    if options.plot is not None:
        console.print(f"Drawn in {options.plot}.")


def plan(**options: Any) -> None:
    """Run the command with its options as keyword arguments."""
    _plan(Options(**options))


plan.__doc__ = _plan.__doc__
plan.__signature__ = inspect.signature(Options, eval_str=True)  # type: ignore[attr-defined]  # which Typer reads


def _print_json(
    options: Options,
    chosen: Mapping[str, Any],
    taken: Mapping[str, Taken],
    estimate: ValueRatio | None,
    parameters: int | None,
    answer: Sizing,
) -> None:
    import json

    cell = answer.request.cell
    asked: dict[str, Any] = {}
    if options.source:
        asked |= {"scenario": options.source, "taken": {name: value.field for name, value in taken.items()}}
    asked |= {name: chosen[name] for name in ("slots", "contenders", "ues")}
    asked |= {"value_ratio": answer.request.objective.value_ratio}
    asked |= {name: chosen[name] for name in ("ready", "budget", "barring", "channel")}
    asked |= options.given("threshold_db")
    if options.frame_limit is not None:
        asked |= {"frame_limit": options.frame_limit, "confidence": options.confidence}
    if not cell.computed:
        asked |= {"frames": cell.frames, "precision": cell.precision, "seed": cell.seed}
    if estimate:
        asked["value_estimate"] = estimate.as_dict()
    if parameters:
        asked |= {"parameters": parameters, "bits_per_parameter": options.bits_per_parameter or 32}
    asked |= options.given("want_updates")
    typer.echo(json.dumps({**asked, **answer.as_dict()}, indent=2, allow_nan=False))


@contextmanager
def _named_as_options(fields: Collection[str], taken: Mapping[str, Taken], contenders: str | None) -> Iterator[None]:
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


def _check_slots(options: Options, budget: float | None, scenario: Scenario | None) -> None:
    """Refuse what does not go with the slots: of the radio, with one for the downlink, or by the clock."""
    for name in ("parameters", "bits_per_parameter"):
        if options.bits_per_slot is None and getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}", getattr(options, name), "given with --bits-per-slot")
    if options.listen_mj is not None and options.send_mj is None:
        raise InputError("--listen-mj", options.listen_mj, "given with --send-mj")
    bits = options.downlink_bits
    if bits is not None and budget is not None:
        raise InputError("--downlink-bits", bits, "left out with a budget, whose slots include one for each downlink")
    if bits is not None and options.frame_limit is not None:
        raise InputError("--downlink-bits", bits, "left out with --frame-limit, which includes one downlink slot")
    if options.budget is not None and scenario is not None and scenario.cost_rule.name != "max":
        allowed = f"left out with cost_rule: {scenario.cost_rule.name}; a plan counts slots by the clock"
        raise InputError("--budget", options.budget, allowed)


def _barring(text: str) -> float | Literal["best"]:
    try:
        return "best" if text == "best" else float(text)
    except ValueError:
        raise InputError("--barring", text, "a probability, from 0 to 1, or best") from None


def _channel(name: str, threshold_db: float | None, scenario: Scenario | None) -> Channel:
    """Return the channel; scenario: the one that it is from, with its options."""
    from fedslot.access.channels import make_channel

    options = {} if scenario is None else scenario.push.channel.options
    if threshold_db is None:
        return make_channel(name, **options)
    if name != "capture":
        raise InputError("threshold_db", threshold_db, f"left out with --channel {name}: only capture has one")
    return make_channel(name, **{**options, "threshold_db": threshold_db})


def _own_pull(scenario: Scenario, slots: int) -> int | None:
    """Return the scenario's number of pull slots; None if its strategy does not go by it, or it has more slots."""
    from fedslot.rounds.effects import without_effect

    has_none = scenario.frame.pull > slots or "frame.pull" in without_effect(scenario)
    return None if has_none else scenario.frame.pull


def _parameters(options: Options, scenario: Scenario | None) -> int | None:
    """Return the number of parameters of the model, if it matters how many bits a slot carries."""
    if options.bits_per_slot is None or options.parameters is not None:
        return options.parameters
    if scenario is None:
        allowed = "given with --parameters, or with a SCENARIO and its model"
        raise InputError("--bits-per-slot", options.bits_per_slot, allowed)
    from fedslot.planning.inputs import count_parameters

    return count_parameters(scenario)


def _radio(options: Options, parameters: int | None, late: Scenario | None) -> Radio:
    """Return the radio. late: a scenario with computing times, whose slot has a length and carries an update."""
    from fedslot.access.clock import Radio

    bits = 1 if parameters is None else parameters * (options.bits_per_parameter or 32)
    fields = options.given("slot_ms", "bits_per_slot", "downlink_bits", "send_mj", "listen_mj")
    radio = Radio(bits=bits, **fields)
    if options.slot_ms is None and late is not None and late.fleet.computing is not None:
        return replace(radio, slot_ms=1000 * late.fleet.computing.slot / radio.update_slots)
    return radio


def _estimate(folder: Path) -> ValueRatio:
    """Estimate the value ratio from the folder of a run."""
    from fedslot.experiments.loading import load
    from fedslot.runs.results import Result

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
