"""Which device stands for which UE.

A device claims a UE, and the first to claim one gets it. Where devices have keys or certificates, a node's name is the
same after a restart, so a UE belongs to its node for good. Without them, a device that comes back is a new node, which
may take over its UE once the old node is gone.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.deployment.faults import Fault
from fedslot.support.errors import RefusedError


class Roster:
    """The nodes of UEs 0 to K - 1, by the names that the transport gives them.

    ues: number of UEs, K. keyed: whether a UE belongs to its node for good.
    """

    def __init__(self, ues: int, keyed: bool) -> None:
        self.ues, self.keyed = ues, keyed
        self.nodes: dict[int, str] = {}
        self._turned_away: set[tuple[str, str]] = set()

    def online(self, reachable: AbstractSet[str]) -> dict[int, str]:
        """Return the nodes of UEs that can be reached now."""
        return {ue: node for ue, node in sorted(self.nodes.items()) if node in reachable}

    def bind(self, claims: Iterable[tuple[str, object]], reachable: AbstractSet[str], round: int) -> list[Fault]:
        """Enter nodes with the UEs that they claim, in this order; return the faults of those newly turned away."""
        faults = [fault for node, ue in claims if (fault := self._bind(node, ue, reachable, round))]
        new = [fault for fault in faults if (fault.node, fault.reason) not in self._turned_away]
        self._turned_away |= {(fault.node, fault.reason) for fault in new}
        return new

    def _bind(self, node: str, ue: object, reachable: AbstractSet[str], round: int) -> Fault | None:
        if type(ue) is not int or not 0 <= ue < self.ues:
            return Fault(round, -1, node, "claim", f"{reprlib.repr(ue)}, not a UE from 0 to {self.ues - 1}")
        own = [other for other, name in self.nodes.items() if name == node]
        if own and own != [ue]:
            return Fault(round, ue, node, "taken", f"node {node} is UE {own[0]} already")
        old = self.nodes.get(ue, node)
        if old != node and (self.keyed or old in reachable):
            return Fault(round, ue, node, "taken", f"belongs to node {old}")
        self.nodes[ue] = node
        return None

    def to_array(self) -> NDArray[Any]:
        """Return the names (K,) of the nodes for a checkpoint, "" where there is none."""
        return np.array([self.nodes.get(ue, "") for ue in range(self.ues)])

    def restore(self, names: NDArray[Any]) -> None:
        """Continue with the nodes of a checkpoint."""
        if names.shape != (self.ues,) or names.dtype.kind != "U":
            raise RefusedError(f"the checkpoint's nodes are {names.dtype}{names.shape}, not one name per UE")
        self.nodes = {ue: name for ue, name in enumerate(names.tolist()) if name}
