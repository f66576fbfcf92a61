"""Availability of UEs from a file of the user's own, such as a recorded trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.fleet.availability import slot_length
from fedslot.scenario import AvailabilityPart
from fedslot.support.errors import InputError
from fedslot.support.files import file_digest

COLUMNS = {unit: ["ue", f"on_{unit}", f"off_{unit}"] for unit in ("slots", "seconds")}


class Listed:
    """UEs are there in the intervals that a CSV file lists.

    path: of the file, whose name ends in .csv, with the columns `ue` (from 0), `on_slots` and `off_slots`, or
        `on_seconds` and `off_seconds`: from when and until when a UE is there. A UE may have any number of rows, and
        must have one; `3,0,0` says that UE 3 is never there. In a YAML file, the path is relative to that file,
        elsewhere to the current folder.
    period: time after which the file begins again, in its unit; null: after its end, all are away.
    """

    def __init__(
        self,
        ues: int,
        seed: int,
        slot_seconds: float | None,
        *,
        path: str = "",
        period: Annotated[float, Field(gt=0, le=1e12)] | None = None,
    ) -> None:
        self.ues = ues
        if not path.endswith(".csv"):
            _refuse(path, "the path of a file that ends in .csv")
        try:
            with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte-order mark
                unit, rows = _read(path, csv.reader(file, strict=True), ues, period)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            _refuse(path, f"a CSV file that can be read ({error})")
        length = slot_length(unit, slot_seconds, "path")
        self.owner, self.on, self.off = rows[:, 0].astype(np.int64), rows[:, 1] / length, rows[:, 2] / length
        self.period = None if period is None else period / length

    def at(self, time: float) -> NDArray[np.bool_]:
        """Return which UEs (K,) are there at a time, in slots."""
        since = time if self.period is None else time % self.period
        there = np.zeros(self.ues, dtype=bool)
        there[self.owner[(self.on <= since) & (since < self.off)]] = True
        return there


def digest(part: AvailabilityPart | None) -> str | None:
    """Return the SHA-256 of the file that the law `csv` reads; None for other laws."""
    if part is None or part.name != "csv":
        return None
    path = str(part.options.get("path", ""))
    try:
        return file_digest(Path(path))
    except OSError as error:
        raise InputError("fleet.availability.options.path", path, f"a file that can be read ({error})") from None


def _read(path: str, rows: Iterable[list[str]], ues: int, period: float | None) -> tuple[str, NDArray[np.float64]]:
    """Return the unit of a file, and its rows: UE, beginning and end of each interval (n, 3)."""
    lines = enumerate(rows, 1)
    _, header = next(lines, (1, []))
    unit = next((unit for unit, names in COLUMNS.items() if sorted(header) == sorted(names)), None)
    if unit is None:
        wanted = "the columns ue, on_slots and off_slots, or ue, on_seconds and off_seconds"
        _refuse(path, f"a file with {wanted}, not {', '.join(header) or 'none'}")
    order = [header.index(name) for name in COLUMNS[unit]]
    intervals: list[tuple[float, float, float]] = []
    for line, row in lines:
        if len(row) != len(order):
            _refuse(path, f"a file with {len(order)} values in each row; line {line} has {len(row)}")
        try:
            ue, on, off = (float(row[column]) for column in order)
        except ValueError:
            _refuse(path, f"a file of numbers; line {line} has {', '.join(row)!r}")
        if ue not in range(ues):
            _refuse(path, f"a file with UEs from 0 to {ues - 1}; line {line} has {ue:g}")
        if not 0 <= on <= off or math.isinf(on):
            _refuse(path, f"a file with intervals that begin at 0 or later, and end after that; line {line}")
        if period is not None and off > period:
            _refuse(path, f"a file with intervals that end within the period, {period:g}; line {line} has {off:g}")
        intervals.append((ue, on, off))
    missing = set(range(ues)).difference(int(ue) for ue, _, _ in intervals)
    if missing:
        _refuse(path, f"a file with a row for each of {ues} UEs; UE {min(missing)} is missing")
    return unit, np.array(intervals, dtype=np.float64)


def _refuse(path: str, allowed: str) -> NoReturn:
    raise InputError("path", path, allowed)
