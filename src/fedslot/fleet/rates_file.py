"""Rates, and losses, of the UEs' links from a file of the user's own."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np

from fedslot.fleet.rates import Rates
from fedslot.scenario import RatesPart
from fedslot.support.errors import InputError
from fedslot.support.files import file_digest

COLUMNS = ["ue", "rate", "outage"]


def listed(ues: int, rng: np.random.Generator, *, path: str = "") -> tuple[Rates, Rates]:
    """Read the rates and outage probabilities of the UEs from a CSV file, in which every UE has one row.

    path: of the file, whose name ends in .csv, with the columns `ue` (from 0), `rate` and, if you like, `outage`. In a
        YAML file, the path is relative to that file, elsewhere to the current folder.
    """
    if not path.endswith(".csv"):
        _refuse(path, "the path of a file that ends in .csv")
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte-order mark
            return _read(path, csv.reader(file, strict=True), ues)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        _refuse(path, f"a CSV file that can be read ({error})")


def digest(part: RatesPart) -> str | None:
    """Return the SHA-256 of the file that the law `csv` reads; None for other laws."""
    if part.name != "csv":
        return None
    path = str(part.options.get("path", ""))
    try:
        return file_digest(Path(path))
    except OSError as error:
        raise InputError("radio.rates.options.path", path, f"a file that can be read ({error})") from None


def _read(path: str, rows: Iterable[list[str]], ues: int) -> tuple[Rates, Rates]:
    lines = enumerate(rows, 1)
    _, header = next(lines, (1, []))
    if sorted(header) not in (sorted(COLUMNS), sorted(COLUMNS[:2])):
        _refuse(path, f"a file with the columns ue, rate and, if you like, outage, not {', '.join(header) or 'none'}")
    order = [header.index(name) for name in COLUMNS if name in header]
    rates, outage = np.zeros(ues), np.zeros(ues)
    for line, row in lines:
        if len(row) != len(header):
            _refuse(path, f"a file with {len(header)} values in each row; line {line} has {len(row)}")
        ue, rate, *lost = (_number(path, line, row[column]) for column in order)
        if ue not in range(ues):
            _refuse(path, f"a file with UEs from 0 to {ues - 1}; line {line} has {row[order[0]]}")
        if not 0 < rate <= 1:
            _refuse(path, f"a file with rates above 0 and at most 1, that of the slot; line {line} has {rate:g}")
        if lost and not 0 <= lost[0] < 1:
            _refuse(path, f"a file with outage probabilities from 0 to below 1; line {line} has {lost[0]:g}")
        if rates[int(ue)]:
            _refuse(path, f"a file with one row for each UE; line {line} has UE {ue:g} again")
        rates[int(ue)], outage[int(ue)] = rate, lost[0] if lost else 0.0
    if not rates.all():
        _refuse(path, f"a file with a row for each of {ues} UEs; UE {int(np.argmin(rates))} is missing")
    return rates, outage


def _number(path: str, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        _refuse(path, f"a file of numbers; line {line} has {text!r}")


def _refuse(path: str, allowed: str) -> NoReturn:
    raise InputError("path", path, allowed)
