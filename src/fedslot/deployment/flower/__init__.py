"""The strategies of fedslot for Flower: `SlotAccess` on the server, `slot_access` on the devices.

    from flwr.serverapp.strategy import FedAdam
    from fedslot.deployment.flower import SlotAccess, slot_access

    class PushPull(SlotAccess, FedAdam): ...        # in the ServerApp; SlotAccess alone is over FedAvg
    app = ClientApp(mods=[slot_access])             # in the ClientApp

The names below are imported on first use: a device that is barred answers without loading PyTorch.
`docs/deployment.md` leads from installation to a training over three machines.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fedslot.errors import RefusedError

if TYPE_CHECKING:
    from fedslot.deployment.flower.arrays import to_arrays, to_flat
    from fedslot.deployment.flower.grid import DeadlineGrid
    from fedslot.deployment.flower.mod import slot_access
    from fedslot.deployment.flower.screening import Limits
    from fedslot.deployment.flower.strategy import SlotAccess

_HOMES = {
    "SlotAccess": "strategy",
    "slot_access": "mod",
    "DeadlineGrid": "grid",
    "Limits": "screening",
    "to_arrays": "arrays",
    "to_flat": "arrays",
}

__all__ = ["DeadlineGrid", "Limits", "SlotAccess", "slot_access", "to_arrays", "to_flat"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedslot.deployment.flower' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"fedslot.deployment.flower.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "flwr":
            raise
        raise RefusedError(
            "fedslot.deployment.flower needs Flower; install it with: pip install 'fedslot[flower]'"
        ) from None


def __dir__() -> list[str]:
    return __all__
