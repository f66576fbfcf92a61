"""Which node stands for which UE.

A node says in its node config which UE it is; the first to claim a UE gets it. With SuperNode authentication a
node keeps its id over restarts, so a UE belongs to its key for good. Without, a device that comes back is a new
node, which may take its UE over once the old node is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import INFO

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from numpy.typing import NDArray

from fedslot.errors import RefusedError
from fedslot.flower.faults import Fault
from fedslot.flower.turn import LABEL, UE, WHO


class Roster:
    """The nodes of UEs 0 to K - 1.

    ues: number of UEs, K.
    keyed: whether SuperNodes have keys, so that a node's UE is its own for good.
    patience: seconds that a node has to say who it is.
    """

    def __init__(self, ues: int, keyed: bool, patience: float) -> None:
        self.nodes = np.zeros(ues, dtype=np.uint64)  # 0: no node yet
        self.keyed, self.patience = keyed, patience
        self._asked: dict[str, int] = {}
        self._told: set[tuple[int, str]] = set()

    def online(self, grid: Grid) -> dict[int, int]:
        """The nodes that can be reached now, by UE."""
        reachable = set(grid.get_node_ids())
        return {ue: node for ue, node in enumerate(self.nodes.tolist()) if node in reachable}

    def gather(self, grid: Grid, wait: float, poll: float) -> list[Fault]:
        """Wait until every UE has a node, or for so many seconds; one at least must come."""
        faults, until = self.meet(grid, 0), time.monotonic() + wait
        while len(self.online(grid)) < len(self.nodes) and time.monotonic() < until:
            time.sleep(poll)
            faults += self.meet(grid, 0)
        here = len(self.online(grid))
        log(INFO, "fedslot: %d of %d UEs are here", here, len(self.nodes))
        if not here:
            raise RefusedError(
                f"no UE came within {wait:g} s; start SuperNodes with --node-config partition-id=0 and so on, and a "
                "ClientApp with mods=[slot_access]"
            )
        return faults

    def meet(self, grid: Grid, round: int) -> list[Fault]:
        """Hear what nodes answered since the last time, and ask those who have come; never waits."""
        reachable = set(grid.get_node_ids())
        faults = [fault for fault in self._hear(grid, reachable, round) if self._is_news(fault)]
        strangers = reachable - set(self.nodes.tolist()) - set(self._asked.values())
        record = RecordDict({LABEL: ConfigRecord({WHO: True})})
        questions = [Message(record, node, MessageType.TRAIN, ttl=self.patience) for node in sorted(strangers)]
        if questions:
            grid.push_messages(questions)
        self._asked |= {question.metadata.message_id: question.metadata.dst_node_id for question in questions}
        return faults

    def _hear(self, grid: Grid, reachable: set[int], round: int) -> Iterable[Fault]:
        for question, node in list(self._asked.items()):
            try:
                replies = list(grid.pull_messages([question]))
            except Exception as error:  # a reply that cannot even be read
                del self._asked[question]
                yield Fault(round, -1, node, "claim", f"unreadable ({type(error).__name__})")
                continue
            if replies or node not in reachable:
                del self._asked[question]
            for reply in replies[:1]:
                if node in reachable:
                    yield from self._bind(reply, node, reachable, round)

    def _bind(self, reply: Message, node: int, reachable: set[int], round: int) -> Iterable[Fault]:
        ue = _claim(reply) if reply.metadata.src_node_id == node else None
        if type(ue) is not int or not 0 <= ue < len(self.nodes):
            detail = f"{ue!r:.60}, not a UE from 0 to {len(self.nodes) - 1}"
            yield Fault(round, -1, node, "claim", detail)
            return
        old = int(self.nodes[ue])
        if old and (self.keyed or old in reachable):
            yield Fault(round, ue, node, "taken", f"belongs to node {old}")
            return
        self.nodes[ue] = node

    def _is_news(self, fault: Fault) -> bool:
        """Nodes that are turned away are asked again in every round, but written down once."""
        told = (fault.node, fault.reason)
        new = told not in self._told
        self._told.add(told)
        return new

    def restore(self, nodes: NDArray[np.uint64]) -> None:
        """Go on with the nodes of a saved state."""
        if nodes.shape != self.nodes.shape or nodes.dtype != self.nodes.dtype:
            raise RefusedError(f"the checkpoint's nodes are {nodes.dtype}{nodes.shape}, not one per UE")
        self.nodes = nodes.copy()


def _claim(reply: Message) -> object:
    """What a node says it is; None if it says nothing sensible."""
    if not reply.has_content():
        return None
    label = reply.content.config_records.get(LABEL)
    return None if label is None else label.get(UE)
