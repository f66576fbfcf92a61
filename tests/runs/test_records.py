"""Run folders: what may be continued and what may not, longer runs, models, and full disks."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedslot
from fedslot.cli import main
from fedslot.data.sources import load as load_data
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.simulation import Simulation
from fedslot.runs.callbacks import Report
from fedslot.runs.folders import RUN
from fedslot.runs.records import RowWriter
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError

QUICK = {"rounds": 7, "data.ues": 20, "strategy.warmup": 1, "training.epochs": 1, "strategy.name": "fedavg"}


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.load("quickstart", QUICK)


@pytest.fixture(scope="module")
def done(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of seven rounds; tests change copies of it."""
    folder = tmp_path_factory.mktemp("done") / "run"
    fedslot.run(scenario, folder)
    return folder


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "run"))


def rows(folder: Path) -> list[str]:
    """Lines of rounds.csv without the column `seconds`, the last."""
    return [line.rpartition(",")[0] for line in (folder / "rounds.csv").read_text().splitlines()]


# What was changed is not continued ----------------------------------------------------------------


Damage = Callable[[Path], None]


def _write(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def _save(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Change the model in a checkpoint, which is then whole, but without its right checksum."""

    def damage(folder: Path) -> None:
        with np.load(folder / "checkpoint.npz") as saved:
            arrays = dict(saved)
        np.savez(folder / "checkpoint.npz", **{**arrays, "model": change(arrays["model"])})

    return damage


def _binary(name: str) -> Damage:
    return _write(name, lambda content: b"\xff\x00PK" * 50)


def _swap(rows: bytes) -> bytes:
    header, first, second, *others = rows.splitlines(keepends=True)
    return b"".join([header, second, first, *others])


def _directory(name: str) -> Damage:
    def replace(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return replace


def _delete_frames(folder: Path) -> None:
    (folder / "frames.csv").unlink()


_edit = _write("rounds.csv", lambda rows: rows.replace(b"0.", b"0.9", 1))
_edit_frames = _write("frames.csv", lambda rows: rows.replace(b"pulled", b"pushed", 1))
_cut = _write("rounds.csv", lambda rows: b"".join(rows.splitlines(keepends=True)[:4]))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (_edit, r"rounds.csv was changed; restore it, or start over with --force"),
        (_write("rounds.csv", _swap), r"rounds.csv was changed"),
        (_edit_frames, r"frames.csv was changed; restore it, or start over with --force"),
        (_delete_frames, r"frames.csv has fewer rows than its checkpoint"),
        (_directory("frames.csv"), r"frames.csv is a folder, not a file"),
        (_cut, r"rounds.csv has fewer rows than its checkpoint"),
        (_binary("rounds.csv"), r"rounds.csv has fewer rows"),
        (_save(lambda model: model + 1), r"checkpoint.npz is damaged or was changed; start over with --force"),
        (_save(lambda model: model[:-1]), r"checkpoint.npz is damaged or was changed"),
        (_write("checkpoint.npz", lambda content: content[:-300]), r"checkpoint.npz is damaged or was changed"),
        (_binary("checkpoint.npz"), r"checkpoint.npz is damaged or was changed"),
        (_directory("rounds.csv"), r"rounds.csv is a folder, not a file"),
        (_directory("checkpoint.npz"), r"checkpoint.npz is a folder, not a file"),
        (_directory("summary.json"), r"summary.json is a folder, not a file"),
        (_directory("scenario.yaml"), r"holds other things than a run"),
    ],
)
def test_what_was_changed_is_refused_in_one_line(scenario: Scenario, copy: Path, damage: Damage, line: str) -> None:
    damage(copy)
    for longer in (scenario, scenario.replace({"rounds": 9})):
        with pytest.raises(RefusedError, match=line) as refused:
            fedslot.run(longer, copy, resume=True)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [(b"collided", b"coll9ided", "collided"), (b"cost_frame", b"", "cost_frame"), (b"\n1,", b"\nx,", "round")],
)
def test_columns_that_all_versions_have_hold_numbers(copy: Path, old: bytes, new: bytes, column: str) -> None:
    _write("rounds.csv", lambda rows: rows.replace(old, new, 1))(copy)
    with pytest.raises(
        RefusedError, match=rf"rounds.csv is damaged: its column {column} must have a number in each row"
    ):
        fedslot.load(copy)


@pytest.mark.parametrize("damage", [_edit, _directory("rounds.csv"), _delete_frames])
def test_finished_runs_of_a_comparison_are_checked_too(scenario: Scenario, tmp_path: Path, damage: Damage) -> None:
    short = scenario.replace({"rounds": 2})
    fedslot.compare(short, ["fedavg"], 1, tmp_path, workers=1)
    fedslot.compare(short, ["fedavg"], 1, tmp_path, workers=1, resume=True)
    damage(tmp_path / "runs" / "fedavg-seed0")
    with pytest.raises(RefusedError, match=r"(rounds|frames).csv"):
        fedslot.compare(short, ["fedavg"], 1, tmp_path, workers=1, resume=True)


def _data(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = rng.random((120, 4), dtype=np.float32), np.arange(120) % 2
    return {"x_train": x[:80], "y_train": y[:80], "x_test": x[80:], "y_test": y[80:]}


def test_changed_data_are_noticed(scenario: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    np.savez(file, **_data(0))
    own = scenario.replace({"data.dataset": str(file), "rounds": 2})
    fedslot.run(own, tmp_path / "run")
    os.utime(file)
    fedslot.run(own, tmp_path / "run", resume=True)
    np.savez(file, **_data(1))
    with pytest.raises(RefusedError, match=r"data.dataset has changed since it began; undo that, or .* --force"):
        fedslot.run(own, tmp_path / "run", resume=True)
    file.unlink()
    with pytest.raises(InputError, match="a file that exists"):
        fedslot.run(own, tmp_path / "run", resume=True)


STRATEGY = "from fedslot.strategies.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"


def test_a_changed_strategy_is_noticed(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_strategy_of_mine.py").write_text(STRATEGY)
    own = scenario.replace({"strategy.name": "own_strategy_of_mine:Mine", "rounds": 2})
    fedslot.run(own, tmp_path / "run")
    fedslot.run(own, tmp_path / "run", resume=True)
    (tmp_path / "own_strategy_of_mine.py").write_text(STRATEGY + "    patience = 3\n")
    importlib.invalidate_caches()
    importlib.reload(sys.modules["own_strategy_of_mine"])
    for again in (own, own.replace({"rounds": 3})):
        with pytest.raises(RefusedError, match="own_strategy_of_mine:Mine has changed since it began"):
            fedslot.run(again, tmp_path / "run", resume=True)


def test_a_part_without_source_cannot_be_continued(scenario: Scenario, tmp_path: Path) -> None:
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(STRATEGY, made)
    own = scenario.replace({"strategy.name": made["Mine"], "rounds": 2})
    fedslot.run(own, tmp_path / "run")
    with pytest.raises(RefusedError, match="the source of __main__:Mine cannot be read"):
        fedslot.run(own, tmp_path / "run", resume=True)


# Longer runs --------------------------------------------------------------------------------------


def test_more_rounds_give_the_same_as_a_longer_run(scenario: Scenario, copy: Path, tmp_path: Path) -> None:
    longer = scenario.replace({"rounds": 12})
    whole = fedslot.run(longer, tmp_path / "whole")
    seen: list[int] = []
    result = fedslot.run(longer, copy, resume=True, callbacks=[Report(lambda round: seen.append(round.round))])
    assert seen == list(range(7, 12))
    assert rows(copy) == rows(tmp_path / "whole")
    assert np.array_equal(result.model, whole.model)
    assert fedslot.load(copy).scenario == longer
    with pytest.raises(RefusedError, match=r"holds 12 rounds already, more than rounds=7"):
        fedslot.run(scenario, copy, resume=True)
    assert rows(copy) == rows(tmp_path / "whole")


def test_a_larger_time_budget_gives_the_same_as_a_longer_run(scenario: Scenario, tmp_path: Path) -> None:
    cost = 1 + scenario.frame.slots
    short, long = (scenario.replace({"time_budget": cost * frames + 3}) for frames in (2, 4))
    assert len(fedslot.run(short, tmp_path / "run").rounds) == 2
    fedslot.run(long, tmp_path / "whole")
    fedslot.run(long, tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    with pytest.raises(RefusedError, match=f"need a time budget of {4 * cost} slots already, more than {2 * cost + 3}"):
        fedslot.run(short, tmp_path / "run", resume=True)


def test_a_run_that_is_made_longer_is_not_finished_until_then(scenario: Scenario, copy: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario.replace({"rounds": 9}), copy, resume=True, callbacks=[Report(_interrupt)])
    assert not (copy / "summary.json").exists()


def _interrupt(round: object) -> None:
    raise KeyboardInterrupt


def test_comparisons_can_be_made_longer(scenario: Scenario, tmp_path: Path) -> None:
    for rounds in (2, 3):
        short = scenario.replace({"rounds": rounds})
        found = fedslot.compare(short, ["fedavg"], 1, tmp_path, workers=1, resume=True)
        assert found.measures()["rounds"].tolist() == [rounds]


# Models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_loaded_run_has_its_model(scenario: Scenario, tmp_path: Path, model: str) -> None:
    result = fedslot.run(scenario.replace({"training.model": model, "rounds": 2}), tmp_path)
    loaded = fedslot.load(tmp_path)
    assert loaded.model is not None
    assert np.array_equal(loaded.model, result.model)
    simulation, data = Simulation(result.scenario), load_data("digits")
    test = HeldOut(result.scenario, simulation.model, data.x_test, data.y_test).test
    for module in (loaded.module(), result.module()):
        with torch.no_grad():
            right = module(test.x).argmax(1) == test.y
        assert float(right.double().mean()) == pytest.approx(result.final_accuracy)


def test_without_a_checkpoint_there_is_no_model(copy: Path) -> None:
    (copy / "checkpoint.npz").unlink()
    assert fedslot.load(copy).model is None
    with pytest.raises(RefusedError, match="has no model"):
        fedslot.load(copy).module()


def test_comparisons_in_memory_have_models(scenario: Scenario) -> None:
    found = fedslot.compare(scenario.replace({"rounds": 2}), ["fedavg"], 1, workers=1)
    assert found.runs["fedavg"][0].model is not None


# Disks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", range(0, 12, 2))
def test_a_full_disk_leaves_what_can_be_continued(
    scenario: Scenario, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """At any write: an OSError, no temporary files, and the same rows once there is space again."""
    calls, fsync = 0, os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > when:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        if when < 10:
            with pytest.raises(OSError, match="No space left"):
                fedslot.run(scenario, tmp_path / "run")
        else:
            fedslot.run(scenario, tmp_path / "run")
    assert {file.name for file in (tmp_path / "run").iterdir()} <= {".lock", RUN.marker, *RUN.files}
    fedslot.run(scenario, tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(done)


def test_runs_that_cannot_be_read_are_one_line(copy: Path) -> None:
    for damage in (_binary("rounds.csv"), _directory("rounds.csv")):
        damage(copy)
        with pytest.raises(RefusedError, match=r"rounds.csv cannot be read"):
            fedslot.load(copy)


def test_a_full_disk_in_a_comparison_is_the_systems_fault(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 1, whichever run it hits."""

    def full(self: RowWriter, round: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RowWriter, "append", full)
    for command in (["run", "quickstart"], ["compare", "quickstart", "--strategies", "fedavg", "--workers", "1"]):
        assert main([*command, "-o", "rounds=2", "--out", str(tmp_path / command[0])]) == 1
        output = capsys.readouterr()
        assert "No space left on device" in output.err.splitlines()[-1]
        assert "Traceback" not in output.err
