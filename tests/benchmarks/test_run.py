"""The benchmarks run to their end; what they measure is not judged here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_quick_benchmarks_fill_every_table() -> None:
    before = (FOLDER / "RESULTS.md").read_bytes()
    words = [sys.executable, str(FOLDER / "run.py"), "--quick", "--threads", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tables = dict(re.findall(r"^## (.+)\n((?:.*\n)*?)(?=## |\Z)", done.stdout, re.MULTILINE))
    published = re.findall(r"^## (.+)", before.decode(), re.MULTILINE)
    assert list(tables) == published
    assert all(text.count("\n|") >= 3 or text.count("\n| ") >= 2 for text in tables.values())
    assert (FOLDER / "RESULTS.md").read_bytes() == before
