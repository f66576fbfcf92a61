"""A table in a CSV file that another process appends to, read piece by piece."""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

CHUNK = 8 << 20  # bytes that one poll reads at most, so that a long file does not make the page wait
OVERLAP = 256  # bytes before the offset that must still be what they were

_versions = itertools.count(1)


class GrowingTable:
    """The rows of a CSV file so far, of which each poll reads only what was appended since the last.

    Only whole lines are read. A file that was replaced or became shorter, as `--resume` and `--force` do, is read
    again from its beginning. A file that is no such table is a `fault`, not an exception; rows before it stay.

    file: the CSV file, which need not exist yet. dtypes: the columns to read, with their types.
    most: number of rows that are held, the last ones. optional: columns that may be missing, and are then NaN.
    """

    def __init__(self, file: Path, dtypes: Mapping[str, str], most: int, optional: Collection[str] = ()) -> None:
        self.file, self.dtypes, self.most, self.optional = file, dict(dtypes), most, optional
        self._begin_again()
        self._seen: tuple[int, ...] = ()

    def _begin_again(self) -> None:
        self.version = next(_versions)  # another number whenever earlier rows are void
        self.rows = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in self.dtypes.items()})
        self.count = 0  # rows read in this version, also those that are not held any more
        self.fault = ""
        self._header: list[str] = []
        self._offset, self._before = 0, b""
        self._more = False  # whether the last poll left lines for the next

    def poll(self) -> None:
        """Read the lines that were appended since the last poll."""
        try:
            status = self.file.stat()
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen and not self._more:
                return
            same_file = self._seen[:2] == seen[:2]
            self._seen = seen
            with self.file.open("rb") as stream:
                if not same_file or not self._continues(stream):
                    self._begin_again()
                stream.seek(self._offset)
                piece = stream.read(CHUNK)
        except FileNotFoundError:
            if self._seen:
                self._begin_again()
            self._seen = ()
            return
        except OSError as error:
            self.fault = f"{self.file} cannot be read ({error.strerror})"
            return
        whole = piece[: piece.rfind(b"\n") + 1]
        self._more = len(piece) == CHUNK and bool(whole)
        if whole:
            self._read(whole)

    def _continues(self, stream: io.BufferedReader) -> bool:
        """Return whether the file still begins with what was read, judged by the bytes before the offset."""
        stream.seek(self._offset - len(self._before))
        return stream.read(len(self._before)) == self._before

    def _read(self, whole: bytes) -> None:
        try:
            header, body = self._header, whole
            if not header:
                line, _, body = whole.partition(b"\n")
                header = line.decode().rstrip("\r").split(",")
                if missing := [name for name in self.dtypes if name not in {*header, *self.optional}]:
                    raise ValueError(f"there is no column {missing[0]}")
            new = self._parse(header, body)
        except ValueError as error:  # no text, no table, no numbers
            self.fault = f"{self.file} is broken ({' '.join(str(error).split())[:120]})"
            return
        self.fault, self._header = "", header
        self._offset += len(whole)
        self._before = (self._before + whole)[-OVERLAP:]
        if len(new):
            self.count += len(new)
            rows = pd.concat([self.rows, new], ignore_index=True) if len(self.rows) else new
            self.rows = rows.tail(self.most)

    def _parse(self, header: list[str], body: bytes) -> pd.DataFrame:
        if not body.strip():
            return self.rows[:0]
        if any(line.count(b",") != len(header) - 1 for line in body.splitlines()):
            raise ValueError(f"a row has not {len(header)} columns")
        types = {name: kind for name, kind in self.dtypes.items() if name in header}
        new = pd.read_csv(
            io.BytesIO(body), names=header, header=None, index_col=False, usecols=list(types), dtype=types
        )
        if new["round"].isna().any():
            raise ValueError("there is a row without a round")
        return new.reindex(columns=list(self.dtypes))

    def since(self, version: int, count: int) -> tuple[pd.DataFrame, bool]:
        """Return the rows after the first `count` ones of a version, and whether they replace those before."""
        new = self.count - count
        if version != self.version or new > len(self.rows):
            return self.rows, True
        return self.rows.tail(new), False
