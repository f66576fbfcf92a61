"""Curves of runs in a file: read as written, and refused if damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from fedslot.studies.curves import COLUMNS, load_curves, save_curves
from fedslot.studies.equal_slots.folder import EqualSlots
from fedslot.support.errors import RefusedError

RUNS = {
    "b, seed 1": pd.DataFrame([[0.5, 3, 4, 9, 0.25], [0.75, 4, 4, 9, 0.5]], columns=COLUMNS),
    "a, seed 1": pd.DataFrame([[0.1234, 21, 21, 230, 1.0]], columns=COLUMNS),
}


def test_curves_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "curves" / "some.csv.gz"
    assert load_curves(file) == {}
    save_curves(RUNS, file)
    read = load_curves(file)
    assert list(read) == list(RUNS)
    for name, rounds in RUNS.items():
        pd.testing.assert_frame_equal(read[name][COLUMNS], rounds)
    assert read["b, seed 1"]["slots_spent"].tolist() == [3, 7]
    before = file.read_bytes()
    save_curves(read, file)
    assert file.read_bytes() == before, "the same curves are the same bytes"


def test_curves_are_adopted_where_there_are_none(tmp_path: Path) -> None:
    study, others = EqualSlots(tmp_path / "out"), EqualSlots(tmp_path)
    own = {"c, seed 1": RUNS["a, seed 1"]}
    for name in ("one", "two"):
        save_curves(RUNS, others.curves_file(name))
    save_curves(own, study.curves_file("two"))
    study.adopt(tmp_path / "curves")
    assert list(load_curves(study.curves_file("one"))) == list(RUNS)
    assert list(load_curves(study.curves_file("two"))) == list(own)
    study.adopt(tmp_path / "no curves")
    assert len(list(study.curves_file("one").parent.iterdir())) == 2


@pytest.mark.parametrize("damage", ["no gzip", "half", "column"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "some.csv.gz"
    save_curves(RUNS, file)
    content = gzip.decompress(file.read_bytes())
    damaged = {
        "no gzip": content,
        "half": file.read_bytes()[:-10],
        "column": gzip.compress(content.replace(b"cost_frame", b"costs")),
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(RefusedError, match=r"some\.csv\.gz is damaged"):
        load_curves(file)
