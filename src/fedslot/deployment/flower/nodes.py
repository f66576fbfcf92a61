"""Which UE each of Flower's nodes is: the PS asks every new node, and binds it by its answer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import getLogger

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedslot.deployment.faults import Fault
from fedslot.deployment.flower.grid import Answer, DeadlineGrid
from fedslot.deployment.flower.messages import LABEL, UE, WHO
from fedslot.deployment.frame import Turn
from fedslot.deployment.server import ParameterServer
from fedslot.support.errors import RefusedError

ASK_AGAIN = 60.0  # seconds that a node has to answer before it is asked again
LOOK_AGAIN = 1.0  # seconds after which the PS looks for new nodes
logger = getLogger("flwr")


def online(server: ParameterServer, grid: Grid) -> dict[int, int]:
    """Return Flower's ids of the nodes that can be reached now, by UE."""
    return {ue: int(node) for ue, node in server.roster.online(_reachable(grid)).items()}


def gather(server: ParameterServer, grid: DeadlineGrid, wait: float) -> None:
    """Wait before a round until every UE has a node, for `wait` seconds at most; refuse to go on without any."""
    until, ues = time.monotonic() + wait, server.roster.ues
    while len(here := online(server, grid)) < ues and (now := time.monotonic()) < until:
        ask_new_nodes(server, grid)
        look = min(now + LOOK_AGAIN, until)
        answers = grid.collect(grid.open.keys(), look)
        note(server, grid, answers)
        if not answers:
            time.sleep(max(0.0, min(grid.poll, look - time.monotonic())))
    logger.info("fedslot: %d of %d UEs are here", len(here), ues)
    if not here:
        raise RefusedError(
            f"no UE came within {wait:g} s; start SuperNodes with --node-config partition-id=0 and so on, and a "
            "ClientApp with mods=[slot_access]"
        )


def ask_new_nodes(server: ParameterServer, grid: DeadlineGrid) -> None:
    """Ask the nodes that are not in the roster which UE they are, without waiting for the answers."""
    asked = {message.metadata.dst_node_id for message in grid.open.values()}
    new = sorted(set(grid.get_node_ids()) - asked - {int(node) for node in server.roster.nodes.values()})
    question = RecordDict({LABEL: ConfigRecord({WHO: True})})
    grid.send(Message(question, node, MessageType.TRAIN, ttl=ASK_AGAIN) for node in new)


def note(server: ParameterServer, grid: Grid, answers: Iterable[Answer]) -> None:
    """Handle the answers to other messages than the frame's: which UE a node is, and replies to earlier frames."""
    claims = []
    for question, reply in sorted(answers, key=lambda answer: answer[0].metadata.dst_node_id):
        node, asked = str(question.metadata.dst_node_id), question.content.config_records[LABEL]
        if WHO in asked:
            label = reply.content.config_records.get(LABEL) if reply.has_content() else None
            claims.append((node, None if label is None else label.get(UE)))
        elif reply.has_content():
            turn = Turn(**asked)  # type: ignore[arg-type]
            server.faults.add(Fault(turn.round, turn.ue, node, "late"))
    server.faults.add(*server.roster.bind(claims, _reachable(grid), server.now.round))


def _reachable(grid: Grid) -> set[str]:
    return {str(node) for node in grid.get_node_ids()}
