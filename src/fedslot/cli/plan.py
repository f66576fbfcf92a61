"""`fedslot plan`: compare the splits of a frame into pull and push slots, and size a cell."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedslot.cli.options import OverrideOption, complete_scenario, read_scenario
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedslot.access.channels import Channel
    from fedslot.access.clock import Radio
    from fedslot.experiments.compression_loss import CompressionLoss
    from fedslot.planning.cell import Progress, PushCell
    from fedslot.planning.inputs import Taken
    from fedslot.runs.value_ratio import ValueRatio
    from fedslot.scenario import Scenario


def _option(help: str, panel: str | None = None, **options: Any) -> Any:
    return typer.Option(None, help=help, rich_help_panel=panel, show_default=False, **options)


RADIO, GOALS, SIMULATION = "Seconds and joules", "Goals", "Simulation of channels other than collision"
WHOLE = "A whole training: lost packets, duty cycle, time, batteries"
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
LINK = {"packet_loss": "loss", "tries": "tries", "coded": "coded", "outage": "outage"}
SPENT = ("train_mj", "sleep_mw")
TRAINING = ("rounds", "duty_cycle", "train_mj", "sleep_mw", "battery_wh")


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
    slots: int | None = _option("Uplink slots of a frame, M; 20 without a scenario.")
    contenders: str | None = _option(
        "Number of UEs that would contend for push slots: a number, poisson:MEAN, binomial:N:P, or numbers "
        "with their probabilities as 5:0.5,10:0.5; 10 without a scenario."
    )
    arrivals: float | None = _option(
        "Mean number of UEs that get an update in a slot, instead of contenders: each stays backlogged until it is "
        "received, and numbers are those of the long run."
    )
    pull: int | None = _option("Only this number of pull slots, Q.")
    value_ratio: float | None = _option(
        "Value of a pushed update; that of a pulled one is 1. The default, 1, says that a pushed update is "
        "worth as much as a pulled one: then pulling wins, unless pulled UEs are not ready."
    )
    value_from: Path | None = _option(
        "Estimate the value ratio from the folder of a run, whose pulled and pushed updates were valued.",
        metavar="FOLDER",
    )
    ready: float | None = _option(
        "Probability that a pulled UE is ready; one that is not wastes its slot. 1 unless the scenario has "
        "computing times."
    )
    budget: float | None = _option("Slots to spend; the best split is then the one with the most value in this budget.")
    frame_limit: float | None = _option(
        "Slots that a frame may cost, in expectation; each number of pull slots gets the most push slots that "
        "the limit allows."
    )
    confidence: float | None = _option("Keep the limit per frame with this probability instead of in expectation.")
    barring: str | None = _option(
        "Probability with which contenders contend; `best` for the best of each split, or `auto` as the PS controls "
        "it in a run; 1 without a scenario."
    )
    ues: int | None = _option("UEs in the cell, which bounds those that are pulled or contend; all listen.", min=1)
    channel: str | None = _option(
        "collision (computed exactly); capture, crdsa, irsa or package.module:Name (simulated). collision "
        "without a scenario."
    )
    threshold_db: float | None = _option("Capture threshold in dB (with --channel capture; 6 if not given).")
    slot_ms: float | None = _option("Length of a slot of the radio, in ms.", RADIO)
    bits_per_slot: float | None = _option(
        "Bits that a slot of the radio carries. An update takes as many slots of the radio as its bits need, "
        "which together are one slot of the frame. Without it, an update takes one.",
        RADIO,
    )
    downlink_bits: float | None = _option(
        "Bits that a slot of the downlink carries, which sends the model; by default as in the uplink.", RADIO
    )
    parameters: int | None = _option("Parameters of the model; by default the scenario's.", RADIO, min=1)
    bits_per_parameter: int | None = _option(
        "Bits of a parameter in an update; by default as many as in the model, which the downlink carries: 32, or as "
        "the scenario says.",
        RADIO,
        min=1,
        max=1024,
    )
    accuracy_from: Path | None = _option(
        "Take the loss of accuracy by the scenario's compression from the runs in this folder, a comparison or a sweep "
        "with and without it.",
        RADIO,
        metavar="FOLDER",
    )
    send_mj: float | None = _option("Energy of a UE for a slot of the radio in which it sends, in mJ.", RADIO)
    listen_mj: float | None = _option(
        "Energy of a UE for a slot of the downlink, to which all UEs listen, in mJ; 0 if not given.", RADIO
    )
    packet_loss: float | None = _option(
        "Probability that a packet, a slot of the radio, is lost; an update is lost with one of its packets.", WHOLE
    )
    tries: int | None = _option(
        "How often each packet is sent at most, until it is acknowledged; 1 if not given.", WHOLE
    )
    coded: int | None = _option(
        "Packets that an erasure code adds to an update, of which any that suffice in number restore it.", WHOLE
    )
    outage: float | None = _option("Probability that all packets of an update are lost together.", WHOLE)
    duty_cycle: float | None = _option("Share of the time in which a UE may send.", WHOLE)
    rounds: float | None = _option("Frames of a training.", WHOLE)
    train_mj: float | None = _option("Energy of a UE to train an update, in mJ.", WHOLE)
    sleep_mw: float | None = _option("Power of a UE that sleeps, in mW.", WHOLE)
    battery_wh: float | None = _option("Energy of the battery of a UE, in Wh.", WHOLE)
    want_updates: float | None = _option("Find the shortest frame that receives this number of updates.", GOALS)
    success: float | None = _option(
        "Find how many contenders each split bears, if each is to be received with this probability.", GOALS
    )
    frames: int | None = _option("Frames to simulate for each split; 4000 if not given.", SIMULATION)
    precision: float | None = _option(
        "Simulate a split only until the standard errors of its pushes and of its cost are this part of them.",
        SIMULATION,
    )
    seed: int | None = _option("Seed of the simulation; 0 if not given.", SIMULATION)
    plot: Path | None = _option("Draw yield and cost of all splits into a .png, .pdf or .svg file.")
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False

    def given(self) -> dict[str, Any]:
        """Return the options that are given."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.barring is not None and self.barring not in ("best", "auto"):
            try:
                given["barring"] = float(self.barring)
            except ValueError:
                raise InputError("--barring", self.barring, "a probability, from 0 to 1, best or auto") from None
        return given


def plan(**words: Any) -> None:
    """Compare the yield and the cost of all splits of a frame into pull and push slots, and size a cell.

    Example: fedslot plan quickstart --slot-ms 1 --bits-per-slot 1000 --send-mj 0.5 --listen-mj 0.1
    """
    from fedslot.planning.cell import PushCell
    from fedslot.planning.contenders import parse_contenders
    from fedslot.planning.inputs import take
    from fedslot.planning.planner import Objective
    from fedslot.planning.sizing import Sizing
    from fedslot.planning.training import PacketLoss, TrainingPlan

    options = Options(**words)
    given, source = options.given(), options.source
    if options.override and source is None:
        raise InputError("-o", options.override[0], "given with a SCENARIO")
    scenario = None if source is None else read_scenario(source, options.override)
    taken = {} if scenario is None else take(scenario, options.slots, options.ues)
    one_of_both = {"contenders", "arrivals"}  # which are instead of each other
    left_out = given.keys() | (one_of_both if one_of_both & given.keys() else set())
    taken = {name: value for name, value in taken.items() if name not in left_out}
    chosen: dict[str, Any] = DEFAULTS | {name: value.value for name, value in taken.items()} | given
    _check(chosen, scenario)
    estimate = None if options.value_from is None else _estimate(options.value_from)
    ratio = chosen.get("value_ratio", 1.0 if estimate is None else max(0.0, estimate.ratio))
    loss = None if scenario is None or options.accuracy_from is None else _loss(scenario, options.accuracy_from)
    sizes = _sizes(chosen, scenario)
    rule: Any = "max" if scenario is None or "arrivals" not in chosen else _rule(scenario)
    simulation = {name: given[name] for name in ("frames", "precision", "seed") if name in given}
    with _named_as_options(given, taken):
        late = scenario if chosen["ready"] is None else None
        radio = _radio(chosen, sizes, late)
        cell = PushCell(
            parse_contenders("0" if "arrivals" in chosen else chosen["contenders"]),
            _channel(chosen, scenario if "channel" in taken else None),
            ready=1.0 if late else chosen["ready"],
            ues=chosen["ues"],
            barring=chosen["barring"],
            arrivals=chosen.get("arrivals"),
            rule=rule,
            **simulation,
        )
        with _progress_bar(options.pull is None or not cell.computed) as progress:
            sizing = Sizing(
                chosen["slots"],
                cell,
                Objective(ratio, chosen["budget"], options.frame_limit, options.confidence),
                pull=options.pull,
                own_pull=None if scenario is None else _own_pull(scenario, chosen["slots"]),
                radio=radio,
                late=late,
                link=PacketLoss(**{field: chosen[name] for name, field in LINK.items() if name in chosen}),
                training=TrainingPlan(**{name: chosen[name] for name in TRAINING if name in chosen}),
                want_updates=options.want_updates,
                success=options.success,
                progress=progress,
            )
            numbers = sizing.as_dict()
    if scenario is not None and "rates" in scenario.radio.model_fields_set:
        line = "a plan takes all UEs to be at the full rate; radio.rates is not in it, nor are losses by it"
        typer.echo(f"note: {line}", err=True)
    if not sizing.plan.best.standard_errors:
        for name in simulation:
            typer.echo(f"note: --{name} has no effect on the collision channel, which is computed", err=True)
    if options.plot is not None:
        from fedslot.views.plan import plot_plan

        plot_plan(sizing.plan, options.plot)
    if options.as_json:
        import json

        asked = _asked({**chosen, "value_ratio": ratio}, taken, cell, estimate)
        asked |= {} if loss is None else {"accuracy_loss": loss.as_dict()}
        typer.echo(json.dumps({**asked, **numbers}, indent=2, allow_nan=False))
    else:
        from fedslot.views.plan_tables import print_answer

        print_answer(sizing, chosen, taken, estimate, loss)


plan.__signature__ = inspect.signature(Options, eval_str=True)  # type: ignore[attr-defined]  # which Typer reads


def _check(chosen: Mapping[str, Any], scenario: Scenario | None) -> None:
    """Refuse options that do not go together, before anything is computed."""
    has = {name for name, value in chosen.items() if value is not None}
    plot, cost_rule = chosen.get("plot", Path()), "max" if scenario is None else scenario.cost_rule.name
    model = scenario is not None or "parameters" in has
    compressed = scenario is not None and scenario.compression is not None
    sized = (
        "bits_per_slot" in has or compressed or (scenario is not None and scenario.broadcast_compression is not None)
    )
    rules = [
        ("plot", plot.suffix.lower() in (".png", ".pdf", ".svg"), "a file name that ends in .png, .pdf or .svg"),
        ("plot", plot.absolute().parent.is_dir(), "in a folder that exists"),
        ("plot", "pull" not in has, "left out with --pull: a plot shows all splits"),
        ("value_from", "value_ratio" not in has, "left out with --value-ratio"),
        ("parameters", bool(sized), "given with --bits-per-slot"),
        ("bits_per_parameter", "bits_per_slot" in has, "given with --bits-per-slot"),
        ("bits_per_parameter", "compression" not in has, "left out with the scenario's compression"),
        ("accuracy_from", "compression" in has, "given with a SCENARIO that has a compression"),
        ("bits_per_slot", model, "given with --parameters, or with a SCENARIO and its model"),
        ("arrivals", chosen["contenders"] is DEFAULTS["contenders"], "left out with --contenders"),
        ("arrivals", "ues" in has, "given with --ues, or with a SCENARIO"),
        ("listen_mj", "send_mj" in has, "given with --send-mj"),
        ("packet_loss", "bits_per_slot" in has, "given with --bits-per-slot, the bits of a packet"),
        *((name, "packet_loss" in has, "given with --packet-loss") for name in ("tries", "coded")),
        ("battery_wh", {"send_mj", "slot_ms"} <= has, "given with --send-mj and --slot-ms"),
        *((name, "ues" in has, "given with --ues, or with a SCENARIO") for name in ("duty_cycle", "battery_wh")),
        *((name, "battery_wh" in has or "rounds" in has, "given with --battery-wh or --rounds") for name in SPENT),
        ("downlink_bits", "budget" not in has, "left out with a budget, whose slots include one for each downlink"),
        ("downlink_bits", "frame_limit" not in has, "left out with --frame-limit, which includes one downlink slot"),
        ("budget", cost_rule == "max", f"left out with cost_rule: {cost_rule}; a plan counts slots by the clock"),
    ]
    for name, holds, allowed in rules:
        if name in has and not holds:
            value = chosen[name]
            raise InputError(_as_option(name), str(value) if isinstance(value, Path) else value, allowed)


def _as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _asked(
    chosen: Mapping[str, Any], taken: Mapping[str, Taken], cell: PushCell, estimate: ValueRatio | None
) -> dict[str, Any]:
    """Return what was asked, for JSON."""
    asked: dict[str, Any] = {}
    if "source" in chosen:
        asked |= {"scenario": chosen["source"], "taken": {name: value.field for name, value in taken.items()}}
    who = "arrivals" if "arrivals" in chosen else "contenders"
    names = ["slots", who, "ues", "value_ratio", "ready", "budget", "barring", "channel", "threshold_db"]
    asked |= {name: chosen[name] for name in names if name in chosen}
    if "frame_limit" in chosen:
        asked |= {name: chosen.get(name) for name in ("frame_limit", "confidence")}
    if not cell.computed:
        asked |= {"frames": cell.frames, "precision": cell.precision, "seed": cell.seed}
    if estimate:
        asked["value_estimate"] = estimate.as_dict()
    if "parameters" in chosen:
        asked |= {name: chosen[name] for name in ("parameters", "bits_per_parameter")}
    asked |= {name: chosen[name] for name in (*LINK, *TRAINING) if name in chosen}
    if "want_updates" in chosen:
        asked["want_updates"] = chosen["want_updates"]
    return asked


@contextmanager
def _named_as_options(given: Mapping[str, Any], taken: Mapping[str, Taken]) -> Iterator[None]:
    """Name the fields in errors as the options are, and what is taken from a scenario as its fields."""
    try:
        yield
    except InputError as error:
        section, _, name = error.field.rpartition(".")
        if section and name not in given:
            raise
        if name in taken:
            raise InputError(taken[name].field, error.value, error.allowed) from None
        value = given.get(name, error.value) if name == "contenders" else error.value
        raise InputError(_as_option(name), value, error.allowed) from None


def _channel(chosen: Mapping[str, Any], scenario: Scenario | None) -> Channel:
    """Return the channel; scenario: the one that it is from, with its options."""
    from fedslot.access.channels import make_channel

    name, options = chosen["channel"], {} if scenario is None else dict(scenario.push.channel.options)
    if "threshold_db" in chosen:
        options["threshold_db"] = chosen["threshold_db"]
        if name != "capture":
            allowed = f"left out with --channel {name}: only capture has one"
            raise InputError("threshold_db", options["threshold_db"], allowed)
    return make_channel(name, **options)


def _rule(scenario: Scenario) -> Any:
    """Return the cost rule, by which UEs get updates; refuse what plans with arrivals do not know."""
    name, retries = scenario.cost_rule.name, scenario.push.retries
    if retries is not None:
        raise InputError("push.retries", retries, "null, to plan with arrivals")
    if name not in ("max", "frame"):
        raise InputError("cost_rule", name, "max or frame, to plan with arrivals")
    return name


def _own_pull(scenario: Scenario, slots: int) -> int | None:
    """Return the scenario's number of pull slots; None if its strategy does not go by it, or it has more slots."""
    from fedslot.rounds.effects import without_effect

    has_none = scenario.frame.pull > slots or "frame.pull" in without_effect(scenario)
    return None if has_none else scenario.frame.pull


def _sizes(chosen: dict[str, Any], scenario: Scenario | None) -> dict[str, int]:
    """Return how many bits updates and the model have, as fields of a radio, and add what is not given to `chosen`.

    The model that the downlink carries has full precision, unless the scenario compresses it.
    """
    from fedslot.access.clock import sizes_of
    from fedslot.planning.inputs import model_shapes
    from fedslot.updates import BITS

    given, full = chosen.get("bits_per_parameter"), BITS if scenario is None else scenario.radio.bits_per_parameter
    chosen["bits_per_parameter"] = full if given is None else given
    if scenario is not None and chosen.keys() & {"bits_per_slot", "compression", "broadcast_compression"}:
        shapes = [(chosen["parameters"],)] if "parameters" in chosen else model_shapes(scenario)
        chosen["parameters"] = sum(map(math.prod, shapes))
        sizes = sizes_of(scenario, shapes)
    elif "parameters" in chosen:
        sizes = {"full_bits": chosen["parameters"] * full, "bits": chosen["parameters"] * full}
    else:
        return {}
    return sizes if given is None else {**sizes, "bits": chosen["parameters"] * given}


def _radio(chosen: Mapping[str, Any], sizes: Mapping[str, int], late: Scenario | None) -> Radio:
    """Return the radio; late: a scenario with computing times."""
    from fedslot.access.clock import Radio, with_computing_slot

    names = ("slot_ms", "bits_per_slot", "downlink_bits", "send_mj", "listen_mj")
    radio = Radio(**sizes, **{name: chosen[name] for name in names if name in chosen})
    if radio.uplink_length != radio.downlink_length:
        for name in ("budget", "frame_limit"):
            if chosen.get(name) is not None:
                allowed = "left out where an uplink slot and the downlink differ in length, as by compression"
                raise InputError(name, chosen[name], allowed)
    return radio if late is None else with_computing_slot(radio, late)


def _loss(scenario: Scenario, folder: Path) -> CompressionLoss:
    """Estimate the loss of accuracy by a scenario's compression from the folder of a comparison or a sweep."""
    from fedslot.experiments.compression_loss import estimate_compression_loss
    from fedslot.experiments.loading import load

    return estimate_compression_loss(scenario, load(folder), folder)


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


@contextmanager
def _progress_bar(wanted: bool) -> Iterator[Progress | None]:
    """Show a progress bar if it is wanted and stderr is a terminal."""
    import sys

    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Splits", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
