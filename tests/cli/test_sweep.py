"""`fedslot sweep` as a user meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedslot.cli import app
from fedslot.strategies import Cell
from fedslot.strategies.fedavg import FedAvg

QUICK = ["-o", "rounds=3", "-o", "data.ues=20", "-o", "training.epochs=1", "-o", "strategy.warmup=1", "--workers", "1"]


def test_a_sweep_prints_a_table_and_leaves_its_files(tmp_path: Path) -> None:
    grid = ["--grid", "frame.pull=2,5", "--grid", "push.contenders=2,4", "--seeds", "2", "--targets", "0.05"]
    done = CliRunner().invoke(app, ["sweep", "quickstart", *QUICK, *grid, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "4 combinations: the values of both seeds" in done.output
    assert "slots" in done.output
    assert len(pd.read_csv(tmp_path / "out" / "runs.csv")) == 8
    for file in ("sweep.csv", "study.yaml", "figures/final_accuracy.png", "figures/slots_to_0.05_max.pdf"):
        assert (tmp_path / "out" / file).stat().st_size > 0
    again = ["sweep", str(tmp_path / "out" / "study.yaml"), "--workers", "1", "--out", str(tmp_path / "again")]
    done = CliRunner().invoke(app, [*again, "--targets", "0.05"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again" / "runs.csv").read_bytes() == (tmp_path / "out" / "runs.csv").read_bytes()


class Own(FedAvg):
    """A strategy of one's own with an option of any kind."""

    def __init__(self, cell: Cell, *, a: object = None) -> None:
        super().__init__(cell)


def test_words_of_the_user_are_printed_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grid = ["--grid", "strategy.options.a='[/x]',[bold, b],':cat:'", "--seeds", "1", "--out", "a[/x]"]
    own = ["-o", f"strategy.name={__name__}:Own"]
    done = CliRunner().invoke(app, ["sweep", "quickstart", *QUICK, *own, *grid])
    assert done.exit_code == 0, done.output
    for words in ("'[/x]'", "[bold, b]", '":cat:"', "a[/x]/runs.csv"):
        assert f" {words} " in done.stdout


def test_failures_are_listed_with_exit_code_1(tmp_path: Path) -> None:
    words = ["sweep", "quickstart", *QUICK, "--grid", "training.lr=1e6", "--seeds", "12", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "12 of 12 runs failed" in done.output
    assert "training.lr=1000000.0, seed 0: round 0: training diverged" in done.output
    assert "and 2 more" in done.output
    words[words.index("training.lr=1e6")] = "training.lr=1e6,0.05"
    done = CliRunner().invoke(app, [*words, "--seeds", "1", "--resume"])
    assert done.exit_code == 1
    assert "1 of 2 runs failed" in done.output
    assert (tmp_path / "figures" / "final_accuracy.png").exists(), "what there is, is drawn"


def test_an_interrupted_sweep_says_how_to_go_on(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    words = ["sweep", "quickstart", "-o", "rounds=5000", "--grid", "frame.pull=2,5", "--out", str(tmp_path / "out")]
    process = start(sys.executable, "-m", "fedslot", *words, stderr=subprocess.PIPE, text=True)
    while len(list((tmp_path / "out").glob("runs/*/rounds.csv"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: the workers get it too
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "stopped; continue with the same command and --resume\n"
