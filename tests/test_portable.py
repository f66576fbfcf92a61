"""Results of a seed that are the same on every processor: fleet, contention, grants that do not go by value, and costs.

`make test-portable` and `make test-long` run this file, and others that compute, under profiles of `tests/profiles`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fedslot import Grant, Scenario
from fedslot.fleet import Fleet
from fedslot.rounds.simulation import Simulation
from fedslot.strategies.fedavg import FedAvg

PROFILES = Path(__file__).parent / "profiles"
CPU = Path("/proc/cpuinfo")
AVX2 = CPU.is_file() and "avx2" in CPU.read_text()
FRAME = ["pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum", "slots_spent"]
RECEIVED = ["pulled", "pull_slots", "pushed", "push_slots", "collided", "wasted", "slots"]
RECEIVED += ["idle_slots", "collided_slots", "overhead", "open_slots"]
FIXED_FRAMES = [
    *("fedavg", "greedy-shap", "push-pull", "only-pull", "centralized", "round-robin"),
    *("ucb", "s-fedavg", "power-of-choice"),
]
LABELS = np.arange(3000) % 10
SAME = {
    "fleet": "3115cd601ab133f1",
    "contention": "028f1c2f0bbed956",
    "costs": "6aa8a47f2774337a",
}

PROBE = """
import json, numba, numpy, scipy.linalg, torch
from threadpoolctl import threadpool_info
scale = numba.njit(fastmath=True)(lambda x: (x * x).sum())
scale(numpy.ones(9))
code = "".join(scale.inspect_asm().values())
print(json.dumps({
    "torch": torch.backends.cpu.get_cpu_capability(),
    "numpy": numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", []),
    "blas": sorted({found["architecture"] for found in threadpool_info() if found["internal_api"] == "openblas"}),
    "numba": [name for name in ("xmm", "ymm", "zmm") if name in code],
}))
"""


class RandomPulls(FedAvg):
    """Pulls UEs at random, opens the other slots to contention, and keeps every receipt."""

    def __init__(self, cell):
        super().__init__(cell)
        self.receipts = []

    def schedule(self, state, round, rng):
        pull = rng.choice(self.cell.ues, size=self.cell.pull, replace=False)
        return Grant(pull, push=True)

    def observe(self, state, receipt, values):
        frame = {name: np.asarray(getattr(receipt, name)).tolist() for name in RECEIVED}
        self.receipts.append(frame)
        return state


def fleet():
    """Shares, epochs and noise of UEs, and the slots in which they are ready."""
    for preset in ("quickstart", "late-fleet"):
        for seed in range(10):
            for data in ({}, {"data.alpha": 0.05, "data.sizes": "equal"}, {"data.samples_per_ue": 30}):
                drawn = Fleet.draw(Scenario.load(preset, {"seed": seed, **data}), LABELS)
                yield [drawn.shares.share(ue).tolist() for ue in range(drawn.ues)]
                yield drawn.epochs.tolist(), drawn.noise.tolist()
                yield [] if drawn.computing is None else np.ceil(drawn.computing.times(0)).tolist()


def contention():
    """Who was pulled, received, in which slot, and who collided, when UEs are pulled at random."""
    for preset in ("quickstart", "late-fleet"):
        for channel in ("collision", "capture", "crdsa", "irsa"):
            for seed in range(3):
                fields = {"seed": seed, "push.channel": channel, "rounds": 6, "training.epochs": 1}
                fields["frame.order"] = False
                simulation = Simulation(Scenario.load(preset, fields))
                simulation.ps.strategy = RandomPulls(simulation.ps.strategy.cell)
                yield [[getattr(row, name) for name in FRAME] for row, _, _ in simulation.rounds()]
                yield simulation.ps.strategy.receipts


def costs():
    """Numbers of UEs and costs in every round of strategies whose frames do not follow values or noise."""
    for strategy in FIXED_FRAMES:
        for seed in range(2):
            fields = {"seed": seed, "strategy.name": strategy, "rounds": 16, "training.epochs": 1}
            simulation = Simulation(Scenario.load("quickstart", fields))
            yield [[getattr(row, name) for name in FRAME] for row, _, _ in simulation.rounds()]


@pytest.mark.parametrize("part", [fleet, contention, costs])
def test_one_seed_gives_the_same_on_every_processor(part):
    assert sha256(json.dumps(list(part())).encode()).hexdigest()[:16] == SAME[part.__name__]


@pytest.mark.skipif(not AVX2, reason="the profiles take features away from an x86-64 processor with AVX2")
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("avx2", {"torch": "AVX2", "numpy": ["X86_V3"], "blas": ["Haswell"], "numba": ["xmm", "ymm"]}),
        ("x86-64", {"torch": "DEFAULT", "numpy": [], "blas": ["Nehalem"], "numba": ["xmm"]}),
    ],
)
def test_a_profile_takes_effect(profile, expected):
    lines = (PROFILES / f"{profile}.env").read_text("utf-8").splitlines()
    chosen = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    done = subprocess.run([sys.executable, "-c", PROBE], env={**os.environ, **chosen}, capture_output=True, check=True)
    assert json.loads(done.stdout) == expected
