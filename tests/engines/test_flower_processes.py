"""The example app on real Flower processes on the loopback: a device killed in mid-round, keys and TLS, a restart."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from loopback import NO_PASSWORD, Authority, free_port, listens, rows

import fedslot
from fedslot import Scenario
from fedslot.scenario import parse_overrides

APP = Path(__file__).parent.parent.parent / "examples" / "flower"
BIN = Path(sys.executable).parent
START, ROUND = 60.0, 90.0  # seconds that processes may take to start, and a round to end, on a busy machine


class Federation:
    """A SuperLink and SuperNodes; their processes are found by an environment variable."""

    def __init__(self, launch: Callable[..., subprocess.Popen[bytes]], path: Path, secure: bool = False) -> None:
        self.launch, self.path, self.secure, self.port = launch, path, secure, free_port()
        self.home = path / "flower"
        self.home.mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # Flower's programs start one another by name
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
        }
        if secure:
            Authority(path, "ca").certify("server")
        trust = f'root-certificates = "{path}/ca.pem"' if secure else "insecure = true"
        (self.home / "config.toml").write_text(f'[superlink.local]\naddress = "127.0.0.1:{self.port}"\n{trust}\n')

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.path / f"{name}.log").open("wb") as log:
            return self.launch(
                str(BIN / command[0]),
                *command[1:],
                env=self.environment,
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text("utf-8", "replace")

    def superlink(self) -> None:
        files = ("cert", "server"), ("key", "server-key"), ("ca-cert", "ca")
        tls = [f"--ssl-{kind}file={self.path}/{file}.pem" for kind, file in files]
        how = ["--enable-supernode-auth", *tls] if self.secure else ["--insecure"]
        options = ["--disable-runtime-dependency-installation", "--port", str(self.port)]
        process = self.start("superlink", "flower-superlink", *how, *options)
        self.until(lambda: listens(self.port), START, process, "superlink")

    def supernode(self, name: str, ue: int) -> subprocess.Popen[bytes]:
        """Start a device; with TLS it has the key of its name."""
        how = ["--insecure"]
        if self.secure:
            private = f"{self.path}/{name}"
            how = [f"--root-certificates={self.path}/ca.pem", f"--auth-supernode-private-key={private}"]
        where = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port())]
        return self.start(name, "flower-supernode", *how, *where, "--node-config", f"partition-id={ue}")

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, name: str, **config: object) -> subprocess.Popen[bytes]:
        given = {"out": str(self.path / "out"), "wait": START, **config}
        words = " ".join(f"{key}={_toml(value)}" for key, value in given.items())
        return self.start(name, "flwr", "run", str(APP), "local", "--stream", "--run-config", words)

    def until(
        self, condition: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes] | None, name: str
    ) -> None:
        """Wait until a condition holds, as long as a process lives."""
        end = time.monotonic() + seconds
        while not condition():
            assert process is None or process.poll() is None, self.log(name)
            assert time.monotonic() < end, self.log(name)
            time.sleep(0.05)

    def pids(self, program: str = "") -> list[int]:
        """Return the processes of this federation, also those that Flower's programs started."""
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone, or not ours to read
                ours = f"FLWR_HOME={self.home}".encode() in (folder / "environ").read_bytes()
                if ours and program.encode() in (folder / "cmdline").read_bytes():
                    pids.append(int(folder.name))
        return pids

    def end(self) -> None:
        """Kill every process, and check that none is left."""
        end = time.monotonic() + 20
        while (left := self.pids()) and time.monotonic() < end:
            for pid in left:
                _kill(pid)
            time.sleep(0.1)
        assert not left


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | float | int) else f'"{value}"'


def _make_key(path: Path, name: str) -> Path:
    """Make a key pair as `ssh-keygen -t ecdsa -b 384` does; return the path of the public key."""
    key, public = ec.generate_private_key(ec.SECP384R1()), path / f"{name}.pub"
    (path / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NO_PASSWORD))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return public


@pytest.fixture
def federation(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Federation]:
    federation = Federation(start, tmp_path, secure=getattr(request, "param", False))
    try:
        federation.superlink()
        yield federation
    finally:
        federation.end()


TASK = "Start `flwr-clientapp` process"
OVERRIDES = "frame.slots=3 frame.pull=1 fleet.noise=0.0 valuation.name=exact"


def test_a_device_is_killed_in_mid_round(federation: Federation) -> None:
    """Three devices train digits with compressed updates; one is killed while it trains; the others finish."""
    overrides, deadline = f"rounds=4 data.ues=3 push.contenders=2 compression=quantise {OVERRIDES}", 60.0
    devices = [federation.supernode(f"ue{ue}", ue) for ue in range(3)]
    run = federation.run("run", overrides=overrides, deadline=deadline)
    counts = [0]  # of ue2's tasks in the first round

    def is_first_round_closed() -> bool:
        if rows(federation.path / "out"):
            return True
        counts.append(federation.log("ue2").count(TASK))
        return False

    federation.until(is_first_round_closed, START + ROUND, run, "run")
    federation.until(lambda: federation.log("ue2").count(TASK) > counts[-1], ROUND, run, "run")
    devices[2].kill()
    federation.until(lambda: run.poll() is not None, 3 * ROUND, None, "run")
    assert run.returncode == 0

    result = fedslot.load(federation.path / "out")
    assert len(result.rounds) == 4
    assert result.rounds["seconds"].max() < deadline + 10  # every round was closed on time
    faults = pd.read_csv(federation.path / "out" / "faults.csv")
    assert set(faults.loc[faults["ue"] == 2, "round"]) == {1, 2, 3}
    assert set(faults["reason"]) <= {"silent", "absent", "error"}
    assert set(faults["ue"]) == {2}
    assert np.isfinite(result.rounds["test_loss"]).all()
    assert result.final_accuracy > result.rounds["test_accuracy"].iloc[0]

    # until then it is what the simulator gives
    simulated = fedslot.run(Scenario.load("quickstart", parse_overrides(overrides.split()))).rounds
    exact = ["pulled", "contenders", "push_received", "collided", "cost_max", "cost_sum"]
    pd.testing.assert_frame_equal(result.rounds[exact].iloc[:1], simulated[exact].iloc[:1])
    np.testing.assert_allclose(result.rounds["test_loss"].iloc[:1], simulated["test_loss"].iloc[:1], rtol=1e-3)


@pytest.mark.parametrize("federation", [True], indirect=True, ids=["TLS"])
def test_keys_and_a_restart(federation: Federation) -> None:
    """With authentication on, a node without a registered key gets nowhere, and a killed server goes on."""
    path, overrides = federation.path, f"rounds=3 data.ues=2 push.contenders=1 {OVERRIDES}"
    keys = {name: _make_key(path, name) for name in ("ue0", "ue1", "stranger")}
    for name in ("ue0", "ue1"):
        federation.command("supernode", "register", str(keys[name]), "local")
    stranger = federation.supernode("stranger", 1)
    for ue in range(2):
        federation.supernode(f"ue{ue}", ue)

    first = federation.run("first", overrides=overrides, deadline=60.0, keyed=True)
    federation.until((path / "out" / "checkpoint.npz").is_file, START + ROUND, first, "first")
    (server,) = federation.pids("flwr-serverapp")
    _kill(server)
    federation.until(lambda: server not in federation.pids("flwr-serverapp"), START, None, "first")
    before = _checkpoint(path)
    assert 0 < before["round"] < 3  # killed in the middle
    again = federation.run("again", overrides=overrides, deadline=60.0, keyed=True, resume=True)
    federation.until(lambda: again.poll() is not None, START + 2 * ROUND, None, "again")
    assert again.returncode == 0

    assert fedslot.load(path / "out").rounds["round"].tolist() == [0, 1, 2]
    assert f"Number of rounds: {3 - before['round']}" in federation.log("again")
    after = _checkpoint(path)
    assert before["more.nodes"].tolist() == after["more.nodes"].tolist()
    assert all(before["more.nodes"])
    assert (after["state.seen"] > before["state.seen"]).any()
    assert np.isfinite(after["state.value"]).all()
    faults = pd.read_csv(path / "out" / "faults.csv", dtype={"node": str})
    assert set(faults["reason"]) <= {"silent", "late"}  # a device may still be at work for the server that was killed
    assert set(faults["node"]) <= set(after["more.nodes"].tolist())  # nothing was heard of the stranger
    assert TASK not in federation.log("stranger")
    assert stranger.poll() != 0


def _checkpoint(path: Path) -> dict[str, np.ndarray]:
    with np.load(path / "out" / "checkpoint.npz", allow_pickle=False) as saved:
        return dict(saved)
