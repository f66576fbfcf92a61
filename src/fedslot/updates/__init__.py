"""The update chain between training and aggregation: each link changes an update on its way to the PS.

chain.py         the interface of links, and the links of a scenario in their order, with the compression at the end
clip.py          limits the norm of an update
noise.py         adds the UE's Gaussian noise
staleness.py     rules for updates of older models, before aggregation: their interface, plain and discounted updates
compensation.py  rules that compensate for what a stale update missed
"""

from fedslot.updates.chain import BITS, Chain, Link, Memory, Outgoing, Sender
from fedslot.updates.staleness import Arrived, OwnTraining, Staleness

__all__ = ["BITS", "Arrived", "Chain", "Link", "Memory", "Outgoing", "OwnTraining", "Sender", "Staleness"]
