"""Measure fedslot against the plain implementation, and write RESULTS.md.

    python benchmarks/run.py [--threads 2] [--repeats 5] [--quick]

With --quick it passes through all of the code in seconds and prints numbers that mean nothing.
Contestants take turns; absolute times are those of the machine at that moment, ratios are what to compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import parts
import torch
import valuation
import whole_runs

RACE = "| round | plain | fedslot | times faster |"
WHOLE = "Rounds of the contestants in turns, each in its own run, at the scenario's own noise."
ERRORS = "Rounds drawn from whole runs; errors are root mean squares over UEs against a long reference."


def table(header: str, *rows: str) -> list[str]:
    """Return the lines of a table."""
    return [header, "|---" * (header.count("|") - 1) + "|", *rows]


def report(count: int, repeats: int, quick: bool = False) -> list[str]:
    """Measure everything; the lines of RESULTS.md."""
    quickstart, fedavg, greedy, _, cifar = whole_runs.settings(quick)
    few = 1 if quick else max(2, repeats // 2)
    middle, early = (2, 2) if quick else (parts.ROUND, 4)
    fleets = (20,) if quick else (200, 1_000, 100_000, 1_000_000, 10_000_000)
    tables: dict[str, Callable[[], list[str]]] = {
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
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {date.today()}, {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, PyTorch {torch.__version__.split('+')[0]}, "
        f"{count} threads for both sides.",
        "What was tried is in [NOTES.md](NOTES.md).",
        "",
    ]
    for title, measure in tables.items():
        began = time.perf_counter()
        lines += [f"## {title}", "", *measure(), ""]
        print(f"{title}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return lines


def main() -> None:
    """Measure, and write the file."""
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="all of the code on small settings; writes no file")
    chosen = options.parse_args()
    lines = report(chosen.threads, 1 if chosen.quick else chosen.repeats, chosen.quick)
    if chosen.quick:
        print("\n".join(lines))
        return
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
