"""Fields of a scenario that have no effect on its run, because of its strategy or of other fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from fedslot.data.sources import divides_itself
from fedslot.parts.kinds import LINKS
from fedslot.scenario import Scenario, keys, read_fields
from fedslot.scenario import presets as all_presets
from fedslot.strategies import STRATEGIES

STRATEGY_FIELDS = ("frame.pull", "push.probability", "strategy.warmup", "strategy.memory", "strategy.share")
ALONE = (  # what counts where the PS trains alone
    "seed",
    "strategy.name",
    "data.dataset",
    "data.validation",
    "data.validation_samples",
    *(f"training.{name}" for name in ("model.name", "model.options", "lr", "momentum", "engine", "device")),
)
CROWDED, FRAMES = 20, 50  # contenders per push slot, and frames that are simulated
NOISE = ("fleet.noise_law.name", "fleet.noise_law.options", "fleet.noise_order")


def without_effect(scenario: Scenario) -> dict[str, str]:
    """Return the dotted keys of fields whose value makes no difference to this scenario, each with the reason.

    A strategy of your own is taken to use all fields, unless it declares which it `uses`.

    >>> without_effect(Scenario().replace({"strategy.name": "fedavg"}))["frame.pull"]
    'under fedavg'
    """
    if scenario.trains_alone:
        return {key: f"under {scenario.strategy.name}" for key in keys() if key not in ALONE}
    return {key: reason for group, reason in _groups(scenario) for key in group}


def notes(scenarios: Sequence[Scenario], base: Scenario) -> list[str]:
    """Return a line for each field that differs from `base` in some scenario and has no effect in any of them.

    Whoever sets the noise of updates is told of the aggregation that goes by it.
    """
    reasons = [without_effect(scenario) for scenario in scenarios]
    changed = [key for key in keys() if any(_get(scenario, key) != _get(base, key) for scenario in scenarios)]
    idle = [key for key in changed if all(key in each for each in reasons)]
    lines = [f"{key} has no effect {' and '.join(dict.fromkeys(each[key] for each in reasons))}" for key in idle]
    noisy = all(scenario.fleet.noise > 0 and scenario.aggregation.name == "average" for scenario in scenarios)
    if noisy and {"fleet.noise", "fleet.noise_law.name"} & set(changed) - set(idle):
        lines.append("average weighs noisy updates like clean ones; try aggregation.name=filtered")
    if all(map(jams, scenarios)):
        lines.append("with push.arrivals and a fixed push.probability, collisions can jam the cell for ever; try auto")
    return lines


def jams(scenario: Scenario) -> bool:
    """Return whether a crowd of backlogged UEs would stay, since fewer are received than arrive meanwhile.

    Without pushes, n of K UEs are backlogged in the end: those pulled are as many as arrive. If so many contend, and
    fewer than half of the arrivals are received, the crowd stays.
    """
    push, slots = scenario.push, scenario.frame.slots
    uses = getattr(STRATEGIES.find(scenario.strategy.name), "uses", ())
    if (
        push.arrivals is None
        or push.probability == "auto"
        or push.retries is not None
        or "push.probability" not in uses
    ):
        return False
    pull = scenario.frame.pull if "frame.pull" in uses else 0
    arrivals = push.arrivals * (1 + (slots if scenario.cost_rule.name == "frame" else pull))
    contenders = push.probability * (scenario.data.ues - pull) * arrivals / (arrivals + pull)
    some = min(round(contenders), CROWDED * (slots - pull))  # more are no better
    earliest, rng = np.ones((FRAMES, some), dtype=np.int64), np.random.default_rng(0)
    received = push.channel.make().play(earliest, slots - pull, rng) > 0
    return int(received.sum()) < FRAMES * arrivals / 2


def base_of(source: str) -> Scenario:
    """Return the scenario from which a user starts: the preset that is named, also in a study, else the defaults."""
    named = source if source in all_presets() else read_fields(source).get("scenario")
    return Scenario.load(named) if isinstance(named, str) and named in all_presets() else Scenario()


def _groups(scenario: Scenario) -> Iterator[tuple[Iterable[str], str]]:
    """Yield groups of fields without effect, each with its reason; the last reason for a field counts."""
    name, push, fleet, training = scenario.strategy.name, scenario.push, scenario.fleet, scenario.training
    strategy, under = STRATEGIES.find(name), f"under {name}"
    uses: Sequence[str] | None = getattr(strategy, "uses", None)
    pushing = [key for key in keys() if key.startswith("push.")]
    if uses is not None:
        if "strategy.warmup" in uses and scenario.rounds <= scenario.warmup_rounds:
            yield ["frame.pull", *pushing], "where all rounds are warm-up"
        yield [key for key in STRATEGY_FIELDS if key not in uses], under
        if "push" not in uses:
            yield pushing, under
        elif "frame.pull" in uses and scenario.frame.pull == scenario.frame.slots:
            yield pushing, "without push slots"
    if not scenario.is_asynchronous:
        yield [key for key in keys() if key.startswith("staleness.")], "with mode=synchronous"
    if push.arrivals is not None:
        yield ["push.contenders"], "with push.arrivals"
    elif push.contenders == "ready":
        yield ["push.retries"], "with push.contenders=ready"
    elif push.contenders == 0:
        yield [key for key in pushing if key not in ("push.contenders", "push.arrivals")], "without contenders"

    if getattr(strategy, "needs_values", True) is False:
        yield [key for key in keys() if key.startswith("valuation.")], under
    if training.optimizer.name != "sgd":
        yield ["training.momentum"], f"with {training.optimizer.name}"
    if name in training.epochs_by_strategy:
        yield ["training.epochs"], "beside training.epochs_by_strategy"
    else:
        yield ["training.epochs_by_strategy"], under

    if all(link.name in LINKS and link.name != "noise" for link in scenario.chain):
        yield ["fleet.noise", *NOISE], "without noise in chain"
    elif fleet.noise == 0:
        yield NOISE, "without fleet.noise"
    elif fleet.noise_law.name == "equal":
        yield ["fleet.noise_order"], "with equal noise"
    if scenario.pools_data and name in STRATEGIES:
        compressed = [key for key in keys() if key.startswith("compression")]
        unused = ["fleet.stragglers", "chain", *compressed, "fleet.noise", *NOISE, "training.ps"]
        yield unused, "where the PS pools the data"

    divided, partition = ("data.alpha", "data.sizes", "data.samples_per_ue"), scenario.data.partition.name
    if divides_itself(scenario.data.dataset):
        yield [*divided, "data.partition.name", "data.partition.options"], "beside ue_train"
    elif partition != "dirichlet":
        yield divided, f"with {partition}"
    if scenario.radio.bits_per_slot is None and scenario.compression is scenario.broadcast_compression is None:
        yield ["radio.bits_per_parameter"], "without radio.bits_per_slot or compression"


def _get(scenario: Scenario, key: str) -> object:
    """Return the value of a field; that of a section that is null is null."""
    names: list[Any] = [scenario, *key.split(".")]
    return reduce(lambda section, name: getattr(section, name, None), names)
