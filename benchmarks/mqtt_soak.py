"""Soak test of the deployment over MQTT: a cell behind certificates whose processes are killed at random, for minutes.

    python benchmarks/mqtt_soak.py --ues 200 --minutes 30 --kills 100

starts a broker, a parameter server and devices in a few processes on this machine, all with TLS and signed messages,
kills one of them with SIGKILL again and again, and starts it again. At the end it prints figures, and ends with code 1
if a round was lost or repeated in the record, an update was malformed, or the cell did not recover. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SETTLED = 60.0  # seconds after the start of a process, from which the growth of its memory counts
RECOVERY = 6  # rounds without a kill at the end
EXPECTED = {"silent", "late", "early", "stale", "taken", "retained", "absent"}  # faults that kills may cause
PATIENCE = 600.0  # seconds that a cell has to come up or to recover on a busy machine
HOST = """
import sys
import numpy as np
from fedslot.mqtt import Broker, Device, Update, Workers, run_devices

first, last, url, home = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
workers = Workers()

def train(model, round):
    return Update(model + np.float32(1e-4) * np.random.default_rng(round).standard_normal(len(model), np.float32), 600)

def device(ue):
    own = f"{home}/ue{ue}"
    broker = Broker(url, f"{own}/ca.pem", f"{own}/ue{ue}.pem", f"{own}/ue{ue}-key.pem")
    return Device(ue, broker, train, ps_key=f"{own}/ps-sign.pub", workers=workers)

run_devices([device(ue) for ue in range(first, last + 1)], 300, until=lambda device: False)
"""


@dataclass
class Life:
    """The memory of one process: seconds since its start, and its resident set in MB."""

    role: str
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def growth(self) -> tuple[float, float]:
        """Seconds that were watched once it had settled, and MB by which it grew in them."""
        settled = [sample for sample in self.samples if sample[0] >= SETTLED]
        if len(settled) < 2:
            return 0.0, 0.0
        return settled[-1][0] - settled[0][0], settled[-1][1] - settled[0][1]


class Role:
    """A process that is killed and started again."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.name, self._start, self.kills, self.lives = name, start, 0, list[Life]()
        self.start()

    def start(self) -> None:
        self.process, self._began = self._start(), time.monotonic()
        self.lives.append(Life(self.name))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.kills += 1

    def watch(self) -> None:
        """Note the memory; start it again if it ended by itself, as a service manager does."""
        if self.process.poll() is not None:
            return self.start()
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                self.lives[-1].samples.append((time.monotonic() - self._began, int(line.split()[1]) / 1024))


class Cell:
    """The processes of a cell in a folder."""

    def __init__(self, folder: Path, ues: int, hosts: int, slot: float, downlink: float) -> None:
        self.folder, self.out, self.ues = folder, folder / "out", ues
        self.taken_back, self._most = 0, 0  # rows of rounds.csv
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        setup = [
            "mqtt",
            "setup",
            str(folder / "cell"),
            "--host",
            "127.0.0.1",
            "--ues",
            str(ues),
            "--port",
            str(self.port),
        ]
        subprocess.run([sys.executable, "-m", "fedslot", *setup], check=True, stdout=subprocess.DEVNULL)
        url, ps, each = f"mqtts://127.0.0.1:{self.port}", folder / "cell" / "ps", -(-ues // hosts)
        slots = max(4, min(20, ues // 10))
        fields = {"rounds": 10**6, "data.ues": ues, "frame.slots": slots, "frame.pull": slots // 2}
        fields |= {"push.contenders": slots // 2, "strategy.warmup": 1, "valuation.samples": 20}
        serve = ["serve", "quickstart", *(word for key, value in fields.items() for word in ("-o", f"{key}={value}"))]
        serve += ["--broker", url, "--tls-ca", f"{ps}/ca.pem", "--cert", f"{ps}/ps.pem", "--key", f"{ps}/ps-key.pem"]
        serve += ["--sign-key", f"{ps}/ps-sign.pem", "--out", str(self.out), "--resume", "--free", "--log", "json"]
        serve += ["--slot-seconds", str(slot), "--downlink-seconds", str(downlink), "--tolerance", str(downlink)]
        serve += ["--wait", "300"]
        broker = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin") or "mosquitto"
        self.roles = {
            "broker": Role("broker", lambda: self._run("broker", broker, "-c", f"{folder}/cell/broker/mosquitto.conf")),
            "ps": Role("ps", lambda: self._run("ps", sys.executable, "-m", "fedslot", *serve)),
        }
        for first in range(0, ues, each):
            last = min(ues, first + each) - 1
            words = [sys.executable, "-c", HOST, str(first), str(last), url, f"{folder}/cell"]
            name = f"devices {first}-{last}"
            self.roles[name] = Role(name, lambda words=words: self._run("devices", *words))  # type: ignore[misc]

    def _run(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as file:
            own = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(words, stdout=file, stderr=file, env=own)

    @property
    def rounds(self) -> list[int]:
        """The rounds on disk, in their order."""
        file = self.out / "rounds.csv"
        rows = file.read_bytes() if file.is_file() else b""
        return [int(row.split(b",")[0]) for row in rows[: rows.rfind(b"\n") + 1].splitlines()[1:]]

    @property
    def present(self) -> int:
        """Number of UEs that the parameter server sees."""
        try:
            presence = json.loads((self.out / "presence.json").read_text())
        except (OSError, ValueError):
            return 0
        return len(presence["here"]) if presence["connected"] else 0

    def until(self, condition: Callable[[], bool]) -> bool:
        """Watch until a condition holds, and return whether it does."""
        end = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < end:
            self.watch()
            time.sleep(1.0)
        return condition()

    def watch(self) -> None:
        rows = len(self.rounds)
        self.taken_back += max(0, self._most - rows)  # a parameter server repeats a round whose checkpoint is missing
        self._most = rows
        for role in self.roles.values():
            role.watch()

    def end(self) -> None:
        for name, role in self.roles.items():
            if name != "broker":
                role.process.send_signal(signal.SIGTERM)
        for role in self.roles.values():
            if role.name == "broker":
                role.process.terminate()
            try:
                role.process.wait(60)
            except subprocess.TimeoutExpired:
                role.process.kill()


def soak(cell: Cell, seconds: float, kills: int, seed: int) -> dict[str, object]:
    """Kill processes of a cell at random, let it recover, and return figures; `faulty` says what is wrong."""
    draw, faulty = random.Random(seed), list[str]()
    if not cell.until(lambda: cell.present == cell.ues and len(cell.rounds) >= 2):
        faulty.append(f"only {cell.present} of {cell.ues} devices came")
    began = time.monotonic()
    for number in range(kills):
        at = began + seconds * (number + draw.random()) / kills
        while time.monotonic() < at:
            cell.watch()
            time.sleep(0.5)
        role = cell.roles[draw.choice(list(cell.roles))]
        role.kill()
        time.sleep(draw.uniform(0.1, 2.0))
        role.start()
    while time.monotonic() < began + seconds:
        cell.watch()
        time.sleep(0.5)
    calm = len(cell.rounds)
    if not cell.until(lambda: cell.present == cell.ues):
        faulty.append(f"{cell.present} of {cell.ues} devices are here at the end")
    whole = len(cell.rounds)
    if not cell.until(lambda: len(cell.rounds) >= whole + RECOVERY):
        faulty.append("no rounds are closed at the end")
    took = time.monotonic() - began
    cell.end()
    return {**figures(cell, whole), "minutes": round(took / 60, 1), "rounds when the kills ended": calm} | {
        "rows that kills took back": cell.taken_back,
        "faulty": faulty + check(cell),
    }


def check(cell: Cell) -> list[str]:
    """Return what is wrong with the record."""
    import fedslot

    rounds, faulty = cell.rounds, list[str]()
    if rounds != list(range(len(rounds))):
        faulty.append("rounds are missing or repeated in rounds.csv")
    result = fedslot.load(cell.out)
    frames = result.frames
    assert frames is not None
    received = frames[frames["event"].isin(["pulled", "pushed"])].groupby("round")["ue"]
    counts = received.size().reindex(range(len(rounds)), fill_value=0)
    if (counts != result.rounds["pulled"] + result.rounds["push_received"]).any():
        faulty.append("frames.csv and rounds.csv do not agree")
    if received.nunique().sum() != received.size().sum():
        faulty.append("an update was counted twice")
    kinds = set(faults(cell)) - EXPECTED
    if kinds:
        faulty.append(f"faults that no kill explains: {', '.join(sorted(kinds))}")
    return faulty


def faults(cell: Cell, since: int = 0) -> Counter[str]:
    import pandas as pd

    table = pd.read_csv(cell.out / "faults.csv")
    return Counter(table.loc[table["round"] >= since, "reason"].tolist())


def figures(cell: Cell, recovered: int) -> dict[str, object]:
    """Return what happened; recovered: the round from which all devices were here again."""
    import fedslot

    rounds = fedslot.load(cell.out).rounds
    growth = {}
    for kind in ("broker", "ps", "devices"):
        lives = [life for role in cell.roles.values() if role.name.startswith(kind) for life in role.lives]
        watched = [life.growth for life in lives if life.growth[0] > 0]
        minutes, grown = sum(s for s, _ in watched) / 60, sum(mb for _, mb in watched)
        peak = max((mb for life in lives for _, mb in life.samples), default=0.0)
        growth[kind] = f"{peak:.0f} MB at most, {grown / minutes if minutes else 0:+.2f} MB a minute over {minutes:.0f}"
    return {
        "UEs": cell.ues,
        "processes": len(cell.roles),
        "kills": {name: role.kills for name, role in cell.roles.items()},
        "rounds": len(rounds),
        "updates received": int(rounds["pulled"].sum() + rounds["push_received"].sum()),
        "pulled in vain": int(rounds["wasted"].sum()),
        "faults": dict(faults(cell)),
        "faults after the recovery": dict(faults(cell, recovered + 1)),
        "memory": growth,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ues", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=4, help="processes of devices")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--slot", type=float, default=0.05, help="seconds")
    parser.add_argument("--downlink", type=float, default=1.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fedslot-soak-"))
    folder.chmod(0o755)  # root's broker runs as another user
    cell = Cell(folder, asked.ues, asked.hosts, asked.slot, asked.downlink)
    try:
        report = soak(cell, 60 * asked.minutes, asked.kills, asked.seed)
    finally:
        cell.end()
    print(json.dumps(report, indent=2))
    if report["faulty"]:
        sys.exit(f"see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
