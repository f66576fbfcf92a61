"""The access layer: which UEs are received in the uplink slots of a frame, and at what cost.

frame.py        one frame: pull slots, then contention in the push slots
reach.py        which UEs can be pulled in a frame
order.py        whom the PS pulls in which slot, by computing times
channels.py     random-access channels: collision, capture, CRDSA and IRSA
controller.py   access barring by feedback: the best load of a channel, an estimate of the backlog
clock.py        what a frame costs in slots, seconds and joules

What frames are expected to yield is in `fedslot.planning`, whose public names can be imported from here, too.
"""

import importlib

from fedslot.access.channels import CHANNELS, Capture, Channel, Coded, Collision, crdsa, irsa, make_channel
from fedslot.access.clock import Radio, Usage
from fedslot.access.controller import BestLoad, Contention, Controller, best_load

__all__ = [
    "CHANNELS",
    "BestLoad",
    "Capture",
    "Channel",
    "Coded",
    "Collision",
    "Contention",
    "Controller",
    "Radio",
    "Usage",
    "best_load",
    "crdsa",
    "irsa",
    "make_channel",
]


def __getattr__(name: str) -> object:
    planning = importlib.import_module("fedslot.planning")
    if name in planning.__all__:  # where these names were before
        return getattr(planning, name)
    raise AttributeError(f"module 'fedslot.access' has no attribute {name!r}")
