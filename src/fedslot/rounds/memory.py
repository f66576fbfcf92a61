"""An estimate of the memory that a run takes, from its sizes, before anything of these sizes is allocated.

It counts what grows with the fields of a scenario, alone and in combination, and rather too little than too much: a
scenario is refused only if it cannot fit. Factors are copies that exist at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedslot.access.channels import Coded
from fedslot.data.sources import Outline
from fedslot.learning.models import Model, perceptron_layers
from fedslot.rounds.held_out import held_out_counts
from fedslot.scenario import MOST_EXACT_PLAYERS, Scenario
from fedslot.strategies import STRATEGIES
from fedslot.support.errors import InputError
from fedslot.support.machine import memory
from fedslot.valuation.kriging import evaluated

PROGRAM = 4e8  # bytes of Python with its libraries
UE = 96  # bytes of a UE: its share, epochs, noise, link and what strategies know of it
SLOT = 24  # bytes of a slot
COPY = 50  # bytes of a copy that a contender sends
NUMBER, PARAMETER = 8, 4  # bytes


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run, by the fields of the scenario that set them.

    samples: of the largest share. copies: that a contender sends. parameters: P. hidden: units of the first layer of a
    perceptron; 0 for other networks. validation: labelled samples. data: numbers in all samples.
    method: of valuation; empty if there are no values. compares: whether updates are compared with one another.
    """

    ues: int
    slots: int
    contenders: int
    epochs: int
    samples: int
    copies: int
    parameters: int
    hidden: int
    validation: int
    data: int
    method: str
    compares: bool
    permutations: int
    utilities_per_ue: int

    @property
    def received(self) -> int:
        """Most UEs that are received in a round, Y: one in each slot."""
        return min(self.ues, self.slots)


Part = tuple[str, Callable[[Sizes], float], Callable[[Sizes], str]]
"""What takes memory; its bytes; the field that sets them."""


def _scarcer(sizes: Sizes) -> str:
    """Return the field that limits the number of UEs that are received."""
    return "slots" if sizes.slots <= sizes.ues else "ues"


def _valuation(sizes: Sizes) -> float:
    """Return the bytes of coalitions (C, Y) with their weights, and of what methods compute of them."""
    players = sizes.received
    coalitions, kernels = {
        "kriging": (evaluated(players, sizes.utilities_per_ue), 6),
        "banzhaf": (evaluated(players, sizes.utilities_per_ue), 6),
        "leave-one-out": (players, 0),
        "cyclic": (players * (players + 1), 0),
        "exact": (2 ** min(players, MOST_EXACT_PLAYERS), 0),
        "gtg": (max(players, sizes.permutations), 0),
    }.get(sizes.method, (0, 0))
    return float(coalitions * players * 2 * NUMBER + kernels * coalitions**2 * NUMBER)


PARTS: tuple[Part, ...] = (
    ("the data", lambda s: 2.0 * s.data * PARAMETER, lambda s: "dataset"),
    ("the UEs", lambda s: float(s.ues * UE), lambda s: "ues"),
    ("the slots of a frame", lambda s: float(s.slots * SLOT), lambda s: "slots"),
    ("the transmissions of a frame", lambda s: float(s.contenders * s.copies * COPY), lambda s: "contenders"),
    ("the order of the samples in all epochs", lambda s: 1.5 * s.epochs * s.samples * NUMBER, lambda s: "epochs"),
    (
        "the updates of a round",
        lambda s: (4.0 if s.compares else 1.5) * s.received * s.parameters * PARAMETER,
        _scarcer,
    ),
    ("the comparison of the updates", lambda s: 2.0 * s.received**2 * NUMBER if s.compares else 0.0, _scarcer),
    (
        "the evaluation of the updates",
        lambda s: float(s.received * s.validation * s.hidden * PARAMETER) if s.method else 0.0,
        _scarcer,
    ),
    ("the values of the updates", _valuation, lambda s: "permutations" if s.permutations > s.received else _scarcer(s)),
)
FIELDS = {
    "ues": "data.ues",
    "slots": "frame.slots",
    "contenders": "push.contenders",
    "epochs": "training.epochs",
    "permutations": "valuation.options.permutations",
    "dataset": "data.dataset",
}


def sizes_of(scenario: Scenario, data: Outline, network: Model) -> Sizes:
    """Return the sizes of a run of a scenario with its data and its network."""
    ues, share, layers = scenario.data.ues, scenario.data.samples_per_ue, perceptron_layers(network.module)
    expected, options = scenario.expected_contenders, scenario.valuation.options
    channel = scenario.push.channel.make()
    values = getattr(STRATEGIES.find(scenario.strategy.name), "needs_values", False) is True
    name = scenario.valuation.name
    return Sizes(
        ues=ues,
        slots=scenario.frame.slots,
        contenders=ues if expected is None else min(expected, ues),
        epochs=scenario.epochs,
        samples=min(data.train, share or -(-data.train // ues)),
        copies=max(channel.degrees) if isinstance(channel, Coded) else 1,
        parameters=network.size,
        hidden=int(network.shapes[f"{layers[0]}.weight"][0]) if layers else 0,
        validation=held_out_counts(scenario, data.test).valued,
        data=(data.train + data.test) * math.prod(data.shape),
        method=name if values else "",
        compares=values or scenario.aggregation.name in ("filtered", "krum"),
        permutations=int(options.get("permutations", 0)) if values and name == "gtg" else 0,
        utilities_per_ue=int(options.get("utilities_per_ue", 5)) if name in ("kriging", "banzhaf") else 0,
    )


def total(sizes: Sizes) -> float:
    """Return the estimated bytes of a run."""
    return PROGRAM + sum(size(sizes) for _, size, _ in PARTS)


def check_memory(scenario: Scenario, data: Outline, network: Model, workers: int = 1) -> None:
    """Refuse a scenario whose run does not fit into the memory of this machine; the line says what would.

    workers: number of processes that run such a scenario at the same time.
    """
    limit, sizes = memory(), sizes_of(scenario, data, network)
    needed = total(sizes)
    if limit is None or needed * workers <= limit:
        return
    if needed <= limit:
        allowed = f"at most {int(limit / needed)} here; a run takes about {needed / 1e9:,.1f} of {limit / 1e9:.1f} GB"
        raise InputError("workers", workers, allowed)
    what, _, field_of = max(PARTS, key=lambda part: part[1](sizes))
    field = field_of(sizes)
    if field == "dataset":
        raise InputError(FIELDS[field], scenario.data.dataset, f"smaller; {_say(what, needed, limit)}")
    least, most = 0, int(getattr(sizes, field))  # the largest that fits is from `least` on and below `most`
    while most - least > 1:
        middle = (least + most) // 2
        changed: dict[str, Any] = {field: middle}
        fits = total(replace(sizes, **changed)) <= limit
        least, most = (middle, most) if fits else (least, middle)
    others = ", ".join(f"{FIELDS[name]}={getattr(sizes, name)}" for name in ("slots", "ues") if name != field)
    allowed = f"at most {least} here with {others}" if least else f"less, and so must {others}"
    raise InputError(FIELDS[field], getattr(sizes, field), f"{allowed}; {_say(what, needed, limit)}")


def _say(what: str, needed: float, limit: int) -> str:
    return f"a run would take about {needed / 1e9:,.1f} GB, most for {what}, and this machine has {limit / 1e9:.1f} GB"
