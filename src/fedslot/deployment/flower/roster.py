"""Which node stands for which UE.

A node says in its node config which UE it is; the first to claim a UE gets it. With SuperNode authentication a
node keeps its id over restarts, so a UE belongs to its key for good. Without, a device that comes back is a new
node, which may take its UE over once the old node is gone.
"""

from __future__ import annotations

import reprlib
import time
from collections.abc import Iterable
from logging import INFO

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from numpy.typing import NDArray

from fedslot.deployment.flower.faults import Fault
from fedslot.deployment.flower.grid import Answer, DeadlineGrid
from fedslot.deployment.flower.turn import LABEL, UE, WHO
from fedslot.errors import RefusedError

PATIENCE = 60.0  # seconds that a node has to say who it is, before it is asked again
GLANCE = 1.0  # seconds after which it is seen who else has come


class Roster:
    """The nodes of UEs 0 to K - 1.

    ues: number of UEs, K.
    keyed: whether SuperNodes have keys, so that a node's UE is its own for good.
    """

    def __init__(self, ues: int, keyed: bool) -> None:
        self.nodes = np.zeros(ues, dtype=np.uint64)  # 0: no node yet
        self.keyed = keyed
        self._told: set[tuple[int, str]] = set()

    def online(self, grid: Grid) -> dict[int, int]:
        """The nodes that can be reached now, by UE."""
        reachable = set(grid.get_node_ids())
        return {ue: node for ue, node in enumerate(self.nodes.tolist()) if node in reachable}

    def gather(self, grid: DeadlineGrid, wait: float) -> list[Fault]:
        """Wait until every UE has a node, or for so many seconds; one at least must come."""
        faults: list[Fault] = []
        until = time.monotonic() + wait
        while len(here := self.online(grid)) < len(self.nodes) and (now := time.monotonic()) < until:
            self.ask(grid)
            glance = min(now + GLANCE, until)
            answers = grid.collect(grid.open.keys(), glance)
            faults += self.bind(answers, grid, round=0)
            if not answers:
                time.sleep(max(0.0, min(grid.poll, glance - time.monotonic())))
        log(INFO, "fedslot: %d of %d UEs are here", len(here), len(self.nodes))
        if not here:
            raise RefusedError(
                f"no UE came within {wait:g} s; start SuperNodes with --node-config partition-id=0 and so on, and a "
                "ClientApp with mods=[slot_access]"
            )
        return faults

    def ask(self, grid: DeadlineGrid) -> None:
        """Ask the nodes that have come which UE they are; their answers come with others."""
        known = {*self.nodes.tolist(), *(message.metadata.dst_node_id for message in grid.open.values())}
        record = RecordDict({LABEL: ConfigRecord({WHO: True})})
        strangers = sorted(set(grid.get_node_ids()) - known)
        grid.send(Message(record, node, MessageType.TRAIN, ttl=PATIENCE) for node in strangers)

    def bind(self, answers: Iterable[Answer], grid: Grid, round: int) -> list[Fault]:
        """Enter the nodes that said who they are. Those turned away are asked again, but written down once."""
        reachable = set(grid.get_node_ids())
        in_order = sorted(answers, key=lambda answer: answer[0].metadata.dst_node_id)  # of those who came at once
        faults = [self._enter(question, reply, reachable, round) for question, reply in in_order]
        news = [fault for fault in faults if fault and (fault.node, fault.reason) not in self._told]
        self._told |= {(fault.node, fault.reason) for fault in news}
        return news

    def _enter(self, question: Message, reply: Message, reachable: set[int], round: int) -> Fault | None:
        node, ue = question.metadata.dst_node_id, _claim(reply)
        if type(ue) is not int or not 0 <= ue < len(self.nodes):
            return Fault(round, -1, node, "claim", f"{reprlib.repr(ue)}, not a UE from 0 to {len(self.nodes) - 1}")
        own = np.flatnonzero(self.nodes == node)
        if len(own) and own[0] != ue:  # a second answer
            return Fault(round, ue, node, "taken", f"node {node} is UE {own[0]} already")
        old = int(self.nodes[ue])
        if old not in (0, node) and (self.keyed or old in reachable):
            return Fault(round, ue, node, "taken", f"belongs to node {old}")
        self.nodes[ue] = node
        return None

    def restore(self, nodes: NDArray[np.uint64]) -> None:
        """Go on with the nodes of a saved state."""
        if nodes.shape != self.nodes.shape or nodes.dtype != self.nodes.dtype:
            raise RefusedError(f"the checkpoint's nodes are {nodes.dtype}{nodes.shape}, not one per UE")
        self.nodes = nodes.copy()


def asks_who(question: Message) -> bool:
    """Whether a message asks a node which UE it is."""
    return WHO in question.content.config_records[LABEL]


def _claim(reply: Message) -> object:
    """What a node says it is; None if it says nothing sensible."""
    if not reply.has_content():
        return None
    label = reply.content.config_records.get(LABEL)
    return None if label is None else label.get(UE)
