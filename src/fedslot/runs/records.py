"""The run folder: scenario, rows of rounds and frames, checkpoint, summary; without pickles, never half-written."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from fedslot.access.clock import Clock
from fedslot.messages import tidy
from fedslot.planning.inputs import model_shapes
from fedslot.rounds.round import ROUNDING, Round, Snapshot
from fedslot.rounds.states import as_array, restore_like, restore_runs, restore_state, shorten_runs, state_arrays
from fedslot.rounds.trace import EVENTS, Event
from fedslot.runs.folders import RUN, Claim, claim, lock, refuse_foreign, refusing, write_atomically
from fedslot.runs.provenance import NO_SOURCE, Fingerprints, refuse_change
from fedslot.scenario import Scenario
from fedslot.strategies.survey import Survey
from fedslot.support.errors import RefusedError

SCENARIO, ROUNDS, FRAMES = "scenario.yaml", "rounds.csv", "frames.csv"
CHECKPOINT, SUMMARY = "checkpoint.npz", "summary.json"
FILES = (SCENARIO, FRAMES, ROUNDS, CHECKPOINT, SUMMARY)  # in the order in which they are written
# fields of a snapshot: arrays and numbers, dataclasses
PLAIN = (
    *("round", "slots_spent", "seconds_spent", "joules_spent"),
    *("waiting", "failures", "heard", "silent", "energy", "owed", "model", "report"),
)
STATES = ("state", "aggregation", "own", "contention", "forecast", "work")
# tensors of equal shape by number: the states of UEs' update chains, and the models of versions
NUMBERED = ("links", "versions")
_PANDAS = tuple(map(int, pd.__version__.split(".")[:2]))
EXACTLY: Any = {"float_precision": "round_trip"} if _PANDAS < (3, 1) else {}  # from then on always, and the word warns
NUMBERS = (  # columns of rounds.csv in all versions with a number in each row, apart from the score
    *("round", "slots", "pulled", "wasted", "contenders", "push_received", "collided"),
    *("cost_max", "cost_frame", "cost_sum", "slots_spent"),
)
# fields of a scenario that may change when a run is continued
LENGTH = ("rounds", "time_budget", "seconds_budget", "joules_budget")
HEADERS = {
    ROUNDS: (",".join(field.name for field in fields(Round)) + "\n").encode(),
    FRAMES: (",".join(Event._fields) + "\n").encode(),
}
HASHES = {ROUNDS: "rounds_sha256", FRAMES: "frames_sha256"}  # their names in the summary
KEYS = {ROUNDS: "rows", FRAMES: "frames"}  # and in checkpoints


class RunFolder:
    """The folder in which a run saves its results, and from which it can be resumed.

        now = folder.open(scenario, start, fingerprints(scenario), resume=True)
        for ...:
            folder.append(round, frame, now)
            folder.save()
        folder.finish(summary)
        folder.close()

    Rows are appended round by round, and a checkpoint has a checksum of the rows before it. So what a kill leaves can
    be continued, but nothing that was edited. The rows of a frame come before that of its round.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a part of the user's own may change the current folder
        self._claim: Claim | None = None
        self._rows: dict[str, RowWriter] = {}

    def open(
        self,
        scenario: Scenario,
        start: Snapshot,
        made_of: Fingerprints,
        *,
        resume: bool = False,
        force: bool = False,
        frames: bool = True,
    ) -> Snapshot:
        """Take the folder by the rule of `folders.claim`; return `start`, or the snapshot of the run to continue.

        A run may be continued to more rounds or a larger time budget.

        frames: whether to write `frames.csv`, which is there for all rounds or none: a run goes on as it began.
        """
        self._now, self._made_of = start, made_of
        contents = {name: HEADERS[name] for name in HEADERS if frames or name == ROUNDS}

        def restore() -> None:
            nonlocal contents
            self.check(scenario, resume=True)
            saved = self._read_checkpoint()
            if saved is None:
                return
            refuse_change(self.path, json.loads(str(saved["made of"])), made_of)
            self._now = self._restored(start, saved)
            contents = {
                name: self._kept_rows(name, int(saved[f"{key} count"]), str(saved[key]))
                for name, key in KEYS.items()
                if key in saved
            }
            self._refuse_shorter(scenario, pd.read_csv(io.BytesIO(contents[ROUNDS])))
            if scenario != self.scenario():
                (self.path / SUMMARY).unlink(missing_ok=True)  # the run is not finished any more

        self._claim = claim(self.path, RUN, scenario.to_yaml(), restore, resume=resume, force=force)
        try:
            for name in HEADERS:
                if name not in contents:
                    (self.path / name).unlink(missing_ok=True)
                    continue
                write_atomically(self.path / name, contents[name])
                self._rows[name] = RowWriter(self.path / name, contents[name])
        except BaseException:
            self.close()
            raise
        self._last = self._now, self._written()
        return self._now

    @property
    def is_open(self) -> bool:
        """Whether `open` has taken the folder, and `close` has not left it."""
        return bool(self._rows)

    def check(self, scenario: Scenario, resume: bool) -> None:
        """Refuse a folder that `open` would refuse because of what it holds, without taking it."""
        refuse_foreign(self.path, RUN, resume)
        if not (self.path / SCENARIO).is_file():
            return
        if difference := self.scenario().difference(scenario, apart_from=LENGTH):
            raise RefusedError(f"{self.path} belongs to another scenario{difference}")
        for name in FILES:
            if (self.path / name).is_dir():
                raise RefusedError(f"{self.path / name} is a folder, not a file; remove it")

    def check_length(self, scenario: Scenario) -> None:
        """Refuse fewer rounds, or a smaller time budget, than the run in the folder has; `open` tells other faults."""
        try:
            done = self.rounds()
        except RefusedError:
            return
        if all(name in done and is_numeric_dtype(done[name]) for name in ("slots_spent", "cost_frame")):
            self._refuse_shorter(scenario, done)

    def scenario(self) -> Scenario:
        """Read the complete scenario of the run."""
        return Scenario.load(self.path / SCENARIO)

    def rounds(self) -> pd.DataFrame:
        """Read the rows written so far, one per round."""
        table = read_rows(self.path / ROUNDS)
        score = "test_score" if "test_score" in table and table["test_score"].notna().any() else "test_accuracy"
        for name in (*NUMBERS, score):
            numbers = table.get(name)
            if numbers is None or (len(table) and not (numbers.dtype.kind in "if" and np.isfinite(numbers).all())):
                raise RefusedError(f"{self.path / ROUNDS} is damaged: its column {name} must have a number in each row")
        return table

    def frames(self) -> pd.DataFrame | None:
        """Read the trace written so far, a row per `Event`; None if there is none.

        The last round may be there in part, before its row in `rounds.csv` is.
        """
        return read_rows(self.path / FRAMES, PLACE | FRAME_TYPES) if (self.path / FRAMES).exists() else None

    def append(self, round: Round, frame: Sequence[Event], now: Snapshot) -> None:
        """Write the rows of a frame and of its round; `now` is the snapshot after it."""
        if FRAMES in self._rows:
            self._rows[FRAMES].append(frame)
        self._rows[ROUNDS].append([astuple(round)])
        self._last = now, self._written()  # in one step, so that Ctrl-C cannot come between them

    def _written(self) -> dict[str, tuple[int, str]]:
        return {name: rows.written for name, rows in self._rows.items()}

    def save(self, more: Mapping[str, NDArray[Any]] = MappingProxyType({})) -> None:
        """Write a checkpoint from which the run can be resumed; `more` holds further arrays, by name."""
        now, written = self._last
        arrays = shorten_runs(snapshot_arrays(now)) | {f"more.{name}": array for name, array in more.items()}
        arrays |= {"made of": np.array(json.dumps(dict(self._made_of)))}
        for name, (count, digest) in written.items():
            arrays |= {f"{KEYS[name]} count": np.array(count), KEYS[name]: np.array(digest)}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays, checksum=np.array(checksum(arrays)))  # type: ignore[arg-type]
        for rows in self._rows.values():
            rows.sync()  # the rows first: a checkpoint must never be ahead of them
        write_atomically(self.path / CHECKPOINT, buffer.getvalue())

    def more(self) -> dict[str, NDArray[Any]]:
        """Read the further arrays of the last checkpoint, by name."""
        saved = self._read_checkpoint() or {}
        return {name.removeprefix("more."): saved[name] for name in saved if name.startswith("more.")}

    def model(self) -> NDArray[np.float32] | None:
        """Read the model (P,) that the last checkpoint reports; None if there is no checkpoint."""
        saved = self._read_checkpoint()
        return None if saved is None else saved["report"]

    def survey(self, ues: int) -> Survey | None:
        """Read the measurements of the strategy in the last checkpoint; None if there are none."""
        saved = self._read_checkpoint()
        try:
            return None if saved is None else restore_state(Survey.blank(ues), saved, "state.")
        except (ValueError, KeyError):  # another state
            return None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as finished, with the checksum of all rows."""
        hashes = {HASHES[name]: digest for name, (_, digest) in self._last[1].items()}
        held = {**hashes, "made_of": dict(self._made_of)}
        write_atomically(self.path / SUMMARY, json.dumps({**summary, **held}, indent=2) + "\n")

    def close(self) -> None:
        """Close the files and leave the folder to others."""
        for rows in self._rows.values():
            rows.close()
        self._rows = {}
        if self._claim is not None:
            self._claim.release()

    def withdraw(self) -> None:
        """Close the files and leave the folder as it was before `open`, without the run if that is new."""
        claim, self._claim = self._claim, None  # which is needed longer than the files
        self.close()
        if claim is not None:
            claim.withdraw()

    def holds(self, scenario: Scenario, made_of: Fingerprints) -> bool:
        """Return whether the folder holds a finished run of this scenario, with this data, and with rows unchanged."""
        summary = read_summary(self.path) or {}
        hashes = {name: summary[key] for name, key in HASHES.items() if key in summary}
        return (
            summary.get("scenario_digest") == scenario.digest
            and summary.get("made_of") == made_of
            and NO_SOURCE not in made_of.values()
            and ROUNDS in hashes
            and all(_hash(self.path / name) == digest for name, digest in hashes.items())
        )

    def pack(self) -> dict[str, bytes]:
        """Return the content of the run's files by name, to send to another machine."""
        return {name: (self.path / name).read_bytes() for name in FILES if (self.path / name).is_file()}

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Write files that `pack` returned, the summary last, since it marks a finished run; ignore any others."""
        if not files:
            return
        with refusing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with lock(self.path):
                for name in FILES:
                    if name in files:
                        write_atomically(self.path / name, files[name])

    def _read_checkpoint(self) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of the checkpoint after comparing them with their checksum; None if there is none."""
        file = self.path / CHECKPOINT
        if not file.exists():
            return None
        try:
            with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as saved:
                arrays = dict(saved)
            intact = str(arrays.pop("checksum")) == checksum(arrays)
        except Exception:  # a damaged archive can raise any exception
            intact = False
        if not intact:
            raise RefusedError(f"{file} is damaged or was changed; start over with --force")
        return restore_runs(arrays)

    def _restored(self, start: Snapshot, saved: Mapping[str, NDArray[Any]]) -> Snapshot:
        """Return the snapshot of a checkpoint, whose arrays must have the shapes of `start`."""
        try:
            plain = {name: restore_like(getattr(start, name), saved[name]) for name in PLAIN}
            states = {part: restore_state(getattr(start, part), saved, f"{part}.") for part in STATES}
        except (ValueError, KeyError, TypeError) as error:
            why = f"does not fit the scenario ({error})"
            raise RefusedError(f"{self.path / CHECKPOINT} {why}; start over with --force") from None
        numbered: dict[str, Any] = {}
        for name in NUMBERED:
            rows = torch.from_numpy(saved.get(f"{name}.rows", np.zeros((0, 0)))).to(start.model.device)
            numbered[name] = dict(zip(saved.get(f"{name}.numbers", np.zeros(0)).tolist(), rows, strict=True))
        return Snapshot(**plain, **states, **numbered)

    def _kept_rows(self, name: str, count: int, digest: str) -> bytes:
        """Return the header and the `count` rows before the checkpoint, which must not have changed since."""
        file = self.path / name
        lines = file.read_bytes().split(b"\n") if file.is_file() else []
        begin = b"".join(line + b"\n" for line in lines[: count + 1])
        if hashlib.sha256(begin).hexdigest() != digest:
            what = "has fewer rows than its checkpoint" if len(lines) < count + 2 else "was changed"
            raise RefusedError(f"{file} {what}; restore it, or start over with --force")
        return begin

    def _refuse_shorter(self, scenario: Scenario, done: pd.DataFrame) -> None:
        """Refuse fewer rounds, or smaller budgets, than the rounds that are done need."""
        if len(done) > scenario.rounds:
            raise RefusedError(f"{self.path} holds {len(done)} rounds already, more than rounds={scenario.rounds}")
        needed = tidy((done["slots_spent"].shift(fill_value=0) + done["cost_frame"]).max().item()) if len(done) else 0
        if scenario.time_budget is not None and needed > scenario.time_budget * (1 + ROUNDING):
            what = f"frames that need a time budget of {needed} slots already, more than {scenario.time_budget}"
            raise RefusedError(f"{self.path} holds {what}")
        if scenario.joules_budget is not None and (spent := float(done["joules"][:-1].sum())) >= scenario.joules_budget:
            what = f"frames that began after {spent:g} joules already, more than joules_budget={scenario.joules_budget}"
            raise RefusedError(f"{self.path} holds {what}")
        if scenario.seconds_budget is not None and len(done):
            clock = Clock.of(scenario, model_shapes(scenario))
            longest = [clock.seconds(cost) for cost in done["cost_frame"]]
            seconds = float((done["air_seconds"].cumsum().shift(fill_value=0.0) + longest).max())
            if seconds > scenario.seconds_budget * (1 + ROUNDING):
                what = f"frames that need {seconds:g} seconds already, more than {scenario.seconds_budget:g}"
                raise RefusedError(f"{self.path} holds {what}")


class RowWriter:
    """Appends rows to a CSV file, without a buffer, and hashes all that it holds."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = file.open("ab", buffering=0)
        self._hash, self._count = hashlib.sha256(content), content.count(b"\n") - 1

    def append(self, rows: Sequence[Sequence[object]]) -> None:
        """Write rows."""
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(rows)
        rest = memoryview(lines.getvalue().encode())
        self._hash.update(rest)
        self._count += len(rows)
        while rest:
            rest = rest[self._file.write(rest) :]

    @property
    def written(self) -> tuple[int, str]:
        """The number of rows, and the SHA-256 of the whole file."""
        return self._count, self._hash.hexdigest()

    def sync(self) -> None:
        """Make sure that the rows written so far survive a crash of the machine."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


PLACE: dict[str, Any] = {"round": "int64", "slot": "int64"}
FRAME_TYPES: dict[str, Any] = {
    "ue": "Int64",
    "event": pd.CategoricalDtype(list(EVENTS)),
    "value": "float64",
    "noise": "float64",
    "update_value": "float64",
    "staleness": "Int64",
}


def round_table(rows: Iterable[Round]) -> pd.DataFrame:
    """Return rounds as a table, with NaN where a number is not known, such as joules, or not that of the task."""
    table = pd.DataFrame(map(asdict, rows))
    optional = ("air_seconds", "joules", "attack_success", "test_accuracy", "test_score")
    return table.astype(dict.fromkeys(optional, float)) if len(table) else table


def frame_table(frames: Iterable[Event]) -> pd.DataFrame:
    """Return events as a table: a nullable `ue`, a categorical `event`, NaN where a value or a noise is not known."""
    return pd.DataFrame(list(frames), columns=list(Event._fields)).astype(PLACE | FRAME_TYPES)


def read_rows(file: Path, types: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read the rows of a CSV file, without the last if a kill tore it. types: those of columns."""
    try:
        rows = file.read_bytes()
        whole = io.BytesIO(rows[: rows.rfind(b"\n") + 1])
        table: pd.DataFrame = pd.read_csv(whole, dtype=types and dict(types), **EXACTLY)
    except (OSError, ValueError, TypeError, OverflowError) as error:  # also no text, no table, no numbers
        raise RefusedError(f"{file} cannot be read ({' '.join(str(error).split())})") from None
    return table


def _hash(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays: of their names, types, shapes and values."""
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def read_summary(path: Path) -> dict[str, Any] | None:
    """Read the summary of a run; None if it is not finished."""
    file = path / SUMMARY
    if not file.exists():
        return None
    try:
        summary = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # the last: brackets within brackets
        summary = None
    if not isinstance(summary, dict):
        raise RefusedError(f"{file} is damaged; delete it and continue with --resume")
    return summary


def snapshot_arrays(now: Snapshot) -> dict[str, NDArray[Any]]:
    """Return all that a snapshot holds as arrays by name."""
    arrays = {name: as_array(getattr(now, name)) for name in PLAIN}
    for part in STATES:
        arrays |= {f"{part}.{name}": array for name, array in state_arrays(getattr(now, part)).items()}
    for name in NUMBERED:
        if rows := getattr(now, name):
            arrays[f"{name}.numbers"] = np.array(list(rows))
            arrays[f"{name}.rows"] = np.stack([as_array(row) for row in rows.values()])
    return arrays
