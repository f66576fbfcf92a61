"""Who is granted the slots: one small file per strategy, found by name or by `package.module:Name`."""

from __future__ import annotations

from typing import Any

from fedslot.errors import InputError
from fedslot.plugins import find
from fedslot.strategies.base import Cell, NoState, Strategy
from fedslot.strategies.centralized import Centralized
from fedslot.strategies.fedavg import FedAvg
from fedslot.strategies.greedy_shap import GreedyShap
from fedslot.strategies.ledger import Ledger
from fedslot.strategies.only_pull import OnlyPull
from fedslot.strategies.push_pull import PushPull

__all__ = ["STRATEGIES", "Cell", "Ledger", "NoState", "Strategy", "make_strategy"]

STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "fedavg": FedAvg,
    "greedy-shap": GreedyShap,
    "push-pull": PushPull,
    "only-pull": OnlyPull,
    "centralized": Centralized,
}


def make_strategy(name: str, cell: Cell) -> Strategy[Any]:
    """The strategy of that name, or your own as `package.module:Name`."""
    maker = find("strategy.name", name, STRATEGIES)
    try:
        strategy = maker(cell)
    except TypeError as error:
        raise InputError("strategy.name", name, f"a strategy that can be made from a Cell ({error})") from error
    parts = ("init", "schedule", "observe", "needs_values")
    missing = [part for part in parts if not hasattr(strategy, part)]
    if missing:
        raise InputError("strategy.name", name, f"a strategy with {', '.join(parts)}; it has no {missing[0]}")
    return strategy
