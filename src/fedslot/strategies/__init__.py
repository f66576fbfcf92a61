"""Who is granted the slots: one small file per strategy, found by name or by `package.module:Name`."""

from __future__ import annotations

from typing import Any

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
    return find("strategy.name", name, STRATEGIES)(cell)
