"""The records that PS and devices add to Flower's messages: a UE's turn, the slots that it used, which UE a node is."""

from __future__ import annotations

from dataclasses import asdict

from flwr.app import ConfigRecord

from fedslot.deployment.frame import Turn

LABEL = "fedslot"  # key of the record
WHO, UE = "who", "ue"  # its keys in the question which UE a node is, and in the answer
ROUND, SLOTS = "round", "slots"  # its keys in the reply to a turn


def write_turn(turn: Turn) -> ConfigRecord:
    """Return the record that tells a UE its turn."""
    return ConfigRecord(asdict(turn))


def read_turn(record: ConfigRecord) -> Turn:
    """Return the turn that a record tells."""
    return Turn(**record)  # type: ignore[arg-type]


def write_slots(round: int, slots: list[int]) -> ConfigRecord:
    """Return the record that tells the PS which slots a UE used; none if it was barred."""
    return ConfigRecord({ROUND: round, SLOTS: slots})
