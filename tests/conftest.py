"""Shared by all tests: one torch thread, hypothesis without deadlines, processes that end, drawn scenarios."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from fedslot.strategies import STRATEGIES

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=20)
settings.load_profile("ci" if os.environ.get("CI") else "local")
torch.set_num_threads(1)

Start = Callable[..., subprocess.Popen[Any]]
"""Starts a process: start(*command, **options of Popen)."""


@contextmanager
def _processes() -> Iterator[Start]:
    """Start processes that can be interrupted; end them in the end, together with all that they started."""

    def start(*command: str, **options: Any) -> subprocess.Popen[Any]:
        # a child inherits an ignored SIGINT (as under nohup), but not a handler
        usual = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            process = subprocess.Popen(command, start_new_session=True, **options)
        finally:
            signal.signal(signal.SIGINT, usual)
        ending.enter_context(process)  # closes its pipes and waits for it
        ending.callback(_kill_group, process.pid)
        return process

    with ExitStack() as ending:
        yield start


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> Iterator[None]:
    """Let comparisons and sweeps start no processes by default: each would import PyTorch anew."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        yield


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that end with the test."""
    with _processes() as start:
        yield start


@pytest.fixture(scope="module")
def start_shared() -> Iterator[Start]:
    """Starts processes that end with the module."""
    with _processes() as start:
        yield start


@pytest.fixture
def fedslot_command(start: Start) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of fedslot as a process: fedslot_command(*words, cwd=folder)."""

    def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        pipe = subprocess.PIPE
        process = start(sys.executable, "-m", "fedslot", *words, cwd=cwd, stdout=pipe, stderr=pipe, text=True)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    return run


def _section(required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


def _mostly(good: st.SearchStrategy[Any], *bad: object) -> st.SearchStrategy[Any]:
    """A good value nearly always, else a bad one; a scenario has some thirty fields."""
    return st.integers(0, 49).flatmap(lambda n: st.sampled_from(bad) if n == 17 else good)


def _radios() -> st.SearchStrategy[dict[str, Any]]:
    laws = ["equal", "disc", {"name": "equal", "options": {"rate": 0.3}}, {"name": "disc", "options": {"target": 0.9}}]
    wrong = [
        "csv",
        "disk",
        {"name": "disc", "options": {"rates": [0.1]}},
        {"name": "csv", "options": {"path": "a.csv"}},
    ]
    return _section(
        {},
        {
            "rates": _mostly(st.sampled_from(laws), *wrong),
            "outage": _mostly(st.sampled_from([0.0, 0.2, 0.999]), 1.0, -0.1),
            "duty_cycle": _mostly(st.none() | st.sampled_from([1e-3, 0.3, 1.0]), 0.0, 1.5),
            "bits_per_slot": _mostly(st.none() | st.sampled_from([0.5, 1e4, 1e9]), 0.0, 1e99),
            "slot_seconds": _mostly(st.none() | st.just(0.5), 0.0),
            "send_joules": _mostly(st.none() | st.just(0.1), -1.0),
        },
    )


def _codecs() -> st.SearchStrategy[Any]:
    good = [None, "quantise", {"name": "quantise", "options": {"bits": 1}}]
    return _mostly(st.sampled_from(good), "quantize", {"options": {"bits": 0}})


def _small_scenarios() -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.floats(min_value=1e-3, max_value=1e3)
    computing = _section(
        {"slot": _mostly(st.sampled_from([0.001, 0.1, 1e6]), 0.0)},
        {"shape": numbers, "scale": numbers, "accuracy": _mostly(st.floats(0.01, 0.99), 1.0), "redraw": st.booleans()},
    )
    return _section(
        {
            "rounds": st.just(2),
            "data": _section(
                {"ues": _mostly(st.integers(9, 30) | st.integers(1, 30), 0, 1001, 2.5)},
                {
                    "alpha": _mostly(st.sampled_from([1e-300, 0.01, 1.0, 100.0, 1e300]), 0.0, -1, float("nan")),
                    "sizes": _mostly(st.sampled_from(["power-law", "equal"]), "big"),
                    "validation": _mostly(st.floats(0.01, 0.99), 0.0, 1.0, 1e-9),
                },
            ),
            "frame": _section(
                {
                    "slots": _mostly(st.integers(1, 8), 0, "8"),
                    "pull": _mostly(st.integers(0, 4) | st.integers(0, 8), -1, None, 9),
                },
                {},
            ),
            "push": _section(
                {"contenders": _mostly(st.integers(0, 5) | st.integers(0, 12) | st.just("ready"), -1, "all", 40)},
                {
                    "probability": _mostly(st.floats(0.01, 1) | st.just("auto"), 0, 1.5, "never"),
                    "channel": _mostly(st.sampled_from(["collision", "capture", "crdsa", "irsa"]), "ether", ".x:y"),
                    "channel_options": _mostly(st.just({}), {"name": 1}, {"degrees": 3}, {"threshold_db": 1e9}, []),
                },
            ),
            "training": _section(
                {"epochs": _mostly(st.integers(1, 2), 0, True)},
                {
                    "model": _mostly(st.sampled_from(["mlp", "cnn"]), "cmm", "math:pi", ".x:y", "zlib:crc32"),
                    "batches": _mostly(st.integers(1, 40), 0),
                    "lr": _mostly(st.sampled_from([1e-9, 0.05, 10.0, 1e6]), 0, 1e39, float("inf")),
                    "momentum": _mostly(st.floats(0, 0.99), 1.0),
                    "device": _mostly(st.just("cpu"), "meta", "gpu", ""),
                    "ps": _mostly(st.none(), "alone", "start", "join", "never"),
                    "epochs_by_strategy": _mostly(
                        st.dictionaries(st.sampled_from(["fedavg", "push-pull"]), st.integers(1, 2)), {"fedavg": 0}
                    ),
                },
            ),
        },
        {
            "seed": _mostly(st.integers(0, 2**70), -1, 0.5, "x"),
            "time_budget": _mostly(st.none() | st.integers(9, 30), 0, 1, "long"),
            "fleet": _section(
                {},
                {
                    "stragglers": _mostly(st.floats(0, 1), 1.1),
                    "noise": _mostly(st.sampled_from([0, 0.1, 1e5]), -0.1, 1e39),
                    "noise_order": _mostly(st.sampled_from(["shuffled", "index"]), "up"),
                    "computing": st.none() | computing,
                },
            ),
            "radio": _radios(),
            "compression": _codecs(),
            "broadcast_compression": _codecs(),
            "strategy": _section(
                {"name": _mostly(st.sampled_from(sorted(STRATEGIES)), "fedavq", "math:pi", "builtins:list")},
                {
                    "warmup": _mostly(st.none() | st.integers(0, 3), -1),
                    "memory": _mostly(st.floats(0, 0.99) | st.just("mean"), 1.0, "median"),
                    "share": _mostly(st.floats(0.01, 1), 0.0),
                    "options": _mostly(st.just({}), {"patience": 3}, {"when": object()}, {"x": float("nan")}, {1: 2}),
                },
            ),
            "valuation": _section(
                {},
                {
                    "method": _mostly(st.sampled_from(["kriging", "exact", "cyclic", "gtg", "banzhaf"]), "guess"),
                    "utility": st.sampled_from(["loss", "accuracy"]),
                    "samples": _mostly(st.none() | st.integers(1, 9), 0, 10**6),
                    "utilities_per_ue": _mostly(st.integers(3, 9), 2),
                    "max_utilities": _mostly(st.integers(2, 200), 1),
                    "permutations": _mostly(st.integers(1, 9), 0),
                },
            ),
            "unknown": st.integers(),
        },
    ).map(lambda fields: {name: value for name, value in fields.items() if name != "unknown" or value % 7 == 0})


@pytest.fixture(scope="session")
def scenario_fields() -> st.SearchStrategy[dict[str, Any]]:
    """Fields of small scenarios, possible ones and impossible ones."""
    return _small_scenarios()


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names without addresses: the workers of pytest-xdist must agree on them."""
    if " at 0x" in repr(val):
        return getattr(val, "__name__", type(val).__name__)
    return None
