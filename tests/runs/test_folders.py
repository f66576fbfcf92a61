"""Folders: one rule for all kinds of results, one process at a time, and nothing deleted that is not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedslot
from fedslot.cli import app
from fedslot.runs.folders import COMPARISON, KINDS, REPRODUCTION, RUN, SWEEP, Claim, FolderKind, claim, write_atomically
from fedslot.scenario import Scenario, read_fields
from fedslot.studies.reproduction.experiments import Reproduction
from fedslot.support.errors import RefusedError

Start = Callable[..., subprocess.Popen[Any]]
QUICK = {"rounds": 2, "data.ues": 20, "training.epochs": 1}


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", QUICK)


def take(path: Path, kind: FolderKind, *, resume: bool = False, force: bool = False) -> Claim:
    return claim(path, kind, "{}", lambda: None, resume=resume, force=force)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@every_kind
def test_one_rule_for_all_kinds(kind: FolderKind, tmp_path: Path) -> None:
    take(tmp_path / "new" / "deep", kind).release()
    (tmp_path / "empty").mkdir()
    take(tmp_path / "empty", kind).release()
    with pytest.raises(RefusedError, match=f"holds a {kind.name} already.*--resume.*--force"):
        take(tmp_path / "empty", kind)
    take(tmp_path / "empty", kind, resume=True).release()
    take(tmp_path / "empty", kind, force=True).release()
    with pytest.raises(RefusedError, match="one of them"):
        take(tmp_path / "empty", kind, resume=True, force=True)


@every_kind
@pytest.mark.parametrize("how", [{}, {"resume": True}, {"force": True}], ids=str)
def test_foreign_folders_are_never_touched(kind: FolderKind, how: dict[str, bool], tmp_path: Path) -> None:
    """Neither a user's own files, even of the names that we use, nor results of another kind."""
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("report.html", "runs.csv", "rounds.csv", "reproduction.md", "notes.txt"):
        (mine / name).write_text("mine")
    before = contents(mine)
    with pytest.raises(RefusedError, match=f"other things than a {kind.name}"):
        take(mine, kind, **how)
    assert contents(mine) == before
    for other in KINDS:
        if other is not kind:
            take(tmp_path / other.name, other).release()
            with pytest.raises(RefusedError, match=f"holds a {other.name}, not a {kind.name}"):
                take(tmp_path / other.name, kind, **how)


@every_kind
def test_one_process_at_a_time(kind: FolderKind, tmp_path: Path) -> None:
    with take(tmp_path, kind):
        for how in ({"resume": True}, {"force": True}):
            with pytest.raises(RefusedError, match="in use by another process"):
                take(tmp_path, kind, **how)
    take(tmp_path, kind, resume=True).release()


def test_what_cannot_be_continued_is_not_held(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RefusedError("another scenario")

    take(tmp_path, RUN).release()
    with pytest.raises(RefusedError, match="another scenario"):
        claim(tmp_path, RUN, "new", refuse, resume=True)
    assert (tmp_path / "scenario.yaml").read_text() == "{}"
    take(tmp_path, RUN, resume=True).release()


def test_a_killed_process_leaves_its_folder_to_others(start: Start, tmp_path: Path) -> None:
    script = "import sys, pathlib; from fedslot.runs.folders import *; " + (
        "held = claim(pathlib.Path(sys.argv[1]), RUN, '{}', lambda: None); print('held', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    process = start(sys.executable, "-c", script, str(tmp_path), stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(RefusedError, match="in use"):
        take(tmp_path, RUN, resume=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    take(tmp_path, RUN, resume=True).release()


def test_force_deletes_what_is_ours_and_nothing_else(scenario: Scenario, tmp_path: Path) -> None:
    """All that the commands write, figures included, but no file that the user put beside it."""
    words = [word for key, value in QUICK.items() for word in ("-o", f"{key}={value}")]
    command = ["compare", "quickstart", *words, "--strategies", "fedavg,push-pull", "--seeds", "1", "--workers", "1"]
    grid = ["sweep", "quickstart", *words, "--grid", "frame.pull=2,5", "--seeds", "1", "--workers", "1"]
    for name, line, kind in (("compare", command, COMPARISON), ("sweep", grid, SWEEP)):
        out = tmp_path / name
        done = CliRunner().invoke(app, [*line, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert len(contents(out)) > 12
        mine = ["notes.txt", "figures/mine.png", "runs/mine/notes.txt", "runs/notes.txt"]
        for file in mine:
            (out / file).parent.mkdir(exist_ok=True)
            (out / file).write_text("mine")
        take(out, kind, force=True).release()
        assert set(contents(out)) == {*mine, kind.marker, ".lock"}


def test_a_run_is_started_over(scenario: Scenario, tmp_path: Path) -> None:
    fedslot.run(scenario, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    other = scenario.replace({"seed": 1})
    fedslot.run(other, tmp_path, force=True)
    assert fedslot.load(tmp_path).scenario == other
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_run_within_a_comparison_has_its_own_lock(scenario: Scenario, tmp_path: Path) -> None:
    fedslot.compare(scenario, ["fedavg"], 1, tmp_path, workers=1)
    with take(tmp_path / "runs" / "fedavg-seed0", RUN, resume=True), pytest.raises(RefusedError, match="in use"):
        fedslot.compare(scenario, ["fedavg"], 1, tmp_path, workers=1, force=True)


def test_a_comparison_says_what_it_compares(scenario: Scenario, tmp_path: Path) -> None:
    fedslot.compare(scenario, ["fedavg", "ucb"], 1, tmp_path, targets=[0.5], workers=1)
    fields = read_fields(tmp_path / "comparison.yaml")
    assert Scenario.load(fields["scenario"]) == scenario
    assert fields["strategies"] == {"fedavg": {"strategy.name": "fedavg"}, "ucb": {"strategy.name": "ucb"}}
    assert (fields["seeds"], fields["targets"]) == (1, [0.5])
    with pytest.raises(RefusedError, match=r"another scenario: its frame.pull is 5, not 4"):
        fedslot.compare(scenario.replace({"frame.pull": 4}), ["fedavg"], 1, tmp_path, resume=True)
    more = fedslot.compare(scenario, ["fedavg", "ucb", "only-pull"], 2, tmp_path, workers=1, resume=True)
    assert len(more.measures()) == 6


def test_a_reproduction_continues_without_being_told(tmp_path: Path) -> None:
    reproduction = Reproduction(tmp_path / "out", {"mnist": 1, "cifar10": 1}, 2)
    reproduction.claim(reproduction.describe(["fig2"])).release()
    reproduction.claim(reproduction.describe(["fig3"])).release()
    assert read_fields(tmp_path / "out" / REPRODUCTION.marker)["figures"] == ["fig3"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "reproduction.md").write_text("mine")
    with pytest.raises(RefusedError, match="other things"):
        Reproduction(tmp_path / "mine", reproduction.seeds).claim("")


@pytest.mark.parametrize(
    "make", [lambda path: path / "file" / "run", lambda path: path / ("x" * 300)], ids=["in-file", "long"]
)
@every_kind
def test_paths_that_cannot_be_used_are_one_line(make: Callable[[Path], Path], kind: FolderKind, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="cannot be used"):
        take(make(tmp_path), kind)


def test_write_atomically_replaces_whole_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "first, and rather long")
    write_atomically(file, b"second")
    assert file.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*file"):
        write_atomically(file, "new")
    assert contents(tmp_path) == {"file": b"old"}
