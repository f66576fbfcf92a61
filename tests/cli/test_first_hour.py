"""The commands of the first hour: a scenario to start from, what is installed, what a folder holds."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from itertools import count, takewhile
from pathlib import Path

import pytest

from fedslot import Scenario, load, presets
from fedslot.cli import main
from fedslot.scenario import keys
from fedslot.support.extras import EXTRAS, Extra

QUICK = {"rounds": 3, "data.ues": 20, "training.epochs": 1, "frame.slots": 4, "frame.pull": 2, "push.contenders": 3}


@pytest.mark.parametrize("preset", presets())
def test_what_init_writes_is_the_preset_with_all_fields_explained(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "mine.yaml"
    assert main(["init", str(file), "--from", preset]) == 0
    assert Scenario.load(file) == Scenario.load(preset)
    text = file.read_text("utf-8")
    for key in keys():
        assert f"{key.rpartition('.')[2]}:" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_comments_of_init_are_fields_with_their_defaults(tmp_path: Path) -> None:
    """Without its #, each commented field is valid YAML, and what it was before."""
    file = tmp_path / "mine.yaml"
    assert main(["init", str(file)]) == 0
    lines = file.read_text("utf-8").splitlines()
    keys_of = [re.match(r" *# (\w+):", line) for line in lines]
    fields = {*keys()}
    sections = {key.rpartition(".")[0] for key in fields} & fields  # those that may be null
    headers = [f"{'  ' * section.count('.')}# {section.rpartition('.')[2]}:" for section in sections]
    optional = [lines.index(header) for header in headers]

    def below(first: int, header: str) -> Iterator[int]:
        deeper = header[: header.index("#")] + "  "
        return takewhile(lambda n: lines[n].startswith(deeper), count(first + 1))

    inside = {index for first, header in zip(optional, headers, strict=True) for index in below(first, header)}
    hidden = [
        index for index, key in enumerate(keys_of) if key and key[1] in NAMES and index not in {*inside, *optional}
    ]
    assert len(hidden) > 20
    for index in hidden:
        file.write_text("\n".join([*lines[:index], lines[index].replace("# ", "", 1), *lines[index + 1 :]]))
        assert Scenario.load(file) == Scenario.load("quickstart"), lines[index]


NAMES = {key.rpartition(".")[2] for key in keys()}


def test_init_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert capsys.readouterr().out == "mine.yaml is written; change it, then type: fedslot run mine.yaml\n"
    assert main(["show", "."]) == 2, "a scenario is not taken for a run"


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("rounds: 3\n")
    assert main(["init", str(file)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert file.read_text() == "rounds: 3\n"
    assert main(["init", str(tmp_path / "mine.txt")]) == 2
    assert main(["init", str(tmp_path / "other.yaml"), "--from", "nonsense"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_doctor_tells_versions_data_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(EXTRAS, "nonsense", Extra("nothing", {"no_such_module": "no-such-package"}))
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "torch" in told
    assert f"{tmp_path / 'cache'}" in told
    assert "missing: fedslot data fetch mnist" in told
    assert "missing: pip install 'fedslot[nonsense]' (nothing)" in told
    assert "compiled  perceptrons, by Numba" in told
    assert not (tmp_path / "cache").exists()


def test_doctor_lists_the_parts_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    assert "Parts of installed packages\n  none  " in capsys.readouterr().out
    folder = tmp_path / "shop-2.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 2.5\n")
    lines = ["[fedslot.strategies]", "mine = json:dumps", "[fedslot.links]", "gone = no_such_module:Link"]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "mine (fedslot.strategies)  shop 2.5, loads" in told
    assert "gone (fedslot.links)       shop 2.5, does not load: ModuleNotFoundError: No module named" in told


def test_old_keys_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("push: {channel: irsa, channel_options: {}}\nfleet: {noise: 0.1}\n")
    Path("study.yaml").write_text("scenario: quickstart\ngrid: {valuation.method: [gtg]}\n")
    quick = ["-o", "rounds=1", "-o", "training.epochs=1"]
    assert main(["run", "mine.yaml", "-o", "valuation.method=gtg", "-o", "valuation={within: 0.1}", *quick]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if " is now " in line]
    assert notes == [
        "note: push.channel_options is now push.channel.options",
        "note: valuation.method is now valuation.name",
        "note: valuation.within is now valuation.options.within",
    ]
    assert main(["sweep", "study.yaml", "--seeds", "1", "--workers", "1", *quick]) == 0
    assert "note: valuation.method is now valuation.name\n" in capsys.readouterr().err
    assert main(["run", "quickstart", "-o", "valuation.name=gtg", *quick, "--out", "new"]) == 0
    assert " is now " not in capsys.readouterr().err
    scenario = Path("new/scenario.yaml")  # as if an earlier version had written it
    scenario.write_text(scenario.read_text().replace("  name: gtg", "  method: gtg"))
    assert main(["run", str(scenario), "--out", "again"]) == 0
    assert " is now " not in capsys.readouterr().err


def test_doctor_helps_where_the_installation_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fedslot.experiments.pool", None)
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "unknown  ModuleNotFoundError: import of fedslot.experiments.pool halted" in told
    assert told.index("halted") < told.index("digits"), "the other sections are told all the same"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run, a comparison and a sweep, made by the commands, whose output is beside them."""
    folder = tmp_path_factory.mktemp("first-hour")
    commands = {
        "run": [],
        "compare": ["--strategies", "fedavg,ucb", "--seeds", "3"],
        "sweep": ["--grid", "frame.pull=1,2", "--seeds", "3"],
    }
    for name, options in commands.items():
        quick = [word for key, value in QUICK.items() for word in ("-o", f"{key}={value}")]
        with redirect_stdout(io.StringIO()) as output, chdir(folder):
            assert main([name, "quickstart", *options, *quick, "--out", f"my {name}"]) == 0
        (folder / f"{name}.txt").write_text(output.getvalue())
    return {name: folder / f"my {name}" for name in commands}


@pytest.fixture
def copies(folders: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies of these folders, which a test may change."""
    return {name: Path(shutil.copytree(folder, tmp_path / name)) for name, folder in folders.items()}


def test_show_of_a_run(copies: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    result = load(copies["run"])
    assert main(["show", str(copies["run"])]) == 0
    told = capsys.readouterr().out
    assert f"3 of 3 rounds and {result.slots_spent} slots, finished" in told
    assert f"test accuracy {result.final_accuracy:.4f}" in told
    assert "*" in told
    (copies["run"] / "summary.json").unlink()
    assert main(["show", str(copies["run"])]) == 0
    told = capsys.readouterr().out
    assert f"3 of 3 rounds and {result.slots_spent} slots, so far" in told
    assert "if it was interrupted, the command that began it continues it with --resume" in told


def test_show_of_a_comparison_and_a_sweep(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folders["compare"])]) == 0
    told = capsys.readouterr().out
    for estimates in load(folders["compare"]).estimates().values():
        assert f"{estimates['final_accuracy'].mean:.3f}" in told
    assert "comparison of fedavg, ucb on digits, 20 UEs, 3 seeds" in told
    assert main(["show", str(folders["sweep"])]) == 0
    told = capsys.readouterr().out
    assert "sweep over frame.pull on digits, 20 UEs, 3 seeds" in told
    assert "2 combinations" in told
    assert "not finished" not in told


def test_show_of_a_sweep_that_is_under_way(copies: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    summaries = sorted(copies["sweep"].glob("runs/*/summary.json"))
    for file in summaries[:3]:
        file.unlink()
    assert main(["show", str(copies["sweep"])]) == 0
    output, errors = capsys.readouterr()
    assert "note: " in errors
    assert "3 of 6 runs are not finished: frame.pull=1" in errors
    assert re.search(r" 1 +not finished", output)
    for file in summaries[3:]:
        file.unlink()
    assert main(["show", str(copies["sweep"])]) == 0
    assert "sweep on digits, 20 UEs: 0 of 6 runs are finished" in capsys.readouterr().out


def test_show_of_a_comparison_without_a_finished_seed(
    copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells how far the runs are that have begun."""
    runs = copies["compare"] / "runs"
    for name in ("fedavg-seed0", "ucb-seed1", "ucb-seed2"):
        (runs / name / "summary.json").unlink()
    for name in ("ucb-seed1", "ucb-seed2"):
        (runs / name / "rounds.csv").unlink()
    assert main(["show", str(copies["compare"])]) == 0
    told = capsys.readouterr().out
    assert "comparison on digits, 20 UEs: 3 of 6 runs are finished" in told
    fedavg = load(runs / "fedavg-seed0")
    (row,) = (line.split() for line in told.splitlines() if "seed" in line)
    assert row == ["fedavg,", "seed", "0", "3", str(fedavg.slots_spent), f"{fedavg.final_accuracy:.3f}"]
    assert "continues it with --resume" in told


@pytest.mark.parametrize("name", ["run", "compare", "sweep"])
def test_commands_say_how_to_see_more_and_show_fits_the_terminal(
    name: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Apart from the line of commands to copy, which must not be broken."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(folders[name].parent)
    more = f"fedslot watch 'my {name}' --open, fedslot.load('my {name}') in Python"
    *_, where, last = Path(f"{name}.txt").read_text().splitlines()
    assert f"my {name}" in where
    assert last == f"more: fedslot show 'my {name}', {more}"
    assert main(["show", f"my {name}"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"more: {more}"
    assert max(map(len, lines)) <= 70


def test_show_refuses_what_holds_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert "holds no run, comparison or sweep" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/nowhere is no folder; give the folder that --out named\n"
    (tmp_path / "study").mkdir()
    assert main(["show", str(tmp_path / "stduy")]) == 2
    assert f"; did you mean {tmp_path / 'study'}?" in capsys.readouterr().err


@pytest.mark.long
def test_doctor_compiles_beforehand_and_the_first_run_then_does_not(tmp_path: Path) -> None:
    """In processes of their own, with an empty cache of machine code."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "code")}

    def fedslot(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fedslot", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "type: fedslot doctor --warm" in fedslot("doctor").stdout
    warmed = fedslot("doctor", "--warm")
    assert "compiling the training of perceptrons, once per machine" in warmed.stderr
    assert "by Numba" in warmed.stdout
    assert "compiled\n" in warmed.stdout
    code = {file: file.stat().st_mtime_ns for file in (tmp_path / "code").rglob("*.nb*")}
    assert code
    assert "compiling" not in fedslot("run", "quickstart", "-o", "rounds=1").stderr
    assert code == {file: file.stat().st_mtime_ns for file in (tmp_path / "code").rglob("*.nb*")}
