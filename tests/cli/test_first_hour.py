"""The commands of the first hour: a scenario to start from, what is installed, what a folder holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedslot import Scenario, compare, presets, run, sweep
from fedslot.cli import main
from fedslot.scenario import keys

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
    hidden = [
        i
        for i, line in enumerate(lines)
        if line.lstrip().startswith("# ") and line.split("# ")[1].split(":")[0] in NAMES
    ]
    assert len(hidden) > 20
    for index in hidden:
        file.write_text("\n".join([*lines[:index], lines[index].replace("# ", "", 1), *lines[index + 1 :]]))
        assert Scenario.load(file) == Scenario.load("quickstart"), lines[index]


NAMES = {key.rpartition(".")[2] for key in keys() if "computing" not in key}


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
    monkeypatch.setitem(_extras(), "nonsense", ("no_such_module", "nothing"))
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "torch" in told
    assert f"{tmp_path / 'cache'}" in told
    assert "missing: fedslot data fetch mnist" in told
    assert "missing: pip install 'fedslot[nonsense]' (nothing)" in told
    assert not (tmp_path / "cache").exists()


def _extras() -> dict[str, tuple[str, str]]:
    import sys

    return sys.modules["fedslot.cli.doctor"].EXTRAS  # the package has a command of the same name


def test_show_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Scenario.load("quickstart", QUICK), tmp_path / "run")
    assert main(["show", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert f"3 rounds and {result.slots_spent} slots, finished" in told
    assert f"test accuracy {result.final_accuracy:.4f}" in told
    assert "*" in told
    (tmp_path / "run" / "summary.json").unlink()
    assert main(["show", str(tmp_path / "run")]) == 0
    assert "not finished; continue with --resume" in capsys.readouterr().out


def test_show_of_a_comparison_and_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = Scenario.load("quickstart", QUICK)
    comparison = compare(base, ["fedavg", "push-pull"], seeds=1, out=tmp_path / "comparison", workers=1)
    sweep(base, {"frame.pull": [1, 2]}, seeds=1, out=tmp_path / "sweep", workers=1)
    assert main(["show", str(tmp_path / "comparison")]) == 0
    told = capsys.readouterr().out
    assert f"{comparison.runs['fedavg'][0].final_accuracy:.3f}" in told
    assert not math.isnan(comparison.runs["push-pull"][0].final_accuracy)
    assert main(["show", str(tmp_path / "sweep")]) == 0
    assert "2 combinations" in capsys.readouterr().out


def test_show_refuses_what_holds_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert "holds no run, comparison or sweep" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
