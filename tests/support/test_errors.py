"""Errors suggest the nearest name wherever a name is given, and only a near one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedslot import InputError
from fedslot.cli import main
from fedslot.data.sources import load as load_data
from fedslot.support.errors import nearest


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run", "quickstart", "-o", "strateg.name=ucb"], "strategy.name"),
        (["run", "quickstart", "--track", "tensorbord"], "tensorboard"),
        (["compare", "quickstart", "--strategies", "fedavg,push-pul"], "push-pull"),
        (["compare", "quickstart", "--strategies", "fedavg+fedadm"], "fedadam"),
        (["plan", "--channel", "crdas"], "crdsa"),
        (["presets", "papr"], "paper"),
        (["init", "mine.yaml", "--from", "papr"], "paper"),
        (["data", "fetch", "mnits"], "mnist"),
        (["data", "path", "mnits"], "mnist"),
        (["equal-slots", "fashion-20"], "fashion-200"),
    ],
)
def test_commands_suggest_the_nearest_name(
    words: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert f"; did you mean {meant}?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_names_of_data_sets_and_of_the_package_are_suggested_too() -> None:
    with pytest.raises(InputError, match=r"did you mean fashion-mnist\?"):
        load_data("fashion_mnist")
    script = "import fedslot; fedslot.comparee"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("Did you mean: 'compare'?\n")


@pytest.mark.parametrize(
    ("name", "known"),
    [("--bogus", ["--out", "--force", "--open"]), ("qqqq", ["ucb"]), ("", ["ucb"]), ("ucb", []), ("--", ["--x"])],
)
def test_names_that_are_not_near_are_not_suggested(name: str, known: list[str]) -> None:
    assert nearest(name, known) is None
    assert nearest("UCB", ["fedavg", "ucb"]) == "ucb"
