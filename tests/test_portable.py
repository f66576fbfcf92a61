"""What one seed gives on every processor: fleet, contention, grants that do not go by value, and costs.

`make test-portable` runs this file, and other tests that compute, under the profiles in `tests/profiles`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fedslot import Grant, Scenario
from fedslot.fleet import Fleet
from fedslot.simulation import Simulation
from fedslot.strategies import STRATEGIES
from fedslot.strategies.fedavg import FedAvg

PROFILES = Path(__file__).parent / "profiles"
FRAME = ["pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum", "slots_spent"]
LABELS = np.arange(3000) % 10
SAME = {
    "fleet": "3115cd601ab133f1",
    "contention": "0a02d355591dde74",
    "costs": "61127aa797ed09ad",
}

PROBE = """
import json, numba, torch, scipy.linalg
from numpy._core._multiarray_umath import __cpu_features__
from threadpoolctl import threadpool_info
blas = {found["architecture"] for found in threadpool_info() if found["internal_api"] == "openblas"}
numpy = [name for name, there in __cpu_features__.items() if there]
square = numba.njit(fastmath=True)(lambda x: (x * x + x).sum())
square(__import__("numpy").ones(9))
code = "".join(square.inspect_asm().values())
print(json.dumps([torch.backends.cpu.get_cpu_capability(), sorted(blas), numpy, "ymm" in code, "zmm" in code]))
"""


class RandomPulls(FedAvg):
    """Pulls UEs at random, opens the other slots to contention, and keeps what was received."""

    def schedule(self, state, round, rng):
        self.frames = getattr(self, "frames", [])
        pull = rng.choice(self.cell.ues, size=self.cell.pull, replace=False)
        return Grant(pull, push=True, probability=self.cell.barring(len(pull)))

    def observe(self, state, receipt, values):
        self.frames.append({name: ues.tolist() for name, ues in vars(receipt).items()})
        return state


def fleet():
    """Shares, epochs and noise of UEs, and the slots in which they are ready."""
    for preset in ("quickstart", "late-fleet"):
        for seed in range(10):
            for data in ({}, {"data.alpha": 0.05, "data.sizes": "equal"}, {"data.samples_per_ue": 30}):
                drawn = Fleet.draw(Scenario.load(preset, {"seed": seed, **data}), LABELS)
                yield [drawn.shares.share(ue).tolist() for ue in range(drawn.ues)]
                yield drawn.epochs.tolist(), drawn.noise.tolist()
                yield [] if (ready := drawn.ready(0)) is None else np.ceil(ready).tolist()


def contention():
    """Who was pulled, received, in which slot, and who collided, when UEs are pulled at random."""
    for preset in ("quickstart", "late-fleet"):
        for channel in ("collision", "capture", "crdsa", "irsa"):
            for seed in range(3):
                fields = {"seed": seed, "push.channel": channel, "rounds": 6, "training.epochs": 1}
                simulation = Simulation(Scenario.load(preset, fields))
                simulation.strategy = RandomPulls(simulation.strategy.cell)
                yield [[getattr(row, name) for name in FRAME] for row, _ in simulation.rounds()]
                yield simulation.strategy.frames


def costs():
    """Numbers of UEs and costs in every round, whatever the strategy, if UEs are ready at once."""
    for strategy in STRATEGIES:
        for seed in range(2):
            fields = {"seed": seed, "strategy.name": strategy, "rounds": 16, "training.epochs": 1}
            simulation = Simulation(Scenario.load("quickstart", fields))
            yield [[getattr(row, name) for name in FRAME] for row, _ in simulation.rounds()]


@pytest.mark.parametrize("part", [fleet, contention, costs])
def test_one_seed_gives_the_same_on_every_processor(part):
    assert sha256(json.dumps(list(part())).encode()).hexdigest()[:16] == SAME[part.__name__]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the profiles are of x86-64 processors")
@pytest.mark.parametrize(
    ("profile", "expected"),
    [("avx2", ["AVX2", ["Haswell"], "X86_V3", True]), ("x86-64", ["DEFAULT", ["Nehalem"], "X86_V2", False])],
)
def test_a_profile_takes_effect(profile, expected):
    lines = (PROFILES / f"{profile}.env").read_text("utf-8").splitlines()
    chosen = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    done = subprocess.run([sys.executable, "-c", PROBE], env={**os.environ, **chosen}, capture_output=True, check=True)
    capability, blas, numpy, avx, avx512 = json.loads(done.stdout)
    newest = max(name for name in numpy if name.startswith("X86_V"))
    assert [capability, blas, newest, avx] == expected
    assert not avx512
