"""Runs and their folders: the same rows in memory, on disk, after interruptions and for any thread count."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedslot.rounds.simulation
from fedslot.runs import execution
from fedslot.runs.callbacks import Report
from fedslot.runs.execution import is_finished, load, run
from fedslot.runs.records import RunFolder
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, Cell
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError, RefusedError

KILLS = int(os.environ.get("FEDSLOT_KILLS", "3"))


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", {"rounds": 12, "data.ues": 20, "strategy.warmup": 2, "training.epochs": 2})


def rows(folder: Path) -> list[str]:
    """Lines of rounds.csv without the column `seconds`, the last."""
    return [line.rpartition(",")[0] for line in (folder / "rounds.csv").read_text().splitlines()]


def assert_same_files(one: Path, other: Path) -> None:
    """The same rows, apart from seconds, and the same trace to the byte."""
    assert rows(one) == rows(other)
    assert (one / "frames.csv").read_bytes() == (other / "frames.csv").read_bytes()


def test_folder_holds_what_memory_holds(scenario: Scenario, tmp_path: Path) -> None:
    in_memory, on_disk = run(scenario), run(scenario, tmp_path / "run")
    pd.testing.assert_frame_equal(
        in_memory.rounds.drop(columns="seconds"), on_disk.rounds.drop(columns="seconds"), check_exact=True
    )
    assert in_memory.model is not None
    assert np.array_equal(in_memory.model, on_disk.model)
    loaded = load(tmp_path / "run")
    assert loaded.scenario == scenario
    for frames in (on_disk.frames, loaded.frames, loaded.in_memory().frames):
        pd.testing.assert_frame_equal(in_memory.frames, frames, check_exact=True)
    assert is_finished(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["final_accuracy"] == on_disk.rounds["test_accuracy"].iloc[-1]
    assert summary["engine"] == "compiled"
    assert summary["slots_spent"] == on_disk.rounds["cost_max"].sum() == on_disk.rounds["slots_spent"].iloc[-1]


def test_required_columns_come_first_to_last(scenario: Scenario, tmp_path: Path) -> None:
    run(scenario, tmp_path)
    header = (tmp_path / "rounds.csv").read_text().splitlines()[0].split(",")
    needed = "round,test_accuracy,test_loss,val_loss,pulled,contenders,push_received,collided,cost_max,cost_sum,seconds"
    assert [name for name in header if name in needed.split(",")] == needed.split(",")


class Stop(Exception):
    pass


CONTROLLED = {"push.probability": "auto", "push.retries": 2, "push.arrivals": 0.5, "push.channel": "crdsa"}


@pytest.mark.parametrize(("at", "changes"), [(0, {}), (4, {}), (7, {}), (11, {}), (7, CONTROLLED)])
def test_resumed_after_an_interruption(scenario: Scenario, tmp_path: Path, at: int, changes: dict[str, object]) -> None:
    scenario = scenario.replace(changes)

    def interrupt(round: fedslot.rounds.simulation.Round) -> None:
        if round.round == at:
            raise Stop

    run(scenario, tmp_path / "whole")
    with pytest.raises(Stop):
        run(scenario, tmp_path / "broken", callbacks=[Report(interrupt)])
    assert not is_finished(tmp_path / "broken")
    seen: list[int] = []
    run(scenario, tmp_path / "broken", resume=True, callbacks=[Report(lambda round: seen.append(round.round))])
    assert seen == list(range(at + 1, 12)), "no finished round is computed again"
    assert_same_files(tmp_path / "broken", tmp_path / "whole")


def test_rows_behind_the_checkpoint_are_computed_again(scenario: Scenario, tmp_path: Path) -> None:
    """As after kill -9: rows beyond the checkpoint, the last of them torn."""
    torn = tmp_path / "torn"

    def look(round: fedslot.rounds.simulation.Round) -> None:
        if round.round == 7:
            shutil.copytree(tmp_path / "whole", torn)

    run(scenario, tmp_path / "whole", callbacks=[Report(look)])
    text = (torn / "rounds.csv").read_text()
    (torn / "rounds.csv").write_text(text[:-20])
    with (torn / "frames.csv").open("a") as trace:
        trace.write("8,0,barred,7,,\n8,1,pul")
    assert sorted(set(load(torn).frames["round"])) == list(range(7)), "frames of whole rounds only"
    assert len(load(torn).rounds) == 7, "whole rows only"
    seen: list[int] = []
    run(scenario, torn, resume=True, callbacks=[Report(lambda round: seen.append(round.round))])
    assert seen[0] == 1, "the first round is saved, and the next checkpoint is seconds away"
    assert_same_files(torn, tmp_path / "whole")


@pytest.mark.parametrize(("seconds", "times", "saves"), [(0.0, 0.0, 13), (1e9, 0.0, 2), (0.0, 1e9, 2)])
def test_checkpoints_are_seconds_apart(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, times: float, saves: int
) -> None:
    """After the first round and at the end, and between them only after a time, however many rounds it has."""
    monkeypatch.setattr(execution, "LEAST_SECONDS", seconds)
    monkeypatch.setattr(execution, "LEAST_TIMES", times)
    save, saved = RunFolder.save, []
    monkeypatch.setattr(RunFolder, "save", lambda folder: (saved.append(1), save(folder)))
    run(scenario, tmp_path / "run")
    assert len(saved) == saves


OFTEN = "from fedslot.cli import main; from fedslot.runs import execution; execution.LEAST_SECONDS = 0; main()"


@pytest.mark.parametrize("program", [["-m", "fedslot"], ["-c", OFTEN]], ids=["as it is", "many checkpoints"])
def test_killed_at_random_moments(
    start: Callable[..., subprocess.Popen[bytes]], scenario: Scenario, tmp_path: Path, program: list[str]
) -> None:
    """kill -9 in mid-round, again and again, gives the same rows as a run that was left alone."""
    scenario = scenario.replace({"rounds": 120, "strategy.name": "greedy-shap"})
    run(scenario, tmp_path / "whole")
    file = tmp_path / "killed.yaml"
    file.write_text(scenario.to_yaml())
    chance = random.Random(1)
    for kill in range(KILLS):
        command = [sys.executable, *program, "run", str(file), "--out", str(tmp_path / "killed"), "--resume"]
        process = start(*command, stderr=subprocess.DEVNULL)
        before = _count(tmp_path / "killed")
        wanted = before if kill == 0 else min(before + chance.randint(1, 6), 38)
        while _count(tmp_path / "killed") <= wanted and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not is_finished(tmp_path / "killed"), "the run was killed too late for this test to mean anything"
    run(scenario, tmp_path / "killed", resume=True)
    assert_same_files(tmp_path / "killed", tmp_path / "whole")


def _count(folder: Path) -> int:
    file = folder / "rounds.csv"
    return file.read_text().count("\n") if file.is_file() else 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_same_seed_same_rows(scenario: Scenario, tmp_path: Path, strategy: str) -> None:
    """Twice the same, whatever the global generators, and the same with two threads."""
    late = {"fleet.computing": {"slot": 0.005, "redraw": True}, "push.probability": "auto"}
    scenario = scenario.replace({"strategy.name": strategy, "rounds": 5, **late})
    for name, threads in {"one": 1, "again": 1, "two": 2}.items():
        torch.manual_seed(threads)
        np.random.seed(threads + len(name))  # noqa: NPY002
        run(scenario, tmp_path / name, threads=threads)
    assert rows(tmp_path / "one") == rows(tmp_path / "again") == rows(tmp_path / "two")
    one = load(tmp_path / "one").rounds
    other = run(scenario.replace({"seed": 1}), tmp_path / "other").rounds
    assert not other["test_loss"].equals(one["test_loss"])


def test_folders_that_are_not_ours_to_take(scenario: Scenario, tmp_path: Path) -> None:
    done = tmp_path / "done"
    run(scenario, done)
    before = rows(done)
    with pytest.raises(RefusedError, match="--resume"):
        run(scenario, done)
    with pytest.raises(RefusedError, match=r"another scenario: its frame.pull is 5, not 4"):
        run(scenario.replace({"frame.pull": 4}), done, resume=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("private")
    with pytest.raises(RefusedError, match="other things"):
        run(scenario, tmp_path / "notes", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="is a file"):
        run(scenario, tmp_path / "file")
    assert rows(done) == before
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["diary.txt"]


@pytest.mark.parametrize("resume", [False, True])
def test_a_kill_during_the_first_write_leaves_a_folder_that_can_be_taken(
    scenario: Scenario, tmp_path: Path, resume: bool
) -> None:
    (tmp_path / ".scenario.yaml.123.tmp").write_text("see")
    run(scenario, tmp_path, resume=resume)
    assert is_finished(tmp_path)
    assert [file.name for file in tmp_path.glob(".*")] == [".lock"]


def test_what_cannot_run_leaves_nothing_behind(scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.ues"):
        run(scenario.replace({"data.ues": 5000, "push.contenders": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Failing(FedAvg):
    """FedAvg that returns or raises something else from some round on."""

    def __init__(self, cell: Cell, *, how: str, first: int = 0) -> None:
        super().__init__(cell)
        self.how, self.first = how, first

    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Any:
        if round < self.first:
            return super().schedule(state, round, rng)
        if self.how == "break":
            raise ZeroDivisionError
        return sys.exit(0) if self.how == "leave" else None


def failing(how: str, first: int = 0) -> dict[str, Any]:
    return {"strategy.name": Failing, "strategy.options": {"how": how, "first": first}}


class Interrupted(FedAvg):
    stop = True

    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Any:
        if self.stop:
            raise KeyboardInterrupt
        return super().schedule(state, round, rng)


@pytest.mark.parametrize("how", [failing("refuse"), failing("break"), failing("leave"), {"training.lr": 1e6}])
def test_a_run_without_a_single_round_leaves_nothing_behind(
    scenario: Scenario, tmp_path: Path, how: dict[str, Any]
) -> None:
    refused, folder = scenario.replace(how), tmp_path / "run"
    with pytest.raises((RefusedError, ZeroDivisionError)):
        run(refused, folder)
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises((RefusedError, ZeroDivisionError)):
        run(refused, folder)
    assert list(folder.iterdir()) == [], "a folder that was there stays, empty"
    (folder / ".lock").touch()
    run(scenario.replace({"rounds": 1}), folder)
    with pytest.raises((RefusedError, ZeroDivisionError)):
        run(refused, folder, force=True)
    assert list(folder.iterdir()) == [], "what was to be deleted is deleted"


def test_a_run_with_some_rounds_stays(scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="round 2:"):
        run(scenario.replace(failing("refuse", first=2)), tmp_path / "run")
    assert len(load(tmp_path / "run").rounds) == 2


def test_an_interrupted_first_round_can_be_continued(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a second try is refused there: the run was not its own to delete."""
    own = scenario.replace({"strategy.name": Interrupted, "rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        run(own, tmp_path / "run")
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    assert "checkpoint.npz" in before
    with monkeypatch.context() as patch:
        patch.setattr(Interrupted, "schedule", lambda self, state, round, rng: None)
        with pytest.raises(RefusedError, match="must return a Grant"):
            run(own, tmp_path / "run", resume=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before
    monkeypatch.setattr(Interrupted, "stop", False)
    assert len(run(own, tmp_path / "run", resume=True).rounds) == 2


def test_leaving_the_program_is_refused_in_memory_too(scenario: Scenario) -> None:
    with pytest.raises(RefusedError, match=r"a part of your own called sys\.exit\(0\)"):
        run(scenario.replace(failing("leave")))


@pytest.fixture
def by_hand() -> Result:
    """Three rounds with known costs and accuracies."""
    table = pd.DataFrame(
        {
            "test_accuracy": [0.3, 0.8, 0.7],
            "cost_max": [21, 15, 11],
            "cost_sum": [230, 120, 80],
            "slots_spent": [21, 36, 47],
        }
    )
    return Result(Scenario(), table)


def test_measures_by_hand(by_hand: Result) -> None:
    assert by_hand.final_accuracy == 0.7
    assert by_hand.slots_spent == 47
    assert by_hand.slots_to(0.75) == 36
    assert by_hand.slots_to(0.75, "sum") == 350
    by_frames = replace(by_hand, scenario=Scenario(cost_rule="frame"), rounds=by_hand.rounds.assign(cost_frame=30))
    assert by_frames.slots_to(0.75) == 60, "the scenario's rule"
    assert np.isnan(by_hand.slots_to(0.9))
    assert np.isnan(by_hand.accuracy_at(20))
    assert [by_hand.accuracy_at(slots) for slots in (21, 35, 36, 1000)] == [0.3, 0.3, 0.8, 0.7]
    for measure in (by_hand.accuracy_at, by_hand.slots_to):
        with pytest.raises(InputError, match=r"rule: 'mx' is not allowed; it must be one of max, frame, sum; did you"):
            measure(0.5, "mx")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"out": {"rounds": 5}}, r"out: .* a folder; overrides go into Scenario\.load"),
        ({"resume": True}, r"out: None .* a folder, if its run is to be continued"),
        ({"force": True}, "out: None .* a folder"),
        ({"threads": 0}, "threads: 0 .* at least 1"),
        ({"threads": 1.5}, "threads: 1.5 .* whole number"),
        ({"callbacks": 3}, "callbacks: 3 .* a list of callbacks"),
    ],
)
def test_mistaken_arguments_are_refused(scenario: Scenario, arguments: dict[str, Any], refused: str) -> None:
    with pytest.raises(InputError, match=refused):
        run(scenario, **arguments)


@pytest.mark.parametrize("overrides", ["rounds=5", [("rounds", 5)], 5])
def test_overrides_are_a_mapping(scenario: Scenario, overrides: Any) -> None:
    for change in (scenario.replace, lambda given: Scenario.load("quickstart", given)):
        with pytest.raises(InputError, match=r"overrides: .* must be a mapping of keys to values"):
            change(overrides)


class Leaves(FedAvg):
    """Goes to another folder, and stays there."""

    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Any:
        os.chdir("/")
        return super().schedule(state, round, rng)


def test_a_part_that_leaves_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = Scenario.load("quickstart", {"rounds": 2, "data.ues": 20, "strategy.name": Leaves})
    run(scenario, "here/run")
    assert Path.cwd() == tmp_path
    assert load("here/run").finished
    run(scenario.replace({"rounds": 3}), "here/run", resume=True)
    assert len(load(tmp_path / "here/run").rounds) == 3
