"""Whole runs of presets, round by round in turns with the plain implementation.

Every setting is measured in a process of its own with an empty cache of compiled code, so that totals contain all that
a user waits for: compiling, UEs that train for the first time, rounds that are harder to value than others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plain
import torch

from fedslot.data import cache
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.support.threads import Threads

DEFAULT = Scenario().valuation.name


@dataclass(frozen=True)
class Setting:
    """One line of the table: a preset with overrides, and how many rounds of it are measured."""

    preset: str
    overrides: Mapping[str, Any]
    rounds: int = 100

    @property
    def name(self) -> str:
        scenario = self.scenario()
        dataset = scenario.data.dataset
        where = "" if dataset == Scenario.load(self.preset).data.dataset else f" on {dataset}"
        return f"`{self.preset}`{where}, {scenario.strategy.name}"

    def scenario(self, **changes: Any) -> Scenario:
        """The scenario, on digits where its own data are not in the cache."""
        fields = {"rounds": self.rounds, **self.overrides, **changes}
        dataset = Scenario.load(self.preset).data.dataset
        if dataset != "digits" and cache.state(dataset) != "cached":
            fields |= {"data.dataset": "digits", "valuation.samples": 200}
        return Scenario.load(self.preset, fields)


SETTINGS = (
    Setting("quickstart", {}),
    Setting("paper", {"strategy.name": "fedavg"}),
    Setting("paper", {"strategy.name": "greedy-shap"}),
    Setting("paper", {"strategy.name": "push-pull"}),
    Setting("paper-cifar10", {"strategy.name": "push-pull", "strategy.warmup": 2}, rounds=6),
)

SMALL = {"data.dataset": "digits", "data.ues": 12, "data.samples_per_ue": 20, "valuation.samples": 50}
SMALL |= {"training.epochs": 1, "frame.slots": 4, "frame.pull": 2, "push.contenders": 2, "strategy.warmup": 1}


def settings(quick: bool) -> tuple[Setting, ...]:
    """All settings, or small ones of two rounds that pass through the same code."""
    return tuple(Setting(s.preset, {**s.overrides, **SMALL}, rounds=2) for s in SETTINGS) if quick else SETTINGS


def contestants(setting: Setting, threads: Threads) -> dict[str, Simulation]:
    """The plain run, ours with the same valuation, and ours with the default valuation where values are needed."""
    scenario = setting.scenario(**{"valuation.name": "gtg"})
    runs = {"plain": plain.simulation(scenario), "gtg": Simulation(scenario, threads=threads)}
    if runs["gtg"].ps.strategy.needs_values:
        runs[DEFAULT] = Simulation(setting.scenario(**{"valuation.name": DEFAULT}), threads=threads)
    return runs


def compiling(setting: Setting, threads: Threads) -> float:
    """Return the seconds by which the first round is longer in a process that has nothing compiled yet."""
    seconds = []
    for _ in range(2):
        simulation = Simulation(setting.scenario(**{"valuation.name": DEFAULT}), threads=threads)
        began = time.perf_counter()
        next(simulation.rounds())
        seconds.append(time.perf_counter() - began)
    return max(0.0, seconds[0] - seconds[1])


def measure(setting: Setting, count: int) -> tuple[float, dict[str, list[float]]]:
    """Return the seconds of compiling, and those of every round of each contestant. count: threads of both sides."""
    with Threads(count) as threads:
        once = compiling(setting, threads)
        runs = {name: simulation.rounds() for name, simulation in contestants(setting, threads).items()}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(setting.rounds):
            for name, rounds in runs.items():
                torch.set_num_threads(count if name == "plain" else 1)  # ours has threads of its own
                began = time.perf_counter()
                next(rounds)
                seconds[name].append(time.perf_counter() - began)
    return once, seconds


def table(count: int, quick: bool = False) -> list[str]:
    """Measure all settings, or a small one; the lines of the table."""
    lines = [
        "| run | rounds | implementation, valuation | total | per round: mean | slowest but the first | times faster "
        "| compiling, once per machine | times faster with it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, setting in enumerate(settings(quick)[: 1 if quick else None]):
        with tempfile.TemporaryDirectory() as compiled:
            done = subprocess.run(
                [sys.executable, __file__, "--setting", str(number), "--threads", str(count), *["--quick"] * quick],
                env={**os.environ, **({} if quick else {"NUMBA_CACHE_DIR": compiled})},
                capture_output=True,
                text=True,
                check=True,
            )
        once, seconds = json.loads(done.stdout)
        for name, taken in seconds.items():
            who = "plain, `gtg`" if name == "plain" else f"fedslot, `{name}`"
            if len(seconds) == 2:
                who = who.split(",")[0]  # no updates are valued
            total, usual, extra = sum(taken), sum(seconds["plain"]), 0.0 if name == "plain" else once
            lines.append(
                f"| {setting.name} | {setting.rounds} | {who} | {total:.1f} s | {total / len(taken):.3f} s | "
                f"{max(taken[1:]):.3f} s | **{usual / total:.1f}** | {extra:.1f} s | {usual / (total + extra):.1f} |"
            )
        print(f"{setting.name}: {sum(map(sum, seconds.values())):.0f} s", file=sys.stderr)
    return lines


def main() -> None:
    """Measure one setting; the seconds of its rounds as JSON."""
    options = argparse.ArgumentParser()
    options.add_argument("--setting", type=int, required=True)
    options.add_argument("--threads", type=int, required=True)
    options.add_argument("--quick", action="store_true")
    chosen = options.parse_args()
    print(json.dumps(measure(settings(chosen.quick)[chosen.setting], chosen.threads)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
