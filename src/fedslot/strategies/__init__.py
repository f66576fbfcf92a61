"""Strategies decide who is granted the slots of a frame; each is one small file, found by name.

base.py             what a strategy is (`Strategy`, `Asking`) and what it may know (`Cell`)
ledger.py           smoothed Shapley values, shared by the strategies that go by value; warm-up
selection.py        the UEs of highest score, and weighted draws without replacement
push_pull.py        pull the most valued UEs, leave the other slots open (the paper's Algorithm 1)
planned.py          the split of most expected value within a limit per frame (the paper's problem P)
only_pull.py        push-pull with idle push slots
greedy_shap.py      all slots pull the most valued UEs
ucb.py              all slots pull by an upper confidence bound on values
s_fedavg.py         all slots pull at random, by a softmax of values
power_of_choice.py  all slots pull the highest losses among candidates that are asked
survey.py           noise and spread of the UEs' updates, shared by the strategies that go by these
scout.py            short frames pull the cleanest UEs and look for more of them
merit_push.py       short frames pull the cleanest UEs; the cleanest of the others may push
fedavg.py           all slots pull at random
round_robin.py      all slots pull in turn
ps_alone.py         none: the PS trains on its own labelled samples
centralized.py      the same share of the UEs in every round, which sends its data
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedslot.messages import NoState
from fedslot.parts.registry import find
from fedslot.strategies.base import Asking, Cell, Options, Split, Strategy
from fedslot.strategies.centralized import Centralized
from fedslot.strategies.fedavg import FedAvg
from fedslot.strategies.greedy_shap import GreedyShap
from fedslot.strategies.ledger import Ledger, warm_up
from fedslot.strategies.merit_push import MeritPush
from fedslot.strategies.only_pull import OnlyPull
from fedslot.strategies.planned import Planned
from fedslot.strategies.power_of_choice import PowerOfChoice
from fedslot.strategies.ps_alone import PSAlone
from fedslot.strategies.push_pull import PushPull
from fedslot.strategies.round_robin import RoundRobin
from fedslot.strategies.s_fedavg import SFedAvg
from fedslot.strategies.scout import Scout
from fedslot.strategies.ucb import UCB
from fedslot.support.errors import InputError, did_you_mean

__all__ = [
    "STRATEGIES",
    "Asking",
    "Cell",
    "Ledger",
    "NoState",
    "Split",
    "Strategy",
    "declared_options",
    "make_strategy",
    "warm_up",
]

STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "fedavg": FedAvg,
    "greedy-shap": GreedyShap,
    "push-pull": PushPull,
    "only-pull": OnlyPull,
    "centralized": Centralized,
    "round-robin": RoundRobin,
    "ucb": UCB,
    "s-fedavg": SFedAvg,
    "power-of-choice": PowerOfChoice,
    "planned": Planned,
    "scout": Scout,
    "merit-push": MeritPush,
    "ps-alone": PSAlone,
}


def declared_options(name: str) -> Options:
    """Return the options of a strategy with their defaults; a class that declares none has none."""
    options: Options = getattr(find("strategy.name", name, STRATEGIES), "options", {})
    return options


def make_strategy(name: str, cell: Cell) -> Strategy[Any]:
    """Return the strategy of that name, or your own as `package.module:Name`.

    A class declares its `options` with their defaults, and finds all of them in `cell.options`; any others are refused.
    """
    maker, declared = find("strategy.name", name, STRATEGIES), declared_options(name)
    if not isinstance(declared, Mapping):
        raise InputError("strategy.name", name, "a class whose options are a mapping of names to defaults")
    for option, value in cell.options.items():
        if option not in declared:
            known = f"takes {', '.join(declared)}" if declared else "takes no options"
            how = "" if name in STRATEGIES else f"; a class declares them: options = {{{option!r}: default}}"
            how += did_you_mean(option, declared)
            raise InputError(f"strategy.options.{option}", value, f"left out, since {name} {known}{how}")
    cell = replace(cell, options={**declared, **cell.options})
    try:
        strategy = maker(cell)
    except InputError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise InputError("strategy.name", name, f"a strategy that can be built from a Cell ({error})") from error
    parts: tuple[str, ...] = ("init", "schedule", "observe", "needs_values")
    if hasattr(strategy, "ask"):
        parts += ("hear", "overhead")
    missing = [part for part in parts if not hasattr(strategy, part)]
    if missing:
        raise InputError("strategy.name", name, f"a strategy with {', '.join(parts)}; it has no {missing[0]}")
    return strategy
