"""The update chain between training and aggregation: each link changes an update on its way to the PS.

chain.py  the interface of links, and the links of a scenario in their order, with the compression at the end
clip.py   limits the norm of an update
noise.py  adds the UE's Gaussian noise
"""

from fedslot.updates.chain import BITS, Chain, Link, Memory, Outgoing, Sender

__all__ = ["BITS", "Chain", "Link", "Memory", "Outgoing", "Sender"]
