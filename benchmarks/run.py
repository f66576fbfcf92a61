"""Measure fedslot against the plain implementation, and write RESULTS.md.

    python benchmarks/run.py [--threads 2] [--repeats 5]

Contestants take turns; absolute times are those of the machine at that moment, ratios are what to compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import parts
import torch
import valuation
import whole_runs
from whole_runs import SETTINGS

Lines = list[str]


def report(count: int, repeats: int) -> Lines:
    """Measure everything; the lines of RESULTS.md."""
    quickstart, fedavg, greedy, _, cifar = SETTINGS
    few = max(2, repeats // 2)
    tables: list[tuple[str, str, Callable[[], Lines]]] = [
        (
            "Whole runs",
            "Rounds of the contestants in turns, each in its own run, at the scenario's own noise.",
            lambda: whole_runs.table(count),
        ),
        (
            "Errors of values",
            "Rounds drawn from whole runs; errors are root mean squares over UEs against a long reference.",
            lambda: valuation.table(count),
        ),
        (
            "Local training of a round",
            "",
            lambda: [
                "| round | plain | fedslot | times faster |",
                "|---|---|---|---|",
                parts.training(fedavg, repeats, count),
                parts.training(quickstart, repeats, count),
                parts.training(cifar, few, count, rounds=4),
            ],
        ),
        (
            "Utilities of coalitions, each",
            "",
            lambda: [
                "| round | plain | fedslot | times faster |",
                "|---|---|---|---|",
                parts.utilities(greedy, few, count, 100),
                parts.utilities(greedy, few, count, 1000),
                parts.utilities(cifar, 2, count, 60, rounds=4),
            ],
        ),
        (
            "A round without training and valuation",
            "",
            lambda: ["| cell | per round |", "|---|---|", parts.orchestration(few)],
        ),
        (
            "Growth with the number of UEs",
            "",
            lambda: ["| UEs | per round | of 200 UEs | memory |", "|---|---|---|---|", *parts.growth()],
        ),
        (
            "Access alone",
            "",
            lambda: ["| frames | drawing the numbers | playing | ratio |", "|---|---|---|---|", *parts.access(few)],
        ),
        (
            "Start-up",
            "",
            lambda: ["| import torch | fedslot --help | ratio |", "|---|---|---|", parts.startup(few)],
        ),
    ]
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, "
        f"PyTorch {torch.__version__.split('+')[0]}, {count} threads for both sides.",
        "What was tried is in [NOTES.md](NOTES.md).",
        "",
    ]
    for title, text, measure in tables:
        began = time.perf_counter()
        lines += [f"## {title}", "", *([text, ""] if text else []), *measure(), ""]
        print(f"{title}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return lines


def main() -> None:
    """Measure, and write the file."""
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    lines = report(chosen.threads, chosen.repeats)
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
