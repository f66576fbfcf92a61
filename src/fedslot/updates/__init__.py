"""The update chain between training and aggregation: each link changes an update on its way to the PS.

chain.py   the interface of links, and the links of a scenario in their order
clip.py    limits the norm of an update
limits.py  the longest step that a PS accepts
noise.py   adds the UE's Gaussian noise
"""

from fedslot.updates.chain import BITS, Chain, Link, Memory, Outgoing, Sender
from fedslot.updates.limits import MOST_NORM, longest_step

__all__ = ["BITS", "MOST_NORM", "Chain", "Link", "Memory", "Outgoing", "Sender", "longest_step"]
