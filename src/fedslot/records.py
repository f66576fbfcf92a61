"""The run folder: scenario, one row per round, checkpoint and summary, without pickles and never half-written."""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fedslot.errors import RefusedError
from fedslot.folders import RUN, Claim, claim, refuse_foreign, refusing, write_atomically
from fedslot.round import Round, Snapshot
from fedslot.scenario import Scenario

SCENARIO, ROUNDS, CHECKPOINT, SUMMARY = "scenario.yaml", "rounds.csv", "checkpoint.npz", "summary.json"
FILES = (SCENARIO, ROUNDS, CHECKPOINT, SUMMARY)  # in the order in which they are written
PLAIN = ("round", "slots_spent", "waiting", "model", "report")  # fields of a snapshot that are arrays or numbers
COLUMNS = [field.name for field in fields(Round)]


class RunFolder:
    """The folder in which a run saves its results, and from which it can be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, scenario: Scenario, *, resume: bool = False, force: bool = False) -> Claim:
        """Take the folder for a run of this scenario, by the rule of `folders.claim`, and write the scenario."""
        check = partial(self._check, scenario)
        return claim(self.path, RUN, scenario.to_yaml(), check, resume=resume, force=force)

    def check(self, scenario: Scenario, resume: bool) -> None:
        """Refuse a folder that `claim` would refuse, without taking it."""
        refuse_foreign(self.path, RUN, resume)
        if (self.path / SCENARIO).is_file():
            self._check(scenario)

    def _check(self, scenario: Scenario) -> None:
        if self.scenario().digest != scenario.digest:
            raise RefusedError(f"{self.path} belongs to another scenario{self.scenario().difference(scenario)}")

    def scenario(self) -> Scenario:
        """Read the complete scenario of the run."""
        return Scenario.load(self.path / SCENARIO)

    def rounds(self) -> pd.DataFrame:
        """Read the rows written so far, one per round."""
        return pd.read_csv(self.path / ROUNDS)

    def open_rows(self, keep: int) -> RowWriter:
        """Open `rounds.csv` to append to its first `keep` rows; later rows are deleted."""
        file = self.path / ROUNDS
        lines = file.read_text("utf-8").splitlines(keepends=True)[: keep + 1] if file.is_file() and keep else []
        if not lines:
            lines = [",".join(COLUMNS) + "\n"]
        if len(lines) != keep + 1 or not lines[-1].endswith("\n"):
            raise RefusedError(f"{file} has fewer rows than its checkpoint; delete {self.path} and start over")
        write_atomically(file, "".join(lines))
        return RowWriter(file)

    def save(self, now: Snapshot, more: Mapping[str, NDArray[Any]] = MappingProxyType({})) -> None:
        """Write a checkpoint from which the run can be resumed; `more` holds further arrays, by name."""
        arrays: dict[str, Any] = {f"more.{name}": array for name, array in more.items()}
        for part in ("state", "aggregation"):
            arrays |= {f"{part}.{name}": array for name, array in state_arrays(getattr(now, part)).items()}
        arrays |= {name: _array(getattr(now, name)) for name in PLAIN}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_atomically(self.path / CHECKPOINT, buffer.getvalue())

    def restore(self, start: Snapshot) -> Snapshot:
        """Read the last checkpoint, or return `start` if there is none. Its arrays must have the shapes of `start`."""
        file = self.path / CHECKPOINT
        if not file.is_file():
            return start
        try:
            with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as saved:
                plain = {name: _like(getattr(start, name), saved[name]) for name in PLAIN}
                states = {
                    part: restore_state(getattr(start, part), saved, f"{part}.") for part in ("state", "aggregation")
                }
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise RefusedError(f"{file} is damaged ({error}); delete {self.path} and start over") from None
        return Snapshot(**plain, **states)

    def more(self) -> dict[str, NDArray[Any]]:
        """Read the further arrays of the last checkpoint, by name."""
        file = self.path / CHECKPOINT
        if not file.is_file():
            return {}
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as saved:
            return {name.removeprefix("more."): saved[name] for name in saved if name.startswith("more.")}

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        write_atomically(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def pack(self) -> dict[str, bytes]:
        """Return the content of the run's files by name, to send to another machine."""
        return {name: (self.path / name).read_bytes() for name in FILES if (self.path / name).is_file()}

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Write files that `pack` returned, the summary last, since it marks a finished run; ignore any others."""
        with refusing(self.path):
            if files:
                self.path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                if name in files:
                    write_atomically(self.path / name, files[name])


class RowWriter:
    """Appends rounds to `rounds.csv`, and flushes each one."""

    def __init__(self, file: Path) -> None:
        self._file: IO[str] = file.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")

    def append(self, round: Round) -> None:
        """Write one row."""
        self._writer.writerow(astuple(round))
        self._file.flush()

    def sync(self) -> None:
        """Make sure that the rows written so far survive a crash of the machine."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_summary(path: Path) -> dict[str, Any] | None:
    """Read the summary of a run; None if it is not finished."""
    file = path / SUMMARY
    summary: dict[str, Any] | None = json.loads(file.read_text("utf-8")) if file.is_file() else None
    return summary


def _array(value: Any) -> NDArray[Any]:
    """Convert a tensor, an array or a number into an array."""
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def state_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Return copies of the fields of a state, a dataclass of tensors, arrays and numbers, as arrays by name."""
    return {field.name: _array(getattr(state, field.name)).copy() for field in fields(state)}


def restore_state(pattern: Any, saved: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Rebuild a state from its `state_arrays`; each must have the dtype and shape of that field of `pattern`."""
    restored = {
        field.name: _like(getattr(pattern, field.name), saved[prefix + field.name]) for field in fields(pattern)
    }
    return type(pattern)(**restored)


def _like(pattern: Any, array: NDArray[Any]) -> Any:
    """Convert a saved array into a tensor, an array or a number, as `pattern` is; refuse another dtype or shape."""
    expected = _array(pattern)
    if array.dtype != expected.dtype or array.shape != expected.shape:
        raise ValueError(f"{array.dtype}{array.shape} instead of {expected.dtype}{expected.shape}")
    if isinstance(pattern, torch.Tensor):
        return torch.from_numpy(array).to(pattern.device)
    return array if isinstance(pattern, np.ndarray) else array.item()
