"""The benchmarks run to their end; what they measure is not judged here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def measure(*words: str) -> str:
    """Run the quick benchmarks; return what they print."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "--quick", "--threads", "1", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_benchmarks_fill_every_table() -> None:
    before = (FOLDER / "RESULTS.md").read_bytes()
    tables = dict(re.findall(r"^## (.+)\n((?:.*\n)*?)(?=## |\Z)", measure(), re.MULTILINE))
    published = re.findall(r"^## (.+)", before.decode(), re.MULTILINE)
    assert list(tables) == published
    assert all(text.count("\n|") >= 3 or text.count("\n| ") >= 2 for text in tables.values())
    assert (FOLDER / "RESULTS.md").read_bytes() == before


def test_a_table_is_measured_alone_and_the_others_stay(tmp_path: Path) -> None:
    out = tmp_path / "RESULTS.md"
    out.write_text("# Benchmarks\n\n## Access alone\n\nold\n\n## Start-up\n\nearlier\n\n| a |\n|---|\n", "utf-8")
    measure("--table", "Access alone", "--out", str(out))
    text = out.read_text("utf-8")
    assert text.endswith("## Start-up\n\nearlier\n\n| a |\n|---|\n")
    assert "1 thread for both sides" in text
    assert "1,000 contenders" in text
    assert "old" not in text
