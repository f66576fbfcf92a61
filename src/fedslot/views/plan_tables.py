"""The text of a plan in the terminal: tables of 80 characters, and what they mean in a line each."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fedslot.access.clock import NO_RADIO, Radio
from fedslot.experiments import LEAST
from fedslot.planning.inputs import Taken
from fedslot.planning.planner import FrameSplit
from fedslot.planning.sizing import ShortestFrame, Sizing, UpdateSize
from fedslot.planning.training import PacketLoss
from fedslot.support.errors import counted

if TYPE_CHECKING:
    from fedslot.experiments.compression_loss import CompressionLoss
    from fedslot.runs.value_ratio import ValueRatio

ROWS = 25
"""Largest number of splits in a table; of more, it shows those around the best and evenly spaced ones."""


def print_answer(
    sizing: Sizing,
    chosen: Mapping[str, Any],
    taken: Mapping[str, Taken],
    estimate: ValueRatio | None,
    loss: CompressionLoss | None = None,
) -> None:
    """Print all tables of the size of a cell.

    chosen: options of the command by name; taken: those that are from the scenario.
    estimate: of the value ratio. loss: of accuracy, by compression.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    if "source" in chosen:
        console.print(_say_taken(chosen["source"], taken))
    notes = _say_value_ratio(chosen.get("value_ratio"), estimate, sizing)
    update = "\n".join([*_say_update(sizing.radio, chosen), *_say_packets(sizing), *_say_loss(loss, chosen)])
    best, pull = sizing.plan.best, sizing.own_pull
    if sizing.pull is not None:
        _print_split(console, sizing.numbers(best))
        console.print("Costs are in slots. Exact and paper leave out the downlink slot and take all")
        console.print("pulled UEs as ready; max and sum do neither.")
        console.print("\n".join([*_say_backlog(sizing), *notes]))
        if update:
            console.print(update)
    else:
        who = (
            f"contenders: {chosen['contenders']}"
            if sizing.backlog is None
            else f"{chosen['arrivals']:g} arrivals a slot"
        )
        _print_splits(console, sizing, who)
        console.print("\n".join(notes))
        if update:
            console.print(f"\n{update}\n")
            in_slots = sizing.radio.uplink_length != sizing.radio.downlink_length
            own = {f"pull {pull}": sizing.numbers(split) for split in sizing.plan.splits if split.pull == pull}
            _print_usage(console, {"best split": sizing.numbers(best)} | own, in_slots)
    if sizing.resized:
        _print_resized(console, sizing.resized)
    if sizing.want_updates is not None:
        _print_wanted(console, sizing.want_updates, sizing.wanted)
    if "plot" in chosen:
        console.print(f"Drawn in {chosen['plot']}.")


def _say_taken(source: str, taken: Mapping[str, Taken]) -> str:
    """Return what was taken from a scenario, as text of some lines."""
    parts = [
        f"{name} {'by slot' if value.value is None else value.value} ({value.field})" for name, value in taken.items()
    ]
    return "\n".join(textwrap.wrap(f"From {source}: {', '.join(parts)}.", 80)) + "\n"


def _print_split(console: Console, numbers: Mapping[str, Any]) -> None:
    """Print all numbers of one split, by name; None if not known."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in numbers.items():
        if value is None or name == "standard_errors":
            continue
        error = numbers["standard_errors"].get(name)
        text = str(value) if isinstance(value, int) else f"{value:.4f}"
        table.add_row(name.replace("_", " "), text if error is None else f"{text} ± {error:.4f}")
    console.print(table)


def _print_splits(console: Console, sizing: Sizing, contenders: str) -> None:
    """Print a table that fits into 80 characters, without columns that do not apply or repeat another."""
    result, supported = sizing.plan, sizing.supported
    best, splits = result.best, result.splits
    simulated = bool(best.standard_errors)

    def mark(split: FrameSplit) -> str:
        return "▶ " if split is best else "▷ " if split.pull == sizing.own_pull else ""

    def error(split: FrameSplit) -> str:
        return f" ±{split.standard_errors['expected_received_push']:.2f}" if simulated else ""

    def small(chance: float) -> str:
        return "<0.001" if 0 < chance < 0.001 else f"{chance:.3f}"

    barred = any(split.probability < 1 for split in splits)
    papers = not (barred or simulated or supported or sizing.late or sizing.backlog) and sizing.cell.ready == 1
    worth = any(split.expected_value != split.expected_received for split in splits)
    columns: list[tuple[str, bool, Callable[[FrameSplit], str]]] = [
        ("pull", True, lambda split: f"{mark(split)}{split.pull}"),
        ("push", True, lambda split: f"{split.push}"),
        ("back-\nlog", best.backlog is not None, lambda split: _number(split.backlog or 0.0)),
        ("pushed", True, lambda split: _number(split.expected_received_push) + error(split)),
        ("received", True, lambda split: _number(split.expected_received)),
        ("value", worth, lambda split: _number(split.expected_value)),
        ("cost\nmax", True, lambda split: _number(split.expected_cost_max)),
        ("cost\nsum", not supported, lambda split: _number(split.expected_cost_sum)),
        ("P(no\npush)", True, lambda split: small(split.nothing_pushed)),
        ("barring", barred, lambda split: f"{split.probability:.3g}"),
        ("cost in\npaper", papers, lambda split: _number((split.expected_cost_paper or 0.0) + 1)),
        ("P(within\nlimit)", best.within_limit is not None, lambda split: f"{split.within_limit:.3f}"),
        ("value in\nbudget", best.value_in_budget is not None, lambda split: _number(split.value_in_budget or 0.0)),
        ("bears", bool(supported), lambda split: f"{supported[split.pull][0]}"),
        ("bears\nbarred", bool(supported), lambda split: f"{supported[split.pull][1]}"),
    ]
    cells = {name: cell for name, shown, cell in columns if shown}
    table = _table(cells, padding=2 if len(cells) < 10 else 1)
    shown = _around(len(splits), splits.index(best))
    for before, index in zip([-1, *shown], shown, strict=False):
        if index != before + 1:
            table.add_row("⋮")
        style = "bold green" if splits[index] is best else None
        table.add_row(*(cell(splits[index]) for cell in cells.values()), style=style)
    console.print(f"A frame of {result.slots} uplink slots; {contenders}.\n", highlight=False)
    console.print(table)
    notes = [
        f"▶ most value {'a frame' if result.by == 'expected_value' else 'in the budget'}:"
        f" pull {best.pull}, leave {best.push} open.",
        *_about_own(sizing),
        *_say_backlog(sizing),
        "Costs are in slots and include the downlink slot.",
    ]
    if len(shown) < len(splits):
        notes.append(f"{len(shown)} of {len(splits)} splits shown; --json has them all.")
    if simulated:
        notes.append("Simulated; ± one standard error.")
    if best.within_limit is not None:
        notes.append("Splits that would exceed the limit end after fewer push slots, or are left out.")
    console.print("\n" + "\n".join(notes), highlight=False)


def _about_own(sizing: Sizing) -> list[str]:
    """Return a line on the scenario's own split if it is not the best."""
    result, own = sizing.plan, sizing.own
    if own is result.best:
        return []
    worth, most = (getattr(split, result.by) for split in (own, result.best))
    percent = 100 * worth / most if most else 0.0
    part = f", {'over 99' if percent > 99.5 else f'{percent:.0f}'}% of the most value" if most else ""
    return [f"▷ the scenario's split: pull {own.pull}, leave {own.push} open{part}."]


def _say_backlog(sizing: Sizing) -> list[str]:
    """Return lines on the backlog of the own split, how it was found, and the most arrivals that the split bears."""
    own, backlog = sizing.own, sizing.backlog
    if backlog is None:
        return []
    how, given = "where the mean drift ends", not isinstance(sizing.cell.barring, str)
    if backlog.by_chain:
        how = "from a Markov chain" + ("" if backlog.cell.computed else ", simulated")
    elif own.standard_errors:
        how = "simulated, and may jam later" if given else "simulated"
    number = f"With {own.pull} pull slots, {_number(own.backlog or 0.0)} UEs"
    lines = [
        f"{number} are backlogged when a frame begins, in the long run",
        f"({how}; the same UEs are pulled in every frame).",
    ]
    most = backlog.most_arrivals
    if own.push and math.isfinite(most):
        drift = "" if given and backlog.by_chain else ", by the mean drift"
        what = "Unstable above" if given else "The push slots serve up to"
        lines.append(f"{what} {most:.3g} arrivals a slot{drift}.")
    return lines


def _say_value_ratio(given: float | None, estimate: ValueRatio | None, sizing: Sizing) -> list[str]:
    """Return lines on the value of a pushed update: from where on it pays to leave slots open, and what was assumed."""
    lines = []
    if sizing.pull is None and sizing.plan.break_even is not None:
        lines.append(
            f"Open slots pay if a pushed update is worth over {sizing.plan.break_even:.3g} times a pulled one."
        )
    if estimate is not None:
        lines += [
            f"In the run it was worth {estimate.ratio:.2f}, 95% interval [{estimate.low:.2f}, {estimate.high:.2f}]",
            f"({estimate.pushed} pushed and {estimate.pulled} pulled updates in {estimate.rounds} rounds).",
        ]
        if estimate.ratio < 0:
            lines.append("On average a pushed update made the model worse; it counts as 0 here.")
    elif given is not None:
        lines.append(f"Assumed: {given:g}.")
    else:
        lines.append("Assumed: 1, as much as a pulled one (see --value-ratio, --value-from).")
    return lines


def _say_update(radio: Radio, chosen: Mapping[str, Any]) -> list[str]:
    """Return lines on the size of an update; none if nothing is known of the radio."""
    if radio == NO_RADIO:
        return []
    length = "" if radio.slot_seconds is None else f", {radio.slot_seconds:.4g} s"
    if "parameters" not in chosen:
        return [f"An update takes one slot of the radio{length}."]
    parameters, relative = chosen["parameters"], float(radio.uplink_length)
    length = "" if radio.slot_seconds is None else f", {radio.seconds(1, downlinks=0):.4g} s"
    size = f"{radio.bits / parameters:.4g} bits, {radio.bits:,} bits"
    lines = [f"An update: {parameters:,} parameters of {size}"]
    if radio.bits_per_slot is not None:
        other = radio.downlink_slots != radio.update_slots
        downlink = f"; the downlink takes {radio.downlink_slots:,}" if other else ""
        lines = [f"{lines[0]},", f"{radio.update_slots:,} slots of the radio{length}{downlink}"]
    lines[-1] += "."
    if radio.uplink_length != radio.downlink_length:
        lines += [
            f"An uplink slot takes {relative:.4g} of the time of an update in full precision, the",
            f"downlink {float(radio.downlink_length):.4g}. The costs above count each of them as a slot.",
        ]
    return lines


def _say_packets(sizing: Sizing) -> list[str]:
    """Return lines on how the packets of an update get through, and what would bring 99% of the updates."""
    link, packets = sizing.link, sizing.radio.update_slots
    if not link.loss:
        return []
    once, tries, coded = PacketLoss(link.loss).arrives(packets), link.least_tries(packets), link.least_coded(packets)
    repeated = PacketLoss(link.loss, tries).sent(packets)
    more = "over 1000 coded packets" if coded is None else f"{coded:,} coded packets"
    return [
        f"Sent once, {packets:,} packets of which {link.loss:.3g} are lost bring {once:.3g} of the updates;",
        f"99% take {tries} tries of each ({repeated:.4g} sent on average), or {more}.",
    ]


def _say_loss(loss: CompressionLoss | None, chosen: Mapping[str, Any]) -> list[str]:
    """Return lines on the loss of accuracy by compression."""
    if "compression" not in chosen:
        return []
    if loss is None:
        return ["What this compression costs in accuracy, runs tell (see --accuracy-from)."]
    count, percent = loss.loss.total, loss.loss.text(".2f", factor=100)
    interval = (
        f"mean of {count} pairs of runs and 95% interval" if count >= LEAST else counted(count, "pair") + " of runs"
    )
    return [
        f"Its compression cost {percent} points of test accuracy after {loss.rounds:,} rounds,",
        f"compared with {loss.reference} ({interval}, {chosen['accuracy_from']}).",
    ]


def _print_usage(console: Console, splits: Mapping[str, Mapping[str, Any]], in_slots: bool) -> None:
    """Print what frames take in seconds and joules; splits: their numbers, by the heading of their column.

    in_slots: and in the time of updates in full precision.
    """
    rows = {
        "received updates per frame": "expected_received",
        "frame, all slots [updates in full precision]": "frame_slots",
        "frame, to the last received slot [same]": "clock_slots",
        "frame, all slots [s]": "frame_seconds",
        "frame, to the last received slot [s]": "clock_seconds",
        "updates per second": "updates_per_second",
        "energy of the UEs per frame [mJ]": "energy_mj",
        "energy per received update [mJ]": "energy_mj_per_update",
        "updates per joule": "updates_per_joule",
        "probability that an update arrives": "arrives",
        "received updates per frame, after losses": "received_after_losses",
        "a UE may send again after [s]": "silence_seconds",
        "a frame every [s], at least": "period_seconds",
        "the whole training [h]": "training_hours",
        "energy of a UE for it [J]": "ue_joules",
        "of its battery [%]": "battery_percent",
        "life of the battery, training on and on [days]": "battery_days",
    }
    table = _table(splits, names=True)
    for name, field in rows.items():
        values = [numbers.get(field) for numbers in splits.values()]
        if (in_slots or field not in ("frame_slots", "clock_slots")) and any(value is not None for value in values):
            table.add_row(name, *map(_digits, values))
    console.print(table)


def _print_resized(console: Console, rows: Sequence[UpdateSize]) -> None:
    """Print what other sizes of updates cost in frames of the same time."""
    fields = {"per\nsecond": "updates_per_second", "mJ per\nupdate": "energy_mj_per_update"}
    bests = [row.best for row in rows if row.best is not None]
    fields = {name: field for name, field in fields.items() if any(best[field] is not None for best in bests)}
    names = ("size of an\nupdate", "slots of\nthe radio", "uplink\nslots", "best\npull", "received\nper frame")
    table = _table([*names, *fields])
    for row in rows:
        best, cells = row.best, ["", "none"]
        if best is not None:
            cells = [
                f"{best['pull']}",
                _number(best["expected_received"]),
                *(_digits(best[x]) for x in fields.values()),
            ]
        table.add_row(f"{row.size:g}x", f"{row.update_slots:,}", f"{row.slots}", *cells)
    console.print("\nOther sizes of updates, in frames of the same time:\n", highlight=False)
    console.print(table)


def _print_wanted(console: Console, updates: float, rows: Sequence[ShortestFrame]) -> None:
    """Print the shortest frames for a number of updates."""
    table = _table(("barring", "slots", "pull", "push", "received", "cost\nmax"), names=True)
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.pull == row.pull and before.frame == row.frame:
            continue  # the given barring is the best
        way = "best split" if row.pull is None else "push alone" if row.pull == 0 else f"pull {row.pull}"
        if row.frame is None:
            chance = f"{row.barring}" if row.barring == "best" else f"{row.barring:.3g}"
            table.add_row(way, chance, f"not with {row.searched:,}")
            continue
        frame = row.frame
        chance = f"{frame.probability:.3g}" + (" (best)" if row.barring == "best" else "")
        numbers = [f"{frame.pull + frame.push}", f"{frame.pull}", f"{frame.push}"]
        table.add_row(way, chance, *numbers, _number(frame.expected_received), _number(frame.expected_cost_max))
    console.print(f"\nShortest frames that receive {updates:g} updates in expectation:\n", highlight=False)
    console.print(table)


def _table(columns: Iterable[str], *, names: bool = False, padding: int = 2) -> Table:
    """Return an empty table of numbers; names: with a first column of names."""
    table = Table(box=None, padding=(0, padding, 0, 0), header_style="bold")
    if names:
        table.add_column("")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def _number(value: float) -> str:
    return f"{value:.{2 if value < 1000 else 1 if value < 10_000 else 0}f}"


def _around(count: int, best: int) -> list[int]:
    """Return the indices of the splits to show: those next to the best, and evenly spaced ones."""
    if count <= ROWS:
        return list(range(count))
    near = range(max(0, best - 5), min(count, best + 6))
    spaced = [round(k * (count - 1) / (ROWS - 12)) for k in range(ROWS - 11)]
    return sorted({*near, *spaced})
