"""What went wrong with whom: `faults.csv`, a line each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from fedslot.records import write_atomically

FAULTS = "faults.csv"


@dataclass(frozen=True)
class Fault:
    """Why a UE's update was lost, or a node was turned away.

    round: the frame in which it was asked, from 0.
    ue: the UE; -1 for a node that is none.
    node: Flower's id of the node; 0 if none stands for the UE.
    reason: one word; `docs/deployment.md` lists them.
    detail: what was found.
    """

    round: int
    ue: int
    node: int
    reason: str
    detail: str = ""


class FaultLog:
    """Appends faults to a file, each complete on disk before the next; without a file they are only kept."""

    def __init__(self, folder: Path | None = None, until: int = 0) -> None:
        """Go on behind the faults of the rounds before `until`; those after them will come anew."""
        self.all: list[Fault] = []
        self._file = folder / FAULTS if folder else None
        if self._file:
            if self._file.is_file():
                with self._file.open(encoding="utf-8", newline="") as file:
                    rows = list(csv.reader(file))[1:]
                self.all = [fault for row in rows if (fault := _fault(row)) and fault.round < until]
            header = ",".join(field.name for field in fields(Fault)) + "\n"
            write_atomically(self._file, header + _lines(self.all))

    def add(self, faults: Iterable[Fault]) -> None:
        """Write them down."""
        new = list(faults)
        self.all += new
        if self._file and new:
            with self._file.open("a", encoding="utf-8", newline="") as file:
                file.write(_lines(new))


def _fault(row: list[str]) -> Fault | None:
    """The fault of a row; none if it was torn when the machine went down."""
    try:
        round, ue, node, reason, detail = row
        return Fault(int(round), int(ue), int(node), reason, detail)
    except ValueError:
        return None


def _lines(faults: Iterable[Fault]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(astuple(fault) for fault in faults)
    return buffer.getvalue()
