"""A growing CSV file: however it grows, the rows are those of the whole file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.views.live import growing
from fedslot.views.live.growing import GrowingTable

DTYPES = {"round": "int64", "event": "str", "ue": "float64"}
HEADER = "round,slot,event,ue\n"


def table(file: Path, most: int = 1000) -> GrowingTable:
    return GrowingTable(file, DTYPES, most)


def lines(count: int, first: int = 0) -> str:
    return "".join(f"{i},1,{'idle' if i % 3 else 'pulled'},{'' if i % 3 else i}\n" for i in range(first, first + count))


def whole(text: str) -> pd.DataFrame:
    """What pandas makes of the whole lines of a file, read at once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "whole.csv"
        file.write_text(text[: text.rfind("\n") + 1])
        return pd.read_csv(file, dtype=DTYPES)[list(DTYPES)]


def same(held: GrowingTable, text: str) -> bool:
    return held.rows.reset_index(drop=True).equals(whole(text).tail(held.most).reset_index(drop=True))


@given(
    cuts=st.lists(st.integers(0, 400), max_size=20), most=st.sampled_from([5, 1000]), chunk=st.sampled_from([64, 1000])
)
def test_any_split_of_the_bytes_gives_the_same_table(cuts: list[int], most: int, chunk: int) -> None:
    text = HEADER + lines(30)
    content, usual = text.encode(), growing.CHUNK
    growing.CHUNK = chunk
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "frames.csv"
            held, counted = table(file, most), 0
            ends = sorted({min(cut, len(content)) for cut in cuts})
            for begin, end in zip([0, *ends], [*ends, len(content)], strict=True):
                with file.open("ab") as stream:
                    stream.write(content[begin:end])
                held.poll()
                new, fresh = held.since(held.version, counted)
                assert len(new) == min(held.count - counted, most)
                assert fresh == (held.count - counted > most)
                counted = held.count
            for _ in range(20):  # what did not fit into one poll
                held.poll()
            assert held.fault == ""
            assert held.count == 30
            assert same(held, text)
    finally:
        growing.CHUNK = usual


@given(first=st.integers(1, 20), kept=st.integers(0, 20), added=st.integers(0, 20), in_place=st.booleans())
def test_a_file_that_is_replaced_or_cut_is_read_again(first: int, kept: int, added: int, in_place: bool) -> None:
    """As --resume does it: the rows up to the checkpoint, which need not be all, then others."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rounds.csv"
        file.write_text(HEADER + lines(first))
        held = table(file)
        held.poll()
        version = held.version
        text = HEADER + lines(min(kept, first)) + lines(added, 100)
        if in_place:
            file.write_text(text)
        else:
            other = file.with_name("other")
            other.write_text(text)
            other.replace(file)
        held.poll()
        assert same(held, text)
        rows, fresh = held.since(version, first)
        assert fresh or (in_place and kept >= first)
        if fresh:
            assert len(rows) == len(held.rows)


def test_a_file_that_is_not_there_yet_and_one_that_vanishes(tmp_path: Path) -> None:
    file = tmp_path / "rounds.csv"
    held = table(file)
    held.poll()
    assert (held.count, held.fault) == (0, "")
    file.write_text(HEADER + lines(3))
    held.poll()
    assert held.count == 3
    version = held.version
    file.unlink()
    held.poll()
    assert (held.count, len(held.rows)) == (0, 0)
    assert held.since(version, 3)[1], "earlier rows are void"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n", "no column round"),
        (HEADER + "x,1,idle,\n", "broken"),
        (HEADER + "1,2,3,4,5,6,7\n" + "1,1,idle,\n", "broken"),
        (HEADER + ",1,idle,\n", "broken"),
        ("\x00\x00\n", "no column round"),
        ("\udcff\udcfe\n\udcff\n", "broken"),
    ],
)
def test_a_broken_file_is_told_and_rows_before_it_stay(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "rounds.csv"
    file.write_bytes(content.encode(errors="surrogateescape"))
    held = table(file)
    held.poll()
    assert says in held.fault
    assert "\n" not in held.fault
    file.write_text(HEADER + lines(4))
    os.utime(file, ns=(1, 1))
    held.poll()
    assert (held.fault, held.count) == ("", 4), "it is read when it is mended"
    with file.open("a") as stream:
        stream.write("nonsense,,,\n")
    held.poll()
    assert str(file) in held.fault
    assert held.count == 4


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "rounds.csv").mkdir()
    held = table(tmp_path / "rounds.csv")
    held.poll()
    assert "cannot be read" in held.fault
