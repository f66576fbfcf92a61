"""The cell of a scenario: what a plan takes from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedslot.access.clock import radio_fields
from fedslot.compression import Shapes
from fedslot.scenario import CompressionPart, Scenario
from fedslot.support.yaml_text import write_yaml


class Taken(NamedTuple):
    """A value that is taken from a scenario, and the field that it is from."""

    value: Any
    field: str


def take(scenario: Scenario, slots: int | None = None, ues: int | None = None) -> dict[str, Taken]:
    """Return what a plan takes from a scenario, by the names of its options.

    With `push.arrivals` there are arrivals instead of contenders. A time budget is taken if it is spent by `cost_max`,
    and the downlink is as long as an uplink slot, as in a plan. `ready` is None where UEs have computing times.

    slots, ues: uplink slots of a frame, and UEs in the cell, if not the scenario's.
    """
    push, ues = scenario.push, scenario.data.ues if ues is None else ues
    slots = scenario.frame.slots if slots is None else slots
    # `ready`: all that are not pulled
    who = {"contenders": Taken(str(ues if push.contenders == "ready" else push.contenders), "push.contenders")}
    if push.arrivals is not None:
        who = {"arrivals": Taken(push.arrivals, "push.arrivals")}
    taken = {
        "slots": Taken(slots, "frame.slots"),
        **who,
        "ues": Taken(ues, "data.ues"),
        "barring": Taken(push.probability, "push.probability"),
        "channel": Taken(push.channel.name, "push.channel"),
    }
    compressed = {"compression": scenario.compression, "broadcast_compression": scenario.broadcast_compression}
    compressed = {name: part for name, part in compressed.items() if part is not None}
    if scenario.time_budget is not None and scenario.cost_rule.name == "max" and not compressed:
        taken["budget"] = Taken(scenario.time_budget, "time_budget")
    if scenario.fleet.computing is not None:
        taken["ready"] = Taken(None, "fleet.computing")
    if scenario.radio.slot_seconds is not None or scenario.fleet.computing is not None:
        taken["rounds"] = Taken(scenario.rounds, "rounds")
    if scenario.radio.outage:
        taken["outage"] = Taken(scenario.radio.outage, "radio.outage")
    if scenario.radio.duty_cycle is not None:
        taken["duty_cycle"] = Taken(scenario.radio.duty_cycle, "radio.duty_cycle")
    taken |= {name: Taken(scheme_label(part), name) for name, part in compressed.items()}
    return taken | {name: Taken(*pair) for name, pair in radio_fields(scenario).items()}


def scheme_label(part: CompressionPart | None) -> str:
    """Return a compression scheme with its options as text.

    >>> scheme_label(CompressionPart(name="quantise", options={"bits": 2}))
    'quantise {bits: 2}'
    """
    if part is None:
        return "no compression"
    return " ".join([part.name, *([write_yaml(part.options, one_line=True).strip()] if part.options else [])])


def model_shapes(scenario: Scenario) -> Shapes:
    """Return the shapes of the tensors of the scenario's model; data sets that can be fetched need not be there."""
    from fedslot.data.sources import outline
    from fedslot.learning.models import Model  # slow to import

    data = outline(scenario.data.dataset)
    model = scenario.training.model
    return Model.build(model.name, data.shape, data.outputs, scenario.seed, options=model.options).tensor_shapes


def readiness(scenario: Scenario, slots: int, slot_seconds: float) -> NDArray[np.float64]:
    """Return the probability that a UE is ready when each slot begins, (M,), from the scenario's computing times.

    The mean is over the UEs of the fleet: one that is pulled or contends is taken as any of them.
    """
    from fedslot.data.sources import load
    from fedslot.fleet import Fleet

    data = load(scenario.data.dataset)
    computing = Fleet.draw(scenario, data.y_train, data.ue_train).computing
    assert computing is not None
    begins = np.arange(slots, dtype=np.float64) * slot_seconds / computing.section.slot  # after the downlink slot
    return computing.ready_by(begins)
