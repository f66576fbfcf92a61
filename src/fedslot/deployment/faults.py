"""Faults of a deployment: which updates were lost and which devices were turned away, in `faults.csv`."""

from __future__ import annotations

import csv
import io
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from logging import getLogger
from pathlib import Path

from fedslot.runs.folders import write_atomically
from fedslot.support.errors import RefusedError

FAULTS = "faults.csv"
NO_NODE, ABSENT = "0", "absent"
REMEMBERED = 10_000
logger = getLogger(__name__)


@dataclass(frozen=True)
class Fault:
    """Why a UE's update was lost, or a node was turned away.

    round: the frame in which it happened, from 0.
    ue: the UE; -1 if it concerns no UE.
    node: the transport's name of the device; "0" if there is none.
    reason: one word; `docs/how-to/deployment.md` lists them.
    detail: what was found.
    """

    round: int
    ue: int
    node: str
    reason: str
    detail: str = ""


class FaultLog:
    """The faults of a run, appended to `faults.csv` as they happen; of many, only the last ones stay in memory.

    quiet: reasons of faults about which the log has other lines.
    """

    def __init__(self, folder: Path | None = None, until: int = 0) -> None:
        """Read the faults of rounds before `until`; later ones are dropped, because those rounds are repeated."""
        self._last, self.counts = deque[Fault](maxlen=REMEMBERED), Counter[str]()
        self.quiet: frozenset[str] = frozenset()
        self._file = folder / FAULTS if folder else None
        before: list[Fault] = []
        if self._file:
            if self._file.exists():
                try:
                    with self._file.open(encoding="utf-8", newline="") as file:
                        rows = list(csv.reader(file))[1:]
                except (OSError, ValueError, csv.Error) as error:
                    raise RefusedError(f"{self._file} cannot be read ({error}); remove it") from None
                before = [fault for row in rows if (fault := _fault(row)) and fault.round < until]
                self._count(before)
            header = ",".join(field.name for field in fields(Fault)) + "\n"
            write_atomically(self._file, header + _lines(before))

    @property
    def all(self) -> list[Fault]:
        """The faults, of many the last ones; the file has all of them, and `counts` their number by reason."""
        return list(self._last)

    def _count(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._last.append(fault)
            self.counts[fault.reason] += 1

    def add(self, *faults: Fault) -> None:
        """Write faults to the file and to the log."""
        self._count(faults)
        for fault in faults:
            if fault.reason in self.quiet:
                continue
            line = "round %d: UE %d, node %s: %s %s"
            logger.warning(line, *astuple(fault), extra={"fields": asdict(fault)})
        if self._file and faults:
            with self._file.open("a", encoding="utf-8", newline="") as file:
                file.write(_lines(faults))


def _fault(row: list[str]) -> Fault | None:
    """Return the fault of a row, or None if the row is incomplete because the machine went down."""
    try:
        round, ue, node, reason, detail = row
        return Fault(int(round), int(ue), node, reason, detail)
    except ValueError:
        return None


def _lines(faults: Iterable[Fault]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(astuple(fault) for fault in faults)
    return buffer.getvalue()
