"""Measure fedslot against the usual way, side by side, and write RESULTS.md.

    python benchmarks/run.py [--repeats 7] [--threads 1] [--only training,growth]

Contestants take turns within one process; figures are medians and ratios of medians. Absolute times are those of the
machine at that moment, ratios are what to compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import plain
import torch

from fedslot.access.channels import Collision
from fedslot.data import cache
from fedslot.learning.aggregation import coalition_weights
from fedslot.learning.jobs import Job
from fedslot.learning.training import Trainer
from fedslot.runs import run
from fedslot.scenario import Scenario
from fedslot.simulation import Simulation
from fedslot.threads import threads
from fedslot.valuation import GTG, Game, Geometry, Kriging, exact

UES = 20
Lines = list[str]


Works = dict[str, Callable[[], object]]


def race(repeats: int, usual: Works, ours: Works | None = None, count: int = 1) -> dict[str, float]:
    """Median seconds of each, taken in turns; who takes a turn runs once before, to find its own data in the caches.

    count: threads, PyTorch's own for the usual way, those of a run of fedslot for ours.
    """
    contestants = usual | (ours or {})
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, work in contestants.items():
            torch.set_num_threads(count)
            with nullcontext() if name in usual else threads(count):
                work()
                began = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def workload(preset: str) -> Simulation:
    """The paper's cell, on digits where its data are not at hand."""
    wanted = Scenario.load(preset).data.dataset
    at_hand = cache.state(wanted) == "cached"
    return Simulation(Scenario.load(preset, {} if at_hand else {"data.dataset": "digits"}))


def jobs_of(simulation: Simulation, ues: int = UES) -> list[Job]:
    """The local training of one round."""
    chosen = np.random.default_rng(0).choice(simulation.fleet.ues, ues, replace=False)
    fleet = simulation.fleet
    return [Job(fleet.shares.share(ue), int(fleet.epochs[ue]), np.random.default_rng(ue)) for ue in chosen]


def training(preset: str, repeats: int, count: int) -> Lines:
    simulation = workload(preset)
    model, trainer = simulation.model, simulation.trainer
    contiguous = (trainer.x.contiguous(), trainer.y)
    jobs = jobs_of(simulation)
    samples = sum(len(job.share) * job.epochs for job in jobs)

    def ours() -> torch.Tensor:
        return simulation.trainer(model.initial, jobs_of(simulation))

    def usual() -> torch.Tensor:
        return plain.train(model, model.initial, jobs_of(simulation), *contiguous, trainer.recipe)

    def first_time() -> torch.Tensor:
        fresh = Trainer(model, trainer.x, trainer.y, trainer.recipe)
        return fresh(model.initial, jobs_of(simulation))

    square = torch.rand(1024, 1024)
    torch.testing.assert_close(ours(), usual(), rtol=1e-3, atol=1e-4)
    references = {"plain": usual, "sgemm": lambda: square @ square}
    taken = race(repeats, references, {"fedslot": ours, "first": first_time}, count)
    line = f"| {preset}: {UES} UEs, {samples} samples | {1e3 * taken['plain']:.0f} ms "
    line += f"| {1e3 * taken['fedslot']:.0f} ms | {1e3 * taken['first']:.0f} ms "
    line += f"| **{taken['plain'] / taken['fedslot']:.1f}**, {taken['plain'] / taken['first']:.1f} |"
    if not model.convolves:
        shapes = [shape for shape in model.shapes.values() if len(shape) == 2]
        # forward, gradient of the weights, and of the inputs for all layers but the first
        work = samples * 2 * (3 * sum(s.numel() for s in shapes) - shapes[0].numel())
        rate, peak = work / taken["fedslot"], 2 * 1024**3 / taken["sgemm"]
        line += f" {rate / 1e9:.0f} of {peak / 1e9:.0f} GF/s, {rate / peak:.0%} |"
    else:
        line += " |"
    return [line]


def valuation(preset: str, repeats: int, count: int, number: int) -> Lines:
    """Utilities of so many coalitions, first layers included; the plain way does some of them, each taking the same."""
    simulation = workload(preset)
    model, jury = simulation.model, simulation.judges.jury
    updates = simulation.trainer(model.initial, jobs_of(simulation))
    rows = torch.cat([model.initial.unsqueeze(0), updates])
    sizes = np.array([len(job.share) for job in jobs_of(simulation)])
    members = np.random.default_rng(0).random((number, UES)) < 0.5
    weights = torch.from_numpy(coalition_weights(members, sizes)).to(rows)
    few = 4 if model.convolves else 20

    def ours() -> torch.Tensor:
        return -jury.mixtures(rows)(weights)[0]

    def usual() -> torch.Tensor:
        return plain.utilities(model, rows, weights[:few], jury.x.contiguous(), jury.y)

    torch.testing.assert_close(ours()[:few].float(), usual(), rtol=1e-4, atol=1e-5)
    taken = race(repeats, {"plain": usual}, {"fedslot": ours}, count)
    each = taken["plain"] / few, taken["fedslot"] / number
    line = f"| {preset}: {number} coalitions of {UES}, {len(jury.y)} samples | {1e3 * each[0]:.2f} ms "
    return [line + f"| {1e3 * each[1]:.2f} ms | **{each[0] / each[1]:.1f}** |"]


def fewer_utilities(repeats: int) -> Lines:
    lines = []
    for players in (10, 12):
        scenario = workload("paper").scenario.replace(
            {"frame.slots": players, "frame.pull": 0, "push.contenders": 0, "strategy.name": "fedavg", "rounds": 26}
        )
        samples = min(1000, len(workload("paper").judges.validation.y))
        simulation = Simulation(scenario.replace({"valuation.samples": samples}))
        everyone = (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1
        found: dict[str, list[tuple[float, float]]] = {"gtg": [], "kriging": [], "a quarter": []}
        now = simulation.start()
        for _, after in simulation.rounds():
            if now.round in (0, 8, 16, 25):
                pull = simulation.strategy.schedule(now.state, now.round, simulation._rng("schedule", now.round)).pull
                sizes = simulation.fleet.sizes[pull]
                rows = torch.cat([now.model.unsqueeze(0), simulation.train(now.model, pull, now.round)])
                weights = torch.from_numpy(coalition_weights(everyone, sizes)).to(rows)
                table = -simulation.judges.jury.mixtures(rows)(weights)[0].numpy()
                moves = (rows - rows[0]).double()
                geometry = Geometry(sizes, (moves @ moves.T).numpy()[1:, 1:])

                def game(table: np.ndarray = table, players: int = players, geometry: Geometry = geometry) -> Game:
                    return Game(players, lambda m: table[m @ (1 << np.arange(players))], geometry)

                truth = exact(game()).values
                for seed in range(repeats):
                    rng = np.random.default_rng(seed)
                    valuations = {"gtg": GTG()(game(), rng), "kriging": Kriging()(game(), rng)}
                    valuations["a quarter"] = Kriging(utilities_per_ue=3)(game(), rng)
                    for name, value in valuations.items():
                        found[name].append((value.utilities, np.mean((value.values - truth) ** 2) / truth.var()))
            now = after
        (theirs, their_error), *ours = (np.mean(found[name], axis=0) for name in found)
        line = f"| {players} | {theirs:.0f} | {their_error**0.5:.2f} |"
        for utilities, error in ours:
            line += f" {utilities:.0f} | {error**0.5:.2f} | **{utilities / theirs:.2f}** of the utilities, "
            line += f"{(error / their_error) ** 0.5:.2f} of the error |"
        lines.append(line)
    return lines


def greedy_round(repeats: int, count: int) -> Lines:
    """A whole GreedyShap round: local training and valuation of 20 UEs, and how far off the values are.

    The truth is estimated by another method than either, `cyclic`, from many utilities; errors are those of several
    rounds with other UEs.
    """
    simulation = workload("paper")
    model, trainer, jury = simulation.model, simulation.trainer, simulation.judges.jury
    start = model.initial

    def usual(received: np.ndarray) -> np.ndarray:
        jobs, sizes = simulation._jobs(received, 0), simulation.fleet.sizes[received]
        rows = torch.cat([start.unsqueeze(0), plain.train(model, start, jobs, trainer.x, trainer.y, trainer.recipe)])

        def utility(members: np.ndarray) -> np.ndarray:
            weights = torch.from_numpy(coalition_weights(members, sizes)).to(rows)
            return plain.utilities(model, rows, weights, jury.x, jury.y).double().numpy()

        return GTG()(Game(UES, utility), np.random.default_rng(0)).values

    def ours(options: dict[str, object]) -> Callable[[np.ndarray], np.ndarray]:
        quiet = {"strategy.name": "greedy-shap", "fleet.noise": 0.0, "valuation.method": "kriging"}
        fast = Simulation(simulation.scenario.replace(quiet | options))

        def go(received: np.ndarray) -> np.ndarray:
            return fast._value(start, fast.train(start, received, 0), received, 0).values

        return go

    first, contestants = "plain, `gtg`", {"fedslot, `kriging`": ours({})}
    for some in (len(jury.y) // 2, 3 * len(jury.y) // 10):
        contestants[f"fedslot, `kriging` on {some} samples"] = ours({"valuation.samples": some})
    exhaustive = ours({"valuation.method": "cyclic", "valuation.max_utilities": 20_000, "valuation.tolerance": 0.01})
    rounds = [np.random.default_rng(seed).choice(simulation.fleet.ues, UES, replace=False) for seed in range(5)]
    quick = {name: partial(way, rounds[0]) for name, way in contestants.items()}
    taken = race(repeats, {first: partial(usual, rounds[0])}, quick, count)
    contestants = {first: usual} | contestants
    errors: dict[str, list[float]] = {name: [] for name in contestants}
    for received in rounds:
        truth = exhaustive(received)
        for name, way in contestants.items():
            errors[name].append(float(np.mean((way(received) - truth) ** 2) / truth.var()))
    return [
        f"| {name} | {1e3 * taken[name]:.0f} ms | {np.mean(errors[name]) ** 0.5:.2f} "
        f"| **{taken[first] / taken[name]:.1f}** |"
        for name in contestants
    ]


def orchestration(repeats: int, count: int) -> Lines:
    """What a round takes besides training, valuation and evaluation: UEs with one sample, a model with few weights."""
    overrides = {"data.ues": 200, "frame.slots": 20, "frame.pull": 10, "push.contenders": 10, "rounds": 60}
    overrides |= {"training.epochs": 1, "training.batches": 1, "fleet.noise": 0.0, "strategy.name": "push-pull"}
    scenario = Scenario.load("quickstart", overrides)
    per_round = []
    for _ in range(repeats):
        simulation = Simulation(scenario)
        spent = _time_inside(simulation, ["train", "_value", "_aggregate"])
        simulation.judges.test.evaluate = simulation.judges.validation.evaluate = lambda flat: (0.0, 0.0)  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as folder, threads(count):
            from fedslot.records import RunFolder
            from fedslot.runs import _in_folder

            began = time.perf_counter()
            _in_folder(simulation, RunFolder(Path(folder) / "run"), False, lambda round: None)
            per_round.append((time.perf_counter() - began - sum(spent)) / scenario.rounds)
    return [f"| 200 UEs, 20 slots | {1e3 * statistics.median(per_round):.2f} ms |"]


def _time_inside(simulation: Simulation, names: list[str]) -> list[float]:
    """Wrap methods so that the time they take is collected."""
    spent: list[float] = []

    def wrap(method: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                spent.append(time.perf_counter() - began)

        return timed

    for name in names:
        setattr(simulation, name, wrap(getattr(simulation, name)))
    return spent


def growth(repeats: int) -> Lines:
    """Each number of UEs in a process of its own, for its memory."""
    lines, first = [], None
    for ues in (200, 1_000, 100_000, 1_000_000):
        done = subprocess.run(
            [sys.executable, __file__, "--one-fleet", str(ues)], capture_output=True, text=True, check=True
        )
        seconds, megabytes = map(float, done.stdout.split())
        first = first or seconds
        lines.append(f"| {ues:,} | {1e3 * seconds:.0f} ms | {seconds / first:.2f} | {megabytes:.0f} MB |")
    return lines


def one_fleet(ues: int) -> None:
    """Median seconds of a push-pull round after warm-up, checkpoints included, and the memory of the process."""
    base = "paper" if cache.state("mnist") == "cached" else "quickstart"
    overrides = {"data.ues": ues, "data.samples_per_ue": 300, "rounds": 16, "strategy.warmup": 2}
    with tempfile.TemporaryDirectory() as folder:
        result = run(Scenario.load(base, overrides), Path(folder) / "run")
    # ru_maxrss would carry over the peak of the process that started this one
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(statistics.median(result.rounds["seconds"].iloc[3:]), int(peak) / 1024)


def access(repeats: int) -> Lines:
    channel, lines = Collision(), []
    for frames, contenders, slots in ((1, 1_000_000, 1_000_000), (100_000, 10, 20)):
        earliest = np.ones((frames, contenders), dtype=np.int64)
        taken = race(
            repeats,
            {
                "draw": lambda shape=earliest.shape: np.random.default_rng(0).random(shape),
                "play": lambda e=earliest, s=slots: channel.play(e, s, np.random.default_rng(0)),
            },
        )
        lines.append(
            f"| {frames:,} frame{'s' * (frames > 1)}, {contenders:,} contenders, {slots:,} slots "
            f"| {1e3 * taken['draw']:.0f} ms | {1e3 * taken['play']:.0f} ms | {taken['play'] / taken['draw']:.1f} |"
        )
    return lines


def startup(repeats: int) -> Lines:
    def python(*words: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *words], capture_output=True, check=True)

    taken = race(repeats, {"torch": python("-c", "import torch"), "help": python("-m", "fedslot", "--help")})
    return [f"| {taken['torch']:.2f} s | {taken['help']:.2f} s | **{taken['help'] / taken['torch']:.2f}** |"]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--one-fleet", type=int)
    chosen = options.parse_args()
    if chosen.one_fleet:
        return one_fleet(chosen.one_fleet)
    repeats, count = chosen.repeats, chosen.threads
    few = max(2, repeats // 2)
    tables: list[tuple[str, str, Callable[[], Lines]]] = [
        (
            "Local training of a round",
            "| workload | plain | fedslot | the UEs' first time | times faster | useful rate, share of sgemm |\n"
            "|---|---|---|---|---|---|",
            lambda: training("paper", repeats, count) + training("paper-cifar10", few, count),
        ),
        (
            "Utilities of coalitions, each",
            "| workload | plain | fedslot | times faster |\n|---|---|---|---|",
            lambda: (
                valuation("paper", few, count, 400)
                + valuation("paper", few, count, 4000)
                + valuation("paper-cifar10", 2, count, 60)
            ),
        ),
        (
            "Fewer utilities",
            "| UEs | `gtg` utilities | error | `kriging` utilities | error | | with a quarter of `gtg`'s | error | |\n"
            "|---|---|---|---|---|---|---|---|---|",
            lambda: fewer_utilities(few),
        ),
        (
            "A GreedyShap round",
            "| way | per round | error of values, of their spread | times faster |\n|---|---|---|---|",
            lambda: greedy_round(repeats, count),
        ),
        ("Orchestration", "| workload | per round |\n|---|---|", lambda: orchestration(few, count)),
        ("Growth", "| UEs | per round | of 200 UEs | memory |\n|---|---|---|---|", lambda: growth(repeats)),
        (
            "Access alone",
            "| workload | drawing the numbers | playing | ratio |\n|---|---|---|---|",
            lambda: access(few),
        ),
        ("Start-up", "| import torch | fedslot --help | ratio |\n|---|---|---|", lambda: startup(few)),
    ]
    text = [
        "# Benchmarks",
        "",
        f"By `make bench` on {os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()},",
        f"PyTorch {torch.__version__.split('+')[0]}, {count} threads for both sides. Medians of turns in one process.",
        "",
    ]
    for title, header, measure in tables:
        began = time.perf_counter()
        text += [f"## {title}", "", header, *measure(), ""]
        print(f"{title}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    notes = Path(__file__).with_name("NOTES.md")
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(text) + "\n" + notes.read_text("utf-8"), "utf-8")


if __name__ == "__main__":
    main()
