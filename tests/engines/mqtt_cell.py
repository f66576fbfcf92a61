"""A broker, a parameter server and devices for tests; the broker is a real mosquitto on the loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from loopback import free_port, listens

import fedslot
from fedslot import Scenario
from fedslot.deployment.mqtt import Broker, Device, MqttServer, Timing, scenario_devices
from fedslot.deployment.server import ParameterServer
from fedslot.rounds.simulation import Simulation

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
needs_mosquitto = pytest.mark.skipif(
    PROGRAM is None, reason="mosquitto is missing; install it with: apt-get install mosquitto (as root)"
)
# a device that is late is not received, as it should be: where the machine was too busy, the test gets longer frames
over_mqtt = [needs_mosquitto, pytest.mark.flaky(reruns=2)]
WAIT = 240.0  # seconds that anything may take on a busy machine
EXACT = ["slots", "pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum", "slots_spent"]
EXACT += ["staleness"]
# lengths that leave a busy machine time; a frame whose updates are all there is closed before its end
TIMING = Timing(slot=0.05, downlink=1.5, tolerance=5.0)

SMALL = {
    "rounds": 4,
    "data.ues": 6,
    "frame.slots": 4,
    "frame.pull": 2,
    "push.contenders": 3,
    "strategy.warmup": 2,
    "training.epochs": 1,
    "valuation.name": "exact",
}

OVERRIDES = [word for key, value in SMALL.items() for word in ("-o", f"{key}={value}")]


def command(
    start: Callable[..., subprocess.Popen[Any]],
    log: Path,
    *words: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[Any]:
    """Start a command of fedslot."""
    with log.open("ab") as file:
        own = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        return start(
            sys.executable, "-m", "fedslot", *words, stdout=file, stderr=subprocess.STDOUT, env=own, cwd=folder
        )


def lengths(timing: Timing) -> list[str]:
    """Return the options that give a timing."""
    named = {"slot-seconds": timing.slot, "downlink-seconds": timing.downlink, "tolerance": timing.tolerance}
    return [f"--{name}={seconds}" for name, seconds in named.items()]


def small(**changes: object) -> Scenario:
    return Scenario.load("quickstart", {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})


class Mosquitto:
    """A broker that can be killed and started again at the same port."""

    def __init__(self, start: Callable[..., subprocess.Popen[Any]], folder: Path, *settings: str) -> None:
        folder.mkdir(exist_ok=True)
        self._start, self.port, self._file = start, free_port(), folder / "mosquitto.conf"
        own = settings or ("allow_anonymous true",)
        lines = [f"listener {self.port} 127.0.0.1", "set_tcp_nodelay true", "user root", *own]
        self._file.write_text("\n".join(lines) + "\n")
        self.start()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert PROGRAM is not None
        with self._file.with_suffix(".log").open("ab") as log:
            self.process = self._start(PROGRAM, "-c", str(self._file), stdout=log, stderr=log)
        until(lambda: listens(self.port) or self.process.poll() is not None)
        assert self.process.poll() is None, self._file

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def until(condition: Callable[[], object], seconds: float = WAIT) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def make_server(scenario: Scenario, url: str | Broker, timing: Timing = TIMING, **options: Any) -> MqttServer:
    """Make a parameter server; options are those of `ParameterServer` and of `MqttServer`."""
    simulation = Simulation(scenario)
    own = {key: options.pop(key) for key in ("wait", "cell", "sign_key") if key in options}
    server = ParameterServer(scenario, simulation.model, simulation.held_out, unasked=True, **options)
    broker = Broker(url) if isinstance(url, str) else url
    return MqttServer(server, broker, timing, **{"wait": WAIT, **own})


def as_simulated(folder: Path, scenario: Scenario) -> None:
    """Check that a deployment gave what the simulator gives."""
    simulated, deployed = fedslot.run(scenario), fedslot.load(folder)
    pd.testing.assert_frame_equal(deployed.rounds[EXACT], simulated.rounds[EXACT])
    events = ["round", "slot", "event", "ue", "staleness"]
    frames = [result.frames[events] for result in (deployed, simulated)]
    if scenario.is_asynchronous:  # of those that say nothing, the PS does not know who was barred and who trains
        frames = [table[table["event"] != "barred"].reset_index(drop=True) for table in frames]
    pd.testing.assert_frame_equal(*frames)
    losses = ["test_loss", "val_loss"]
    np.testing.assert_allclose(deployed.rounds[losses], simulated.rounds[losses], rtol=1e-3)
    np.testing.assert_allclose(deployed.model, simulated.model, rtol=1e-3, atol=1e-4)


@contextmanager
def devices_of(
    scenario: Scenario, url: str, ues: Iterable[int] | None = None, **options: Any
) -> Iterator[list[Device]]:
    """Run devices in this process, each with a connection of its own."""
    devices = scenario_devices(scenario, range(scenario.data.ues) if ues is None else ues, Broker(url), **options)
    for device in devices:
        device.start(WAIT)
    try:
        yield devices
    finally:
        for device in devices:
            device.stop()


@contextmanager
def running(server: MqttServer) -> Iterator[list[BaseException]]:
    """Run a parameter server in a thread, and wait for its end; the list gets what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield raised
    thread.join(WAIT)
    assert not thread.is_alive()
