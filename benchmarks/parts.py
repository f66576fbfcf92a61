"""Single parts, measured in turns: local training, coalition utilities, orchestration, growth, access, start-up."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plain
import torch
from whole_runs import Setting

from fedslot.access.channels import Collision
from fedslot.messages import UEs
from fedslot.rounds.local_training import LocalTraining, Trained, Training
from fedslot.rounds.round import Snapshot
from fedslot.rounds.simulation import Simulation
from fedslot.runs.execution import run
from fedslot.support.threads import Threads
from fedslot.valuation.game import coalition_weights

Works = dict[str, Callable[[], object]]
ROUND = 50  # from which single parts are taken: in the middle of a run, at the scenario's own noise


def race(repeats: int, works: Works, count: int = 1) -> dict[str, float]:
    """Return the median seconds of each, taken in turns; each runs once more before it is timed, to fill the caches.

    count: threads that PyTorch gives to the plain way.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            torch.set_num_threads(count if name == "plain" else 1)
            work()
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def middle(setting: Setting, threads: Threads, rounds: int) -> tuple[Simulation, Snapshot, UEs]:
    """Run a setting up to a round in its middle; also the UEs that the next round pulls."""
    simulation = Simulation(setting.scenario(**{"rounds": rounds}), threads=threads)
    *_, (_, now, _) = simulation.rounds()
    return simulation, now, simulation.ps.schedule(now).pull


def training(setting: Setting, repeats: int, count: int, rounds: int = ROUND) -> str:
    """Local training of one round, by engine."""
    with Threads(count) as threads:
        simulation, now, received = middle(setting, threads, rounds)
        usual = plain.PlainTraining(simulation.local)
        works: Works = {
            "plain": lambda: usual(now.model, received, now.round),
            "fedslot": lambda: simulation.train(now.model, received, now.round),
        }
        taken = race(repeats, works, count)
    return (
        f"| {setting.name}, round {now.round}: {len(received)} UEs | {1e3 * taken['plain']:.0f} ms "
        f"| {1e3 * taken['fedslot']:.0f} ms | **{taken['plain'] / taken['fedslot']:.1f}** |"
    )


def utilities(setting: Setting, repeats: int, count: int, number: int, rounds: int = ROUND) -> str:
    """Utilities of random coalitions, first layers included; the plain way does some of them, each taking the same."""
    with Threads(count) as threads:
        simulation, now, received = middle(setting, threads, rounds)
        trained = simulation.train(now.model, received, now.round)
        models = torch.cat([now.model.unsqueeze(0), trained.models])
        members = np.random.default_rng(0).random((number, len(received))) < 0.5
        weights = torch.from_numpy(coalition_weights(members, trained.sizes)).to(models)
        evaluator, few = simulation.held_out.validation, 4 if simulation.model.convolves else 20
        x = evaluator.x.contiguous()
        works: Works = {
            "plain": lambda: plain.utilities(simulation.model, models, weights[:few], x, evaluator.y),
            "fedslot": lambda: evaluator.averages(models)(weights),
        }
        taken = race(repeats, works, count)
    usual, ours = taken["plain"] / few, taken["fedslot"] / number
    return (
        f"| {setting.name}, round {now.round}: {number} coalitions of {len(received)}, {len(x)} samples "
        f"| {1e3 * usual:.2f} ms | {1e3 * ours:.2f} ms | **{usual / ours:.1f}** |"
    )


def growth(fleets: tuple[int, ...], rounds: int) -> list[str]:
    """Seconds per round and memory by number of UEs, each in a process of its own for its memory."""
    lines, first = [], 0.0
    for ues in fleets:
        words = [sys.executable, __file__, str(ues), str(rounds)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, done.stdout.split())
        first = first or seconds
        lines.append(f"| {ues:,} | {1e3 * seconds:.0f} ms | {seconds / first:.2f} | {megabytes:.0f} MB |")
    return lines


def one_fleet(ues: int, rounds: int) -> None:
    """Print the median seconds of a push-pull round after warm-up, checkpoints included, and the process's memory."""
    overrides = {"data.ues": ues, "data.samples_per_ue": 300, "strategy.warmup": 2}
    with tempfile.TemporaryDirectory() as folder:
        result = run(Setting("paper", overrides, rounds=rounds).scenario(), Path(folder) / "run")
    # ru_maxrss would carry over the peak of the process that started this one
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(statistics.median(result.rounds["seconds"].iloc[3:]), int(peak) / 1024)


def orchestration(repeats: int) -> str:
    """A round without training and valuation: scheduling, access, averaging, evaluation, files."""
    overrides = {"data.ues": 200, "frame.slots": 20, "frame.pull": 10, "push.contenders": 10, "strategy.name": "fedavg"}
    scenario = Setting("quickstart", overrides, rounds=60).scenario()

    def untrained(local: LocalTraining) -> Training:
        sizes = local.fleet.sizes
        return lambda start, received, round: Trained(start.repeat(len(received), 1), received, sizes[received])

    def once() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(scenario, Path(folder) / "run", distribute=untrained)

    taken = race(repeats, {"fedslot": once})["fedslot"]
    return f"| 200 UEs, 20 slots | {1e3 * taken / scenario.rounds:.1f} ms |"


def access(repeats: int, most: int) -> list[str]:
    """Playing frames, against drawing the random numbers that they need."""
    channel, lines = Collision(), []
    for frames, contenders, slots in ((1, most, most), (most // 10, 10, 20)):
        earliest = np.ones((frames, contenders), dtype=np.int64)
        works: Works = {
            "draw": lambda shape=earliest.shape: np.random.default_rng(0).random(shape),
            "play": lambda e=earliest, s=slots: channel.play(e, s, np.random.default_rng(0)),
        }
        taken = race(repeats, works)
        lines.append(
            f"| {frames:,} frame{'s' * (frames > 1)}, {contenders:,} contenders, {slots:,} slots "
            f"| {1e3 * taken['draw']:.0f} ms | {1e3 * taken['play']:.0f} ms | {taken['play'] / taken['draw']:.1f} |"
        )
    return lines


def startup(repeats: int) -> str:
    """Time to `fedslot --help`, against importing PyTorch."""

    def python(*words: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *words], capture_output=True, check=True)

    taken = race(repeats, {"torch": python("-c", "import torch"), "help": python("-m", "fedslot", "--help")})
    return f"| {taken['torch']:.2f} s | {taken['help']:.2f} s | **{taken['help'] / taken['torch']:.2f}** |"


if __name__ == "__main__":
    one_fleet(*map(int, sys.argv[1:]))
