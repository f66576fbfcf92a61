"""Measure fedslot against the plain implementation, and write RESULTS.md.

    python benchmarks/run.py [--threads 2] [--repeats 5] [--table 'Whole runs' ...] [--quick] [--out FILE]

The file is written after each table; with --table, the other tables stay as they are. With --quick it passes through
all of the code in seconds, for numbers that mean nothing.
Contestants take turns; absolute times are those of the machine at that moment, ratios are what to compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import parts
import torch
import valuation
import whole_runs

RESULTS = Path(__file__).with_name("RESULTS.md")
RACE = "| round | plain | fedslot | times faster |"
WHOLE = "Rounds of the contestants in turns, each in its own run, at the scenario's own noise."
ERRORS = "Rounds drawn from whole runs; errors are root mean squares over UEs against a long reference."


def table(header: str, *rows: str) -> list[str]:
    """Return the lines of a table."""
    return [header, "|---" * (header.count("|") - 1) + "|", *rows]


def tables(count: int, repeats: int, quick: bool = False) -> dict[str, Callable[[], list[str]]]:
    """Return what measures each table, by its title; the lines of the table are its result."""
    quickstart, fedavg, greedy, _, cifar = whole_runs.settings(quick)
    few = 1 if quick else max(2, repeats // 2)
    middle, early = (2, 2) if quick else (parts.ROUND, 4)
    fleets = (20,) if quick else (200, 1_000, 100_000, 1_000_000, 10_000_000)
    return {
        "Whole runs": lambda: [WHOLE, "", *whole_runs.table(count, quick)],
        "Errors of values": lambda: [ERRORS, "", *valuation.table(count, *((1, "quickstart") if quick else ()))],
        "Local training of a round": lambda: table(
            RACE,
            parts.training(fedavg, repeats, count, middle),
            parts.training(quickstart, repeats, count, middle),
            parts.training(cifar, few, count, early),
        ),
        "Utilities of coalitions, each": lambda: table(
            RACE,
            parts.utilities(greedy, few, count, 100, middle),
            parts.utilities(greedy, few, count, 1000, middle),
            parts.utilities(cifar, few if quick else 2, count, 60, early),
        ),
        "A round without training and valuation": lambda: table("| cell | per round |", parts.orchestration(few)),
        "Growth with the number of UEs": lambda: table(
            "| UEs | per round | of 200 UEs | memory |", *parts.growth(fleets, 4 if quick else 16)
        ),
        "Access alone": lambda: table(
            "| frames | drawing the numbers | playing | ratio |", *parts.access(few, 1_000 if quick else 1_000_000)
        ),
        "Start-up": lambda: table("| import torch | fedslot --help | ratio |", parts.startup(few)),
    }


def page(measured: dict[str, str]) -> str:
    """Return the file, of tables by their titles."""
    what_was_tried = "What was tried is in [NOTES.md](NOTES.md). `make bench` writes this file."
    sections = [f"# Benchmarks\n\n{what_was_tried}", *(f"## {title}\n\n{text}" for title, text in measured.items())]
    return "\n\n".join(sections) + "\n"


def conditions(count: int) -> str:
    """Return when and where a table is measured."""
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__.split('+')[0]}"
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    return f"{date.today()}, {machine}, {versions}, {count} thread{'s' * (count > 1)} for both sides."


def main() -> None:
    """Measure, and write the file."""
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="all of the code on small settings")
    options.add_argument("--table", action="append", help="a table to measure, by its title; the others stay")
    options.add_argument("--out", type=Path, help="default: RESULTS.md, or the screen with --quick")
    chosen = options.parse_args()
    out = chosen.out or (None if chosen.quick else RESULTS)
    measures = tables(chosen.threads, 1 if chosen.quick else chosen.repeats, chosen.quick)
    if unknown := set(chosen.table or ()) - measures.keys():
        options.error(f"--table: {', '.join(sorted(unknown))} is none of {', '.join(measures)}")
    earlier = out.read_text("utf-8") if out and out.exists() else ""
    measured = dict(re.findall(r"^## (.+)\n+((?:.*\n)*?)\n*(?=## |\Z)", earlier, re.MULTILINE))
    for title in chosen.table or measures:
        began = time.perf_counter()
        measured[title] = "\n".join([conditions(chosen.threads), "", *measures[title]()])
        print(f"{title}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
        if out:
            out.write_text(page({name: measured[name].strip() for name in measures if name in measured}), "utf-8")
    if not out:
        print(page(measured))


if __name__ == "__main__":
    main()
