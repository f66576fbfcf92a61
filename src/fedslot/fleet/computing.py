"""Computing times of the UEs: how long a training takes, by the paper's law or by a file of the user's own."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fedslot.scenario import ComputingSection
from fedslot.support.errors import InputError
from fedslot.support.files import file_digest
from fedslot.support.rng import COMPUTING, stream

Times = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Computing:
    """Computing times of a fleet. sizes: (K,) training samples of each UE."""

    section: ComputingSection
    sizes: NDArray[np.int64]
    seed: int

    def __post_init__(self) -> None:
        if self.section.times is not None:  # a file that cannot be used is refused before anything is computed
            self._listed  # noqa: B018

    def times(self, version: int) -> Times:
        """Return the computing times of the UEs, (K,) in slots, for a training that begins in a round."""
        times: Times = self._drawn(version) if self.section.redraw else self._fixed
        return times

    def ready_by(self, times: Times) -> Times:
        """Return the probability that a training takes at most each time (n,) in slots; the mean over the UEs."""
        if self.section.times is not None:
            shares = [np.searchsorted(np.sort(own), times, side="right") / len(own) for own in self._listed]
            return np.asarray(np.mean(shares, axis=0))
        from scipy.special import gammainc  # slow to import

        bits, scale = workload(self.section, self.sizes), law_scale(self.section, self.sizes)
        with np.errstate(divide="ignore", invalid="ignore"):  # a UE without samples is ready at once
            most = (times * self.section.slot)[:, None] * self.section.frequency / bits / scale
            chances = np.where(bits * scale > 0, gammainc(self.section.shape, most), 1.0)
        by_time: Times = np.minimum(chances.mean(axis=1), 1.0)
        return by_time

    @cached_property
    def _fixed(self) -> Times:
        return self._drawn(None)

    @cached_property
    def _listed(self) -> list[Times]:
        return read_times(self.section, len(self.sizes))

    def _drawn(self, version: int | None) -> Times:
        rng = stream(self.seed, COMPUTING, *([] if version is None else [version]))
        if self.section.times is not None:
            listed = self._listed
            counts = np.array([len(own) for own in listed])
            first = np.cumsum(counts) - counts
            chosen: Times = np.concatenate(listed)[first + rng.integers(counts)]
            return chosen
        cycles_per_bit = rng.gamma(self.section.shape, law_scale(self.section, self.sizes), size=len(self.sizes))
        return workload(self.section, self.sizes) * cycles_per_bit / self.section.frequency / self.section.slot


def law_scale(section: ComputingSection, sizes: NDArray[np.int64]) -> float:
    """Return the scale of the Gamma law of cycles per bit: as given, or that with which times have the given mean.

    T = I(eps) D c / f with c ~ Gamma cycles per bit (Sec. II-C). The paper normalises the Gamma density by an
    incomplete gamma function, with which it does not integrate to one. This is the ordinary Gamma distribution.
    """
    if section.mean_slots is None:
        return section.scale
    mean_of_one = section.shape * float(workload(section, sizes).mean()) / section.frequency / section.slot
    return section.mean_slots / mean_of_one


def workload(section: ComputingSection, sizes: NDArray[np.int64]) -> Times:
    """Return the bits that each UE's local training goes through, (K,): I(eps) D, iterations times bits of data."""
    iterations = section.iterations * math.log(1 / section.accuracy)
    return np.asarray(iterations * sizes * section.bits_per_sample, dtype=np.float64)


def read_times(section: ComputingSection, ues: int) -> list[Times]:
    """Read the computing times of each UE from the CSV file of a section, in slots."""
    path = str(section.times)
    if not path.endswith(".csv"):
        _refuse(path, "the path of a file that ends in .csv")
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte-order mark
            return _read(section, csv.reader(file, strict=True), ues)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        _refuse(path, f"a CSV file that can be read ({error})")


def digest(section: ComputingSection | None) -> str | None:
    """Return the SHA-256 of the file with computing times; None if there is none."""
    if section is None or section.times is None:
        return None
    try:
        return file_digest(Path(section.times))
    except OSError as error:
        _refuse(section.times, f"a file that can be read ({error})")


def _read(section: ComputingSection, rows: Iterable[list[str]], ues: int) -> list[Times]:
    path, lines = str(section.times), enumerate(rows, 1)
    _, header = next(lines, (1, []))
    unit = next((name for name in ("slots", "seconds") if sorted(header) == sorted(["ue", name])), None)
    if unit is None:
        _refuse(path, f"a file with the columns ue and slots or seconds, not {', '.join(header) or 'none'}")
    times: list[list[float]] = [[] for _ in range(ues)]
    for line, ue, time in _numbers(path, lines, header):
        if ue not in range(ues):
            _refuse(path, f"a file with UEs from 0 to {ues - 1}; line {line} has {ue:g}")
        if not 0 <= time < math.inf:
            _refuse(path, f"a file with times of at least 0; line {line} has {time:g}")
        if times[int(ue)] and not section.redraw:
            _refuse(path, f"a file with one row for each UE, unless redraw is true; line {line} has UE {ue:g} again")
        times[int(ue)].append(time if unit == "slots" else time / section.slot)
    if not all(times):
        missing = next(ue for ue, own in enumerate(times) if not own)
        _refuse(path, f"a file with a row for each of {ues} UEs; UE {missing} is missing")
    return [np.array(own) for own in times]


def _numbers(
    path: str, lines: Iterable[tuple[int, list[str]]], header: list[str]
) -> Iterator[tuple[int, float, float]]:
    """Yield line, UE and time of each row."""
    ue, time = header.index("ue"), 1 - header.index("ue")
    for line, row in lines:
        if len(row) != 2:
            _refuse(path, f"a file with 2 values in each row; line {line} has {len(row)}")
        try:
            yield line, float(row[ue]), float(row[time])
        except ValueError:
            _refuse(path, f"a file of numbers; line {line} has {', '.join(row)!r}")


def _refuse(path: str, allowed: str) -> NoReturn:
    raise InputError("fleet.computing.times", path, allowed)
