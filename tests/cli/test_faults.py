"""Faults end a command with one line and an exit code, whatever its output is."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedslot.cli import main
from fedslot.cli.faults import exit_code

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def _same_warnings_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep warnings errors: as if the user had asked for them."""
    monkeypatch.setattr(sys, "warnoptions", ["error"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["pln"], "fedslot has no command pln; did you mean plan?"),
        (["nonsense"], "fedslot has no command nonsense, only init, run, compare"),
        (["data", "fecth"], "fedslot data has no command fecth; did you mean fetch?"),
        (["plan", "--slot", "3"], "fedslot plan has no option --slot; did you mean --slots?"),
        (["plan", "-z"], "fedslot plan has no option -z, only -o, --override, --slots"),
        (["run", "--bogus"], "fedslot run has no option --bogus, only -o, --override"),
        (
            ["reproduce", "fig22"],
            "FIGURE: 'fig22' is not one of 'fig2', 'fig3', 'fig5', 'fig6', 'all'; did you mean fig2?",
        ),
        (["plan", "--slots", "many"], "--slots: 'many' is not a valid integer"),
        (["plan", "--slots"], "option '--slots' requires an argument"),
        (["plan", "quickstart", "more", "words"], "fedslot plan: got unexpected extra arguments (more words)"),
        (["run", "quickstart", "--threads", "0"], "--threads: 0 is not in the range"),
        (["data", "fetch"], "fedslot data fetch needs NAME"),
        (["plan", "--slots", "9" * 10_000], "--slots: '999"),
    ],
)
def test_mistyped_words_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"error: {line}")
    assert errors.count("\n") == 1
    assert len(errors) < 500


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "serve"])
def test_a_command_without_a_scenario_says_what_to_do(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    *advice, last = errors.splitlines()
    assert "quickstart" in advice[0] + advice[1]
    assert any("fedslot init mine.yaml" in line for line in advice)
    assert any(f"example   fedslot {command} quickstart" in line for line in advice)
    assert last.startswith(f"error: fedslot {command} needs SCENARIO: a preset")
    assert max(map(len, advice)) <= 100


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: No space left on device\n"),
        (PermissionError(errno.EACCES, "Permission denied", "out/run"), 1, "error: out/run: Permission denied\n"),
        (MemoryError(), 1, "error: not enough memory (no more could be had)\n"),
        (RuntimeError("CPUAllocator: can't allocate memory"), 1, "error: not enough memory (CPUAllocator: can't"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(0), 2, "error: a part of your own called sys.exit(0); let it raise an error instead\n"),
    ],
)
def test_faults_of_the_system(fault: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise fault

    assert exit_code(command) == code
    assert capsys.readouterr().err[: len(line) or None] == line


def test_defects_keep_their_traceback() -> None:
    def command() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        exit_code(command)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_any_encoding_will_do(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert main(["plan", "--slots", "40", "--channel", "crdsa", "--frames", "20", "--contenders", "4"]) == 0
    text = raw.getvalue().decode(encoding)
    assert "> most value a frame" in text
    assert "one standard error" in text
    assert main(["plan", "--help"]) == 0


def test_help_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["plan", "--slots", "3", "--json"]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_onto_a_full_disk(start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "fedslot", "plan", "--slots", "3"]
        process = start(*words, stdout=full, stderr=subprocess.PIPE, text=True)
        assert process.communicate(timeout=60)[1] == "error: No space left on device\n"
    assert process.returncode == 1


def test_a_broken_pipe_that_is_not_the_output(start: Start, tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY, "utf-8")
    words = [sys.executable, "-m", "fedslot", "run", "quickstart", "-o", "strategy=leaky:Leaky", "-o", "rounds=1"]
    process = start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("error: a part of your own wrote into a pipe")
    assert not (tmp_path / "out/run").exists()


LEAKY = """
import os
from fedslot.strategies.fedavg import FedAvg

class Leaky(FedAvg):
    def schedule(self, state, round, rng):
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"lost")
"""


@pytest.mark.parametrize("words", [["--slots", "3"], ["--slots", "2000", "--json"]])
def test_a_reader_that_goes_away(start: Start, words: list[str]) -> None:
    pipe = subprocess.PIPE
    process = start(sys.executable, "-m", "fedslot", "plan", *words, stdout=pipe, stderr=pipe, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141
