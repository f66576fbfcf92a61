"""What a folder holds: runs, rows so far, progress; faults are told and never raised."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedslot.views.live import watched as module
from fedslot.views.live.watched import Watched, read_folder

Copy = Callable[[str], Path]


def watch(folder: Path) -> Watched:
    watched = Watched(folder)
    watched.poll()
    return watched


@pytest.mark.parametrize(
    ("name", "groups", "runs"),
    [
        ("run", ["push-pull"], 1),
        ("comparison", ["push-pull", "fedavg"], 4),
        ("sweep", ["frame.pull=2", "frame.pull=5"], 4),
    ],
)
def test_all_runs_of_a_folder_are_found(results: Copy, name: str, groups: list[str], runs: int) -> None:
    folder = read_folder(results(name))
    assert (folder.kind, len(folder.runs)) == (name, runs)
    assert list(dict.fromkeys(run.group for run in folder.runs)) == groups
    assert all((run.folder / "rounds.csv").is_file() for run in folder.runs)
    assert len({run.label for run in folder.runs}) == runs
    watched = watch(folder.path)
    assert [len(watched.rounds(run).rows) for run in folder.runs] == [4] * runs
    progress = watched.progress()
    assert (progress.done, progress.finished, progress.left) == (1, runs, None)
    assert watched.faults(folder.runs[0]) == ""


@pytest.mark.parametrize(("kind", "inside"), [("reproduction", "runs"), ("equal-slots", "runs/mnist-200/runs")])
def test_runs_of_long_experiments_are_found_by_their_folders(
    results: Copy, tmp_path: Path, kind: str, inside: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{kind}.yaml").write_text("figures: [fig2]\n")
    watched = watch(tmp_path / "out")
    assert watched.folder is not None
    assert watched.folder.runs == ()
    for seed in (0, 1):
        shutil.copytree(
            results("comparison") / "runs" / f"fedavg-seed{seed}", tmp_path / "out" / inside / f"a-seed{seed}"
        )
        shutil.rmtree(tmp_path / "comparison")
    watched.poll()
    assert [run.group for run in watched.folder.runs] == [f"{inside}/a"] * 2


def test_the_frames_of_few_runs_are_held_at_a_time(results: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLES_OF_FRAMES", 2)
    watched = watch(results("comparison"))
    assert watched.folder is not None
    tables = [watched.frames(run) for run in watched.folder.runs]
    assert tables[0].rows["round"].max() == 3
    assert "pulled" in set(tables[0].rows["event"])
    again = watched.frames(watched.folder.runs[0])
    assert again is not tables[0]
    assert again.since(tables[0].version, tables[0].count)[1], "a viewer sees that it must begin again"
    assert watched.frames(watched.folder.runs[-1]) is tables[-1]


def test_progress_and_time_left(results: Copy) -> None:
    folder = results("run")
    (folder / "summary.json").unlink()
    rows = (folder / "rounds.csv").read_text().splitlines(keepends=True)
    (folder / "rounds.csv").write_text("".join(rows[:2]))
    watched = watch(folder)
    assert watched.progress().done == pytest.approx(1 / 4)
    assert watched.progress().left is None
    with (folder / "rounds.csv").open("a") as stream:
        stream.write(rows[2])
    watched.poll()
    progress = watched.progress()
    assert progress.done == pytest.approx(2 / 4)
    assert progress.left is not None
    assert progress.finished == 0


def test_a_folder_that_comes_changes_and_vanishes(results: Copy, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    watched = watch(folder)
    assert "not there yet" in watched.fault
    results("comparison")
    watched.poll()
    assert watched.fault == ""
    assert watched.folder is not None
    before = watched.folder.digest
    marker = folder / "comparison.yaml"
    marker.write_text(marker.read_text().replace("seeds: 2", "seeds: 3"))
    watched.poll()
    assert watched.folder.digest != before
    assert len(watched.folder.runs) == 6
    marker.write_text("strategies: [")
    watched.poll()
    assert "comparison.yaml" in watched.fault
    assert len(watched.folder.runs) == 6, "what was known stays"
    shutil.rmtree(folder)
    watched.poll()
    assert "has vanished" in watched.fault


def test_broken_files_are_told(results: Copy) -> None:
    folder = results("run")
    (folder / "frames.csv").write_text("nonsense\n")
    watched = watch(folder)
    assert watched.folder is not None
    run = watched.folder.runs[0]
    watched.frames(run)
    assert "frames.csv is broken" in watched.faults(run)
    (folder / "rounds.csv").write_text("round\n1\n")
    watched.poll()
    assert "rounds.csv is broken" in watched.faults(run)
