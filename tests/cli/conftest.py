"""Fixtures of the tests of the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedslot.cli import main

Refusal = Callable[[list[str]], str]


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Runs a command that must be refused: one line, exit code 2, nothing half-written. Returns the line."""

    def run(words: list[str]) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "warnoptions", ["error"])  # else the command line hides warnings
        assert main(words) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: ")
        assert output.err.count("\n") == 1
        assert list(tmp_path.iterdir()) == [], "nothing half-written"
        return output.err

    return run
