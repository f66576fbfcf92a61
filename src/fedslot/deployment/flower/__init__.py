"""Deployment over Flower: `SlotAccess` for the ServerApp, `slot_access` for the ClientApp.

    from flwr.serverapp.strategy import FedAdam
    from fedslot.deployment.flower import SlotAccess, slot_access

    class PushPull(SlotAccess, FedAdam): ...        # in the ServerApp; SlotAccess alone is over FedAvg
    app = ClientApp(mods=[slot_access])             # in the ClientApp

    strategy.py  SlotAccess, the strategy that joins a ParameterServer and a stock strategy
    stock.py     the stock strategy as the ParameterServer's aggregation
    mod.py       slot_access, the device's side
    grid.py      DeadlineGrid, which closes rounds on time
    nodes.py     asks nodes which UE they are
    messages.py  the record that is added to messages, and replies as the ParameterServer reads them
    wire.py      encoded models and updates
    arrays.py    flat models to and from records of arrays

The public names are imported on first use, so that a barred device answers without loading PyTorch.
`docs/how-to/deployment.md` leads from installation to a training over three machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedslot.support.extras import import_name

if TYPE_CHECKING:
    from fedslot.deployment.flower.arrays import to_arrays, to_flat
    from fedslot.deployment.flower.grid import DeadlineGrid
    from fedslot.deployment.flower.mod import slot_access
    from fedslot.deployment.flower.strategy import SlotAccess
    from fedslot.deployment.screening import Limits

_HOMES = {
    "SlotAccess": "flower.strategy",
    "slot_access": "flower.mod",
    "DeadlineGrid": "flower.grid",
    "Limits": "screening",
    "to_arrays": "flower.arrays",
    "to_flat": "flower.arrays",
}

__all__ = ["DeadlineGrid", "Limits", "SlotAccess", "slot_access", "to_arrays", "to_flat"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedslot.deployment.flower' has no attribute {name!r}")
    return import_name("fedslot.deployment.flower", name, f"fedslot.deployment.{_HOMES[name]}")


def __dir__() -> list[str]:
    return __all__
