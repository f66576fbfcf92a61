"""Asynchronous and synchronous devices on this machine: accuracy against time, with some of them killed.

    python benchmarks/mqtt_asynchronous.py --seconds 150 --training 5

runs a broker, a parameter server and twenty device processes, once for each mode. Training takes each UE a time of its
own (Gamma with shape 2): on digits it is done in milliseconds, and the process sleeps for the rest. In synchronous mode
frames wait in the downlink slot, for the UE of median time or for all; otherwise everything is the same. Four devices
are killed (SIGKILL) after a third of the time, and started again ten seconds later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mqtt_load import mosquitto

import fedslot
from fedslot.deployment.mqtt import Broker, Update, fetch_scenario, scenario_devices

SLOT, DOWNLINK, SLOTS = 0.1, 0.3, 6
KILLED, AWAY = 4, 10.0  # devices, and seconds until they are back
COLUMNS = ("mode", "frame [s]", "frames", "updates", "age", "wasted", "late", "reached", "at the half", "at the end")


def main() -> None:
    """Measure and print a table, or be a device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ues", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=150.0, help="of each mode")
    parser.add_argument("--training", type=float, default=5.0, help="mean seconds of a training")
    parser.add_argument("--goal", type=float, default=0.85, help="accuracy whose time is measured")
    parser.add_argument("--device", nargs=3, metavar=("UE", "SECONDS", "URL"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.device:
        return be_device(int(asked.device[0]), float(asked.device[1]), asked.device[2])
    times = np.random.default_rng(1).gamma(2.0, asked.training / 2, asked.ues)
    print(f"{asked.ues} devices; training takes {times.min():.1f}, {np.median(times):.1f}, {times.max():.1f} s")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    modes = {
        "asynchronous": DOWNLINK,
        "synchronous, waits for half": DOWNLINK + float(np.median(times)),
        "synchronous, waits for all": DOWNLINK + float(times.max()),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, downlink in modes.items():
            out = Path(folder) / name
            deploy(name.split(",")[0], times, downlink, asked.seconds, out)
            print("| " + " | ".join([name, *row(out, asked.goal)]) + " |", flush=True)


def row(out: Path, goal: float) -> list[str]:
    """Return what a deployment is measured by."""
    rounds, faults = fedslot.load(out).rounds, pd.read_csv(out / "faults.csv")
    clock, accuracy = rounds["seconds"].cumsum(), rounds["test_accuracy"]
    updates, reached = rounds["pulled"] + rounds["push_received"], clock[accuracy >= goal]
    age = (rounds["staleness"] * updates).sum() / max(1, updates.sum())
    half = accuracy[clock <= clock.iloc[-1] / 2]
    return [
        f"{rounds['seconds'].median():.2f}",
        str(len(rounds)),
        str(updates.sum()),
        f"{age:.1f}",
        f"{rounds['wasted'].sum() / max(1, (rounds['wasted'] + rounds['pulled']).sum()):.2f}",
        str((faults["reason"] == "late").sum()),
        f"{reached.iloc[0]:.0f} s" if len(reached) else "never",
        f"{half.iloc[-1]:.3f}" if len(half) else "-",
        f"{accuracy.iloc[-3:].mean():.3f}",
    ]


def deploy(mode: str, times: Any, downlink: float, seconds: float, out: Path) -> None:
    """Run the scenario with free devices for a time, and kill some of them meanwhile."""
    rounds = round(seconds / (downlink + (SLOTS + 0.5) * SLOT))
    fields = {
        **{"mode": mode, "rounds": rounds, "data.ues": len(times), "frame.slots": SLOTS, "frame.pull": SLOTS // 2},
        **{"push.contenders": SLOTS // 2, "strategy.name": "merit-push", "aggregation.name": "filtered"},
    }
    overrides = [word for key, value in fields.items() for word in ("-o", f"{key}={value}")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack, mosquitto() as url:

        def start(*words: str) -> subprocess.Popen[bytes]:
            quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
            return stack.enter_context(subprocess.Popen([sys.executable, *words], **quiet))

        def device(ue: int) -> subprocess.Popen[bytes]:
            return start(__file__, "--device", str(ue), str(times[ue]), url)

        lengths = ["--slot-seconds", str(SLOT), "--downlink-seconds", str(downlink), "--wait", "300"]
        serve = ["serve", "quickstart", *overrides, "--free", "--broker", url, "--out", str(out), *lengths]
        server = start("-m", "fedslot", *serve)
        devices = [device(ue) for ue in range(len(times))]
        while not ((out / "rounds.csv").is_file() and len(fedslot.load(out).rounds)) and server.poll() is None:
            time.sleep(0.5)
        time.sleep(seconds / 3)
        for ue in range(KILLED):
            devices[ue].kill()
        time.sleep(AWAY)
        devices[:KILLED] = [device(ue) for ue in range(KILLED)]
        server.wait()
        for process in devices:
            process.kill()  # those that came too late for the end would wait for the next training


def be_device(ue: int, seconds: float, url: str) -> None:
    """Train as a UE of the scenario does, in a given time."""
    broker = Broker(url)
    scenario = fetch_scenario(broker, "cell", 300.0)
    (device,) = scenario_devices(scenario, [ue], broker)
    quick = device.train

    def slow(model: Any, round: int) -> Update:
        began = time.monotonic()
        update = quick(model, round)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return update

    device.train = slow
    device.run(300.0)


if __name__ == "__main__":
    main()
