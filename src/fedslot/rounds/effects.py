"""Fields of a scenario that have no effect on its run, because of its strategy or of other fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
CHANNEL = ("push.channel.name", "push.channel.options")
NOISE = ("fleet.noise_law.name", "fleet.noise_law.options", "fleet.noise_order")


def without_effect(scenario: Scenario) -> dict[str, str]:
    """Return the dotted keys of fields whose value makes no difference to this scenario, each with the reason.

    A strategy of your own is taken to use all fields, unless it declares which it `uses`.

    >>> without_effect(Scenario().replace({"strategy.name": "fedavg"}))["frame.pull"]
    'under fedavg'
    """
    if scenario.trains_alone:
        return {key: f"under {scenario.strategy.name}" for key in keys() if key not in ALONE}
    return dict(
        [
            *_by_strategy(scenario),
            *_by_valuation(scenario),
            *_by_training(scenario),
            *_by_data(scenario),
            *_by_radio(scenario),
        ]
    )


def notes(scenarios: Sequence[Scenario], base: Scenario) -> list[str]:
    """Return a line for each field that differs from `base` in some scenario and has no effect in any of them."""
    set_by_user = {key for scenario in scenarios for key in keys() if _get(scenario, key) != _get(base, key)}
    reasons = [without_effect(scenario) for scenario in scenarios]
    lines = []
    for key in keys():
        if key in set_by_user and all(key in found for found in reasons):
            told = dict.fromkeys(found[key] for found in reasons)
            lines.append(f"{key} has no effect {' and '.join(told)}")
    return lines


def base_of(source: str) -> Scenario:
    """Return the scenario from which a user starts: the preset that is named, also in a study, else the defaults."""
    named = source if source in all_presets() else read_fields(source).get("scenario")
    return Scenario.load(named) if isinstance(named, str) and named in all_presets() else Scenario()


def _by_strategy(scenario: Scenario) -> Iterator[tuple[str, str]]:
    name, push = scenario.strategy.name, scenario.push
    uses: Sequence[str] | None = getattr(STRATEGIES.find(name), "uses", None)
    pushing = [key for key in keys() if key.startswith("push.")]
    if uses is not None and "strategy.warmup" in uses and scenario.rounds <= scenario.warmup_rounds:
        yield from ((key, "where all rounds are warm-up") for key in ("frame.pull", *pushing))
    if uses is not None:
        yield from ((key, f"under {name}") for key in STRATEGY_FIELDS if key not in uses)
        if "push" not in uses:
            yield from ((key, f"under {name}") for key in pushing)
        elif "frame.pull" in uses and scenario.frame.pull == scenario.frame.slots:
            yield from ((key, "without push slots") for key in pushing)
    if push.arrivals is not None:
        yield "push.contenders", "with push.arrivals"
    elif push.contenders == 0:
        yield from ((key, "without contenders") for key in ("push.probability", *CHANNEL))


def _by_valuation(scenario: Scenario) -> Iterator[tuple[str, str]]:
    name = scenario.strategy.name
    if getattr(STRATEGIES.find(name), "needs_values", True) is False:
        yield from ((key, f"under {name}") for key in keys() if key.startswith("valuation."))


def _by_training(scenario: Scenario) -> Iterator[tuple[str, str]]:
    name, training = scenario.strategy.name, scenario.training
    if training.optimizer.name != "sgd":
        yield "training.momentum", f"with {training.optimizer.name}"
    if name in training.epochs_by_strategy:
        yield "training.epochs", "beside training.epochs_by_strategy"
    else:
        yield "training.epochs_by_strategy", f"under {name}"
    if all(link.name != "noise" for link in scenario.chain) and all(link.name in LINKS for link in scenario.chain):
        yield from ((key, "without noise in chain") for key in ("fleet.noise", *NOISE))
    elif scenario.fleet.noise == 0:
        yield from ((key, "without fleet.noise") for key in NOISE)
    elif scenario.fleet.noise_law.name == "equal":
        yield "fleet.noise_order", "with equal noise"
    if scenario.pools_data and name in STRATEGIES:
        yield from (
            (key, "where the PS pools the data") for key in ("fleet.stragglers", "chain", "fleet.noise", *NOISE)
        )


def _by_radio(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.radio.bits_per_slot is None:
        yield "radio.bits_per_parameter", "without radio.bits_per_slot"


def _by_data(scenario: Scenario) -> Iterator[tuple[str, str]]:
    divided, partition = ("data.alpha", "data.sizes", "data.samples_per_ue"), scenario.data.partition.name
    if divides_itself(scenario.data.dataset):
        yield from ((key, "beside ue_train") for key in (*divided, "data.partition.name", "data.partition.options"))
    elif partition != "dirichlet":
        yield from ((key, f"with {partition}") for key in divided)


def _get(scenario: Scenario, key: str) -> object:
    """Return the value of a field; that of a section that is null is null."""
    value: object = scenario
    for name in key.split("."):
        value = getattr(value, name, None)
    return value
