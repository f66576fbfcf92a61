"""The strategies of fedslot for Flower: `SlotAccess` on the server, `slot_access` on the devices.

    from flwr.serverapp.strategy import FedAdam
    from fedslot.flower import SlotAccess, slot_access

    class PushPull(SlotAccess, FedAdam): ...        # in the ServerApp; SlotAccess alone is over FedAvg
    app = ClientApp(mods=[slot_access])             # in the ClientApp

`docs/deployment.md` leads from installation to a training over three machines.
"""

from fedslot.errors import RefusedError

try:
    import flwr  # noqa: F401
except ModuleNotFoundError:
    raise RefusedError("fedslot.flower needs Flower; install it with: pip install 'fedslot[flower]'") from None

from fedslot.flower.arrays import to_arrays, to_flat
from fedslot.flower.grid import DeadlineGrid
from fedslot.flower.mod import slot_access
from fedslot.flower.strategy import SlotAccess

__all__ = ["DeadlineGrid", "SlotAccess", "slot_access", "to_arrays", "to_flat"]
