"""The command line as a user meets it: a process, its output, its exit code."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fedslot
from fedslot.cli import app, main
from fedslot.cli.compare import complete_strategies
from fedslot.cli.options import complete_override, complete_scenario, continue_with
from fedslot.scenario import Scenario, parse_overrides
from fedslot.support.yaml_text import parse_yaml

Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]

QUICK = ["-o", "rounds=3", "-o", "data.ues=20", "-o", "training.epochs=1", "-o", "strategy.warmup=1"]


def quick(*words: str) -> str:
    """Output of a command run in this process, which must succeed."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_run_leaves_its_files_and_says_how_it_went(fedslot_command: Command, tmp_path: Path) -> None:
    done = fedslot_command("run", "quickstart", *QUICK, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        ".lock",
        "checkpoint.npz",
        "frames.csv",
        "rounds.csv",
        "scenario.yaml",
        "summary.json",
    ]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert f"test accuracy {summary['final_accuracy']:.4f} after 3 rounds" in done.stdout
    assert "round 3/3" in done.stderr, "plain lines when piped"
    assert "\x1b" not in done.stderr
    scenario = parse_yaml((tmp_path / "run" / "scenario.yaml").read_text())
    assert scenario["data"]["ues"] == 20
    assert Scenario(**scenario).rounds == 3


def test_compare_prints_a_table_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--strategies", "push-pull,fedavg", "--seeds", "2", "--workers", "1", "--out", "a[/x]"]
    output = quick("compare", "quickstart", *QUICK, *words)
    for text in ("push-pull", "Accuracy: the values of both seeds", "Differences to push-pull"):
        assert text in output
    assert "figures and tables in a[/x]; report" in output, "the folder as it is"
    for file in ("report.html", "comparison.csv", "differences.csv", "runs.csv", "figures/accuracy_by_slots.pdf"):
        assert (tmp_path / "a[/x]" / file).stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "quickstrat"], "did you mean quickstart"),
        (["run", "quickstart", "-o", "frame.slots"], "key=value"),
        (["run", "quickstart", "-o", "strategy.name=fedprox"], "strategy.name: 'fedprox' is not allowed"),
        (["run", "quickstart", "-o", "data.dataset=none.npz"], "data.dataset"),
        (["run", "quickstart", "-o", "data.ues=1001"], "data.ues: 1001 is not allowed"),
        (["run", "quickstart", "-o", "training.device=warp"], "training.device: 'warp' is not allowed"),
        (["compare", "quickstart", "--targets", "high"], "targets: 'high' is not allowed"),
        (["compare", "quickstart", "--against", "joules"], "--against: 'joules' is not allowed"),
        (["compare", "quickstart", "--strategies", "fedavg,nonsense"], "strategy.name: 'nonsense' is not allowed"),
        (["sweep", "quickstart"], "grid: {} is not allowed; it must be one axis at least"),
        (["sweep", "quickstart", "--grid", "frame.pull=5,11"], "frame.pull: 11 is not allowed"),
        (["sweep", "quickstart", "--grid", "frame.pull=5", "--seeds", "0"], "seeds: 0 is not allowed"),
        (["presets", "nonsense"], "preset: 'nonsense' is not allowed; it must be one of"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    refusal: Callable[[list[str]], str], words: list[str], expected: str
) -> None:
    assert expected in refusal(words)


def test_interrupted_run_can_be_resumed(start: Start, tmp_path: Path) -> None:
    words = ["run", "quickstart", "-o", "rounds=1000000", "--out", str(tmp_path / "run")]
    process = start(sys.executable, "-m", "fedslot", *words, stderr=subprocess.PIPE, text=True)
    file = tmp_path / "run" / "rounds.csv"
    while not (file.is_file() and file.read_text().count("\n") > 3):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert "Traceback" not in errors
    rows = file.read_text().count("\n") - 1
    saved = dict(np.load(tmp_path / "run" / "checkpoint.npz"))
    assert int(saved["round"]) == rows, "no finished round is lost"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "quickstart", "-o", "strategy.options={a: 1}", "--out", "my run", "--threads", "2", "--port", "5123"],
        ["run", "--open", "-o", "rounds=3", "--override", "seed=1", "a scenario.yaml", "--dask=tcp://host:8786"],
        ["run", "--resume", "quickstart", "--track", "mlflow", "--track", "tensorboard", "--frames", "--live"],
        ["serve", "quickstart", "--broker", "mqtt://host", "--free", "--tolerance", "0.05", "--out", "--force"],
        ["serve", "quickstart", "--broker", "mqtts://host", "--cert", "a b.pem", "--no-frames", "--force"],
    ],
)
def test_the_command_to_resume_has_the_same_options(words: list[str]) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    given = commands[words[0]].make_context(words[0], words[1:])
    name, command, *again = shlex.split(continue_with(given).removeprefix("continue with: "))
    assert (name, command) == ("fedslot", words[0])
    understood = commands[command].make_context(command, again)
    assert understood.params == {**given.params, "resume": True, "force": False}


def test_a_comparison_that_is_stopped_while_it_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and no traceback; --resume finishes it without running anything again."""

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["compare", "quickstart", *QUICK, "--seeds", "1", "--workers", "1", "--out", str(tmp_path / "out")]
    words += ["--strategies", "push-pull,fedavg{training.epochs: 2},centralized", "-o", "aggregation.name=fedadam"]
    with monkeypatch.context() as patched:
        patched.setattr("fedslot.views.report.save", stop)
        assert main(words) == 130
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "note: under centralized the PS itself trains: it takes the plain average instead of fedadam"
    assert [line for line in lines if not line.startswith("[")][1:] == [
        "stopped; continue with the same command and --resume"
    ]
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert main([*words, "--resume"]) == 0
    output = capsys.readouterr()
    assert "fedavg{training.epochs: 2}" in output.out
    assert "[3/3]" not in output.err, "no run is repeated"
    assert (tmp_path / "out" / "report.html").is_file()
    assert main([*words, "--strategies", "push-pull,ucb", "--resume"]) == 0
    note = "note: tables and figures leave out the runs centralized-seed0, fedavg-training.epochs-2-"
    assert note in capsys.readouterr().err


def test_own_strategy_in_the_current_folder(fedslot_command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from fedslot.strategies.fedavg import FedAvg\n\nclass Mine(FedAvg):\n    pass\n")
    mine = fedslot_command("run", "quickstart", *QUICK, "-o", "strategy.name=mine:Mine", "--out", "mine", cwd=tmp_path)
    assert mine.returncode == 0, mine.stderr
    theirs = fedslot.run(Scenario.load("quickstart", {**parse_overrides(QUICK[1::2]), "strategy.name": "fedavg"}))
    first, second = (run.rounds.drop(columns="seconds") for run in (fedslot.load(tmp_path / "mine"), theirs))
    assert first.equals(second)


def test_schema_and_presets() -> None:
    schema = json.loads(quick("schema"))
    assert schema["properties"]["rounds"]["description"]
    assert "frame.pull" in quick("schema", "--keys")
    assert parse_yaml(quick("presets", "paper"))["data"]["dataset"] == "mnist"
    assert quick("presets").count("\n") == len(fedslot.presets())
    assert quick("--version").strip() == f"fedslot {fedslot.__version__}"


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "presets", "schema", "data"])
def test_every_command_has_help(command: str) -> None:
    assert "Usage" in quick(command, "--help")


def test_completion_offers_names_and_keys() -> None:
    assert "quickstart" in complete_scenario("quick")
    assert "frame.pull=" in complete_override("frame.")
    assert complete_override("push.channel=i") == ["push.channel=irsa"]
    assert complete_override("push.channel.name=i") == ["push.channel.name=irsa"]
    assert complete_strategies("fedavg,push") == ["fedavg,push-pull"]


def test_fields_that_are_set_in_vain_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "quickstart", "-o", "rounds=1", "-o", "frame.pull=3", "-o", "strategy.warmup=0"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert "note" not in capsys.readouterr().err
    assert main([*words, "-o", "strategy.name=fedavg", "--out", str(tmp_path / "b")]) == 0
    assert "note: frame.pull has no effect under fedavg\n" in capsys.readouterr().err


def test_a_scenario_file_with_data_and_a_partition_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be run and resumed from any folder."""
    y = np.arange(90) % 3
    x = np.random.default_rng(0).normal(size=(90, 4)) + np.eye(3, 4)[y]
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, ue_train=np.arange(90) % 8)
    file = tmp_path / "mine" / "mine.yaml"
    small = "frame: {slots: 4, pull: 2}\npush: {contenders: 2}\nrounds: 2\n"
    file.write_text(f"data: {{dataset: own.npz, ues: 8, alpha: 3}}\n{small}")
    monkeypatch.chdir(tmp_path)
    out = str(tmp_path / "out")
    first = CliRunner().invoke(app, ["run", "mine/mine.yaml", "--out", out])
    assert first.exit_code == 0, first.stderr
    assert "note: data.alpha has no effect beside ue_train\n" in first.stderr
    monkeypatch.chdir(tmp_path / "mine")
    again = CliRunner().invoke(app, ["run", "mine.yaml", "--out", out, "--resume"])
    assert again.exit_code == 0, again.stderr
    repeated = CliRunner().invoke(app, ["run", f"{out}/scenario.yaml", "--out", str(tmp_path / "repeated")])
    assert repeated.exit_code == 0, repeated.stderr
    assert fedslot.load(out).scenario.data.dataset == str(tmp_path / "mine" / "own.npz")
