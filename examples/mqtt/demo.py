"""A broker, a parameter server and 20 devices on this machine, which train on digits over MQTT.

    python examples/mqtt/demo.py out/demo-mqtt

runs the commands that `docs/how-to/deployment.md` explains, and sums up what happened on the air.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pandas as pd

import fedslot

DEVICES = 20
SCENARIO = {
    "rounds": 40,
    "data.ues": DEVICES,
    "frame.slots": 8,
    "frame.pull": 4,
    "push.contenders": 4,
    "fleet.noise": 0.05,
}
WAIT = ["--wait", "300"]  # the first run on a machine compiles for some seconds
TIMES = ["--slot-seconds", "0.03", "--downlink-seconds", "0.3", "--tolerance", "0.03"]


def main(out: Path) -> None:
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    overrides = [word for key, value in SCENARIO.items() for word in ("-o", f"{key}={value}")]
    with ExitStack() as stack:
        broker(stack, port)
        print(f"broker, parameter server and {DEVICES} devices start; to look on: fedslot watch {out}\n", flush=True)
        devices = command(stack, "device", "--ues", f"0-{DEVICES - 1}", "--broker", url, *WAIT)
        serve = command(
            stack,
            "serve",
            "quickstart",
            *overrides,
            "--free",
            "--broker",
            url,
            "--out",
            str(out),
            "--force",
            *TIMES,
            *WAIT,
        )
        if serve.wait() or devices.wait():
            sys.exit("the demonstration failed")
    summary(out)


def command(stack: ExitStack, *words: str) -> subprocess.Popen:
    """Start a command of fedslot, which ends with the demonstration."""
    process = subprocess.Popen([sys.executable, "-m", "fedslot", *words])
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def broker(stack: ExitStack, port: int) -> None:
    """Start mosquitto on the loopback, without any access control."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        sys.exit("mosquitto is missing; as root: apt-get install mosquitto")
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mosquitto.conf"
    file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
    process = subprocess.Popen([program, "-c", str(file)], stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    while process.poll() is None and not listens(port):
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def summary(out: Path) -> None:
    """Print what happened in the slots, and what the devices suffered."""
    result, faults = fedslot.load(out), pd.read_csv(out / "faults.csv")
    rounds = result.rounds
    print(f"\n{len(rounds)} rounds of {rounds['seconds'].mean():.2f} s, test accuracy {result.final_accuracy:.3f}")
    print(f"pulled {rounds['pulled'].sum()} updates; devices pushed {rounds['contenders'].sum()} of their own accord:")
    print(f"  {rounds['push_received'].sum()} received, {rounds['collided'].sum()} collided and dropped unread")
    print(
        f"  lost otherwise: {', '.join(f'{n} {why}' for why, n in faults['reason'].value_counts().items()) or 'none'}"
    )
    print(f"\nLook at {out}: rounds.csv, frames.csv (every slot), faults.csv; in Python, fedslot.load({str(out)!r}).")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo-mqtt"))
