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
from fedslot.deployment.roster import Roster
from fedslot.support.errors import RefusedError

ASK_AGAIN = 60.0  # seconds that a node has to answer before it is asked again
LOOK_AGAIN = 1.0  # seconds after which the PS looks for new nodes
logger = getLogger("flwr")


def online(roster: Roster, grid: Grid) -> dict[int, int]:
    """Return Flower's ids of the nodes that can be reached now, by UE."""
    return {ue: int(node) for ue, node in roster.online(_reachable(grid)).items()}


def gather(roster: Roster, grid: DeadlineGrid, wait: float, round: int) -> list[Fault]:
    """Wait before a round until every UE has a node, for `wait` seconds at most; refuse to go on without any."""
    faults: list[Fault] = []
    until = time.monotonic() + wait
    while len(here := online(roster, grid)) < roster.ues and (now := time.monotonic()) < until:
        ask_new_nodes(roster, grid)
        look = min(now + LOOK_AGAIN, until)
        answers = grid.collect(grid.open.keys(), look)
        faults += bind(roster, answers, grid, round)
        if not answers:
            time.sleep(max(0.0, min(grid.poll, look - time.monotonic())))
    logger.info("fedslot: %d of %d UEs are here", len(here), roster.ues)
    if not here:
        raise RefusedError(
            f"no UE came within {wait:g} s; start SuperNodes with --node-config partition-id=0 and so on, and a "
            "ClientApp with mods=[slot_access]"
        )
    return faults


def ask_new_nodes(roster: Roster, grid: DeadlineGrid) -> None:
    """Ask the nodes that are not in the roster which UE they are, without waiting for the answers."""
    asked = {message.metadata.dst_node_id for message in grid.open.values()}
    new = sorted(set(grid.get_node_ids()) - asked - {int(node) for node in roster.nodes.values()})
    question = RecordDict({LABEL: ConfigRecord({WHO: True})})
    grid.send(Message(question, node, MessageType.TRAIN, ttl=ASK_AGAIN) for node in new)


def asks_who(question: Message) -> bool:
    """Tell whether a message asks a node which UE it is."""
    return WHO in question.content.config_records[LABEL]


def bind(roster: Roster, answers: Iterable[Answer], grid: Grid, round: int) -> list[Fault]:
    """Enter the nodes that answered which UE they are."""
    claims = []
    for question, reply in sorted(answers, key=lambda answer: answer[0].metadata.dst_node_id):
        label = reply.content.config_records.get(LABEL) if reply.has_content() else None
        claims.append((str(question.metadata.dst_node_id), None if label is None else label.get(UE)))
    return roster.bind(claims, _reachable(grid), round)


def _reachable(grid: Grid) -> set[str]:
    return {str(node) for node in grid.get_node_ids()}
