"""The commands of the first hour: a scenario to start from, what is installed, what a folder holds."""

from __future__ import annotations

import io
import re
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

import pytest

from fedslot import Scenario, compare, presets, run, sweep
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
    hidden = [index for index, key in enumerate(keys_of) if key and key[1] in NAMES]
    assert len(hidden) > 20
    for index in hidden:
        file.write_text("\n".join([*lines[:index], lines[index].replace("# ", "", 1), *lines[index + 1 :]]))
        assert Scenario.load(file) == Scenario.load("quickstart"), lines[index]


NAMES = {key.rpartition(".")[2] for key in keys() if "computing" not in key}


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


def test_show_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Scenario.load("quickstart", QUICK), tmp_path / "run")
    assert main(["show", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert f"3 of 3 rounds and {result.slots_spent} slots, finished" in told
    assert f"test accuracy {result.final_accuracy:.4f}" in told
    assert "*" in told
    (tmp_path / "run" / "summary.json").unlink()
    assert main(["show", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert f"3 of 3 rounds and {result.slots_spent} slots, so far" in told
    assert "if it was interrupted, the command that began it continues it with --resume" in told


def test_show_of_a_sweep_that_is_under_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(Scenario.load("quickstart", QUICK), {"frame.pull": [1, 2]}, seeds=1, out=tmp_path, workers=1)
    first, second = sorted(tmp_path.glob("runs/*/summary.json"))
    first.unlink()
    assert main(["show", str(tmp_path)]) == 0
    output, errors = capsys.readouterr()
    assert "note: " in errors
    assert "1 of 2 runs are not finished: frame.pull=1" in errors
    assert " 1   not finished" in output
    second.unlink()
    assert main(["show", str(tmp_path)]) == 0
    assert "sweep on digits, 20 UEs: 0 of 2 runs are finished" in capsys.readouterr().out


def test_show_of_a_comparison_without_a_finished_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It tells how far the runs are that have begun."""
    compared = compare(Scenario.load("quickstart", QUICK), ["fedavg", "ucb"], 2, tmp_path, workers=1)
    (tmp_path / "runs" / "fedavg-seed0" / "summary.json").unlink()
    for part in ("summary.json", "rounds.csv"):
        (tmp_path / "runs" / "ucb-seed1" / part).unlink()
    assert main(["show", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "comparison on digits, 20 UEs: 2 of 4 runs are finished" in told
    fedavg = compared.runs["fedavg"][0]
    (row,) = (line.split() for line in told.splitlines() if "seed" in line)
    assert row == ["fedavg,", "seed", "0", "3", str(fedavg.slots_spent), f"{fedavg.final_accuracy:.3f}"]
    assert "continues it with --resume" in told


COMMANDS = {
    "run": ["run"],
    "comparison": ["compare", "--strategies", "fedavg,ucb", "--seeds", "3"],
    "sweep": ["sweep", "--grid", "frame.pull=1,2", "--seeds", "3"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A run, a comparison and a sweep in a folder, made by the commands, and what these printed."""
    fields = [word for key, value in QUICK.items() for word in ("-o", f"{key}={value}")]
    outputs = {}
    with chdir(tmp_path_factory.mktemp("first-hour")):
        for name, (command, *options) in COMMANDS.items():
            with redirect_stdout(io.StringIO()) as output:
                assert main([command, "quickstart", *options, *fields, "--out", f"my {name}"]) == 0
            outputs[name] = output.getvalue()
        return Path.cwd(), outputs


@pytest.mark.parametrize("name", COMMANDS)
def test_the_end_of_a_command_says_how_to_see_more(folders: tuple[Path, dict[str, str]], name: str) -> None:
    *_, where, more = folders[1][name].splitlines()
    assert f"my {name}" in where
    python = f"fedslot.load('my {name}') in Python"
    assert more == f"more: fedslot show 'my {name}', fedslot watch 'my {name}' --open, {python}"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_show_fits_the_terminal(
    width: int,
    folders: tuple[Path, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Apart from the line of commands to copy, which must not be broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(folders[0])
    for name, title in {
        "run": "push-pull on digits, 20 UEs, seed 0",
        "comparison": "comparison of fedavg, ucb on digits, 20 UEs, 3 seeds",
        "sweep": "sweep over frame.pull on digits, 20 UEs, 3 seeds",
    }.items():
        assert main(["show", f"my {name}"]) == 0
        output, errors = capsys.readouterr()
        first, *lines, last = output.splitlines()
        assert (first, errors) == (title, "")
        assert last == f"more: fedslot watch 'my {name}' --open, fedslot.load('my {name}') in Python"
        assert max(map(len, lines)) <= max(width, 70)


def test_show_refuses_what_holds_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert "holds no run, comparison or sweep" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/nowhere is no folder; give the folder that --out named\n"
    (tmp_path / "study").mkdir()
    assert main(["show", str(tmp_path / "stduy")]) == 2
    assert f"; did you mean {tmp_path / 'study'}?" in capsys.readouterr().err
