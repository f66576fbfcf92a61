"""Load test of the deployment over MQTT: 200 devices, frames of 20 slots, 50 rounds, slots as short as they may be.

    python benchmarks/mqtt_load.py --slots-ms 50,20,10,5

starts a broker, a parameter server and two processes of devices on this machine for each length of a slot, and prints
how many updates were sent, how many came late, how many devices that were pulled sent nothing because they were not
ready, and the time of a round beside the simulator's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd

import fedslot

COLUMNS = ("slot [ms]", "tolerance [ms]", "frame [s]", "round [s]", "updates", "late", "silent")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ues", type=int, default=200)
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2, help="that host the devices")
    parser.add_argument("--slots-ms", default="50,20,10", help="lengths of a slot to try, in milliseconds")
    parser.add_argument("--downlink", type=float, default=0.5, help="seconds for the model and the training")
    asked = parser.parse_args()
    fields = {
        "rounds": asked.rounds,
        "data.ues": asked.ues,
        "frame.slots": asked.slots,
        "frame.pull": asked.slots // 2,
        "push.contenders": asked.slots // 2,
    }
    simulated = fedslot.run(fedslot.Scenario.load("quickstart", fields))
    print(f"{asked.ues} devices in {asked.processes} processes, {asked.slots} slots, {asked.rounds} rounds")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"simulator: {1000 * simulated.rounds['seconds'].mean():.0f} ms a round")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for number, slot in enumerate(float(word) / 1000 for word in asked.slots_ms.split(",")):
            out = Path(folder) / str(number)
            deploy(fields, slot, asked.downlink, asked.processes, out)
            print("| " + " | ".join(row(out, slot, asked.downlink, asked.slots)) + " |", flush=True)


def row(out: Path, slot: float, downlink: float, slots: int) -> list[str]:
    """Return what a deployment is measured by."""
    rounds, faults = fedslot.load(out).rounds, pd.read_csv(out / "faults.csv")
    sent = rounds[["pulled", "wasted", "contenders"]].sum().sum()
    return [
        f"{1000 * slot:g}",
        f"{500 * slot:g}",
        f"{downlink + (slots + 0.5) * slot:.2f}",
        f"{rounds['seconds'].mean():.2f}",
        str(sent),
        *(str((faults["reason"] == reason).sum()) for reason in ("late", "silent")),
    ]


def deploy(fields: dict[str, object], slot: float, downlink: float, processes: int, out: Path) -> None:
    """Run the scenario with free devices, by the commands that a user gives."""
    ues, fedslot_command = int(str(fields["data.ues"])), [sys.executable, "-m", "fedslot"]
    overrides = [word for key, value in fields.items() for word in ("-o", f"{key}={value}")]
    each = -(-ues // processes)
    with ExitStack() as stack, mosquitto() as url:
        times = ["--slot-seconds", str(slot), "--downlink-seconds", str(downlink)]
        serve = ["serve", "quickstart", *overrides, "--free", "--broker", url, "--out", str(out), *times]
        hosts = [
            ["device", "--ues", f"{first}-{min(ues, first + each) - 1}", "--broker", url]
            for first in range(0, ues, each)
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [*fedslot_command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
                )
            )
            for words in [serve, *hosts]
        ]
        if any(process.wait() for process in started):
            raise SystemExit(f"a process failed with code {[process.returncode for process in started]}")


@contextmanager
def mosquitto() -> Iterator[str]:
    """Run a broker on the loopback."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("mosquitto is missing; install it with: apt-get install mosquitto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
        file.flush()
        with subprocess.Popen([program, "-c", file.name], stderr=subprocess.DEVNULL) as process:
            time.sleep(0.5)
            try:
                yield f"mqtt://127.0.0.1:{port}"
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
