"""Devices on a broker without access rules: what a stranger says in the PS's name has no effect, or none that lasts."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho.mqtt")

from loopback import rows
from mqtt_cell import (
    OVERRIDES,
    TIMING,
    WAIT,
    Mosquitto,
    as_simulated,
    command,
    devices_of,
    lengths,
    make_server,
    over_mqtt,
    small,
    until,
)

import fedslot
from fedslot.deployment.mqtt import Broker, Device, Timing, Update
from fedslot.deployment.mqtt.broker import Connection
from fedslot.deployment.mqtt.messages import (
    Topics,
    pack,
    unpack,
    write_clock,
    write_model,
    write_status,
)
from fedslot.deployment.mqtt.signing import make_keys

pytestmark = over_mqtt
Start = Callable[..., subprocess.Popen[Any]]
Longer = Callable[[Timing], Timing]
Said = tuple[str, bytes]
"""What is said in the PS's name: the last part of the topic, and the content."""


@pytest.fixture(scope="module")
def broker(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(start_shared, tmp_path_factory.mktemp("broker"))
    yield broker
    broker.kill()


class Stranger:
    """Hears all that the PS says, and answers each announcement and each model with messages in its name."""

    def __init__(self, url: str, says: Callable[[str, bytes], Iterable[Said]], cell: str = "cell") -> None:
        self.topics, self.says, self.said, self.heard = Topics(cell), says, set[bytes](), list[Said]()
        self.failures: list[str] = []
        heard = [(self.topics.of("ps", "#"), False)]
        self.link = Connection(Broker(url), heard, self._hear, on_failure=self.failures.append)
        self.link.open(WAIT)

    def _hear(self, topic: str, content: bytes, retained: bool) -> None:
        if content in self.said:
            return
        what = topic.rpartition("/")[2]
        self.heard.append((what, content))
        for kind, forged in self.says(what, content):
            self.said.add(forged)
            self.link.publish(self.topics.of("ps", kind), forged, qos=0)


@contextmanager
def attacked(url: str, says: Callable[[str, bytes], Iterable[Said]]) -> Iterator[Stranger]:
    stranger = Stranger(url, says)
    try:
        yield stranger
    finally:
        stranger.link.close()
    assert stranger.failures == []


def changed(announcement: bytes, /, **changes: object) -> Said:
    """Return an announcement with other fields, where those of the timing and of the window are changed one by one."""
    fields = json.loads(announcement)
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (fields[section] if section else fields)[name] = value
    return "frame", json.dumps(fields).encode()


PULL_ALL = {"pull": [0, 1, 2, 3], "window": None, "backlogged": []}


def garbage(frame: bytes) -> Iterator[Said]:
    """Announcements that no device can use, most of them of the right scenario."""
    yield changed(frame, scenario="another")
    yield "frame", b"{"
    yield "frame", b"\x00\xff"
    yield changed(frame, slots=-1)
    yield changed(frame, slots=10**12, **{key: PULL_ALL[key] for key in ("window", "backlogged")})
    yield changed(frame, timing__slot=1e300)
    yield changed(frame, timing__downlink="soon")
    yield changed(frame, arrivals=-1.0, backlogged=None, window=None)
    if json.loads(frame)["window"]:
        yield changed(frame, window__channel='["os:system", {}]')
        yield changed(frame, window__channel='["crdsa", {"replicas": 1000000000}]')
        yield changed(frame, window__channel="null")
        yield changed(frame, window__backlogged=10**12)
        yield changed(frame, window__seed="x" * 9)
        yield changed(frame, window__first=-5)
        yield changed(frame, window__probability=1e9)


def poison(model: bytes) -> Iterator[Said]:
    """Models that are not what the PS announced: other numbers under its version, or others altogether."""
    header, numbers = unpack(model)
    moved = (np.frombuffer(numbers, "<f4") + np.float32(1e3)).tobytes()
    yield "model", pack(header, moved)
    yield "model", write_model(moved[:-4], 0)
    yield "model", write_model(b"\xff" * len(moved), 0)
    yield "model", write_model(moved, 0)  # sound in itself
    yield "model", b"FSL1" + b"\xff" * 99
    yield "model", b""


def test_forged_models_and_useless_announcements(
    broker: Mosquitto, tmp_path: Path, longer: Longer, caplog: pytest.LogCaptureFixture
) -> None:
    """Also devices without a key refuse these, say so in a line and go on: the training is that of the simulator."""
    scenario = small(rounds=5)

    def says(what: str, content: bytes) -> Iterable[Said]:
        return {"frame": garbage, "model": poison}.get(what, lambda content: [])(content)

    with caplog.at_level(logging.WARNING), devices_of(scenario, broker.url) as devices, attacked(broker.url, says):
        mqtt = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out")
        mqtt.run()
        until(lambda: all(device.over.is_set() for device in devices))
    assert mqtt.server.faults.all == []
    as_simulated(tmp_path / "out", scenario)
    assert [device.failure for device in devices] == [""] * 6
    kinds = {("frame", "scenario"), ("frame", "malformed"), ("model", "hash"), ("model", "malformed")}
    assert all(set(device.refused) >= kinds for device in devices)
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert all(record.exc_info is None for record in caplog.records)  # no traceback
    assert Counter(line for line in lines if "another one" in line and "times" not in line).most_common(1)[0][1] == 1


def test_a_broker_without_rules_and_a_ps_that_signs(
    broker: Mosquitto, tmp_path: Path, longer: Longer, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that a stranger makes up, repeats or kept from an earlier training has an effect on the devices."""
    scenario, timing = small(rounds=4), longer(TIMING)
    private = tmp_path / "ps.pem"
    public = make_keys(private)

    def train(out: Path, says: Callable[[str, bytes], Iterable[Said]]) -> tuple[list[Device], list[Said]]:
        with devices_of(scenario, broker.url, ps_key=public) as devices, attacked(broker.url, says) as stranger:
            mqtt = make_server(scenario, broker.url, timing, out=out, sign_key=private)
            mqtt.run()
            until(lambda: all(device.over.is_set() for device in devices))
        assert mqtt.server.faults.all == []
        as_simulated(out, scenario)
        assert sum(device.sent for device in devices) == sum(device.turns for device in devices)
        return devices, stranger.heard

    earlier: list[Said] = []
    clock = 0.0

    def made_up(what: str, content: bytes) -> Iterator[Said]:
        """What a device without a key would believe; then what the PS said itself, now and in the earlier training."""
        nonlocal clock
        if what == "frame":
            frame = content[content.index(b'{"frame"') :]
            clock += 1.0
            yield changed(frame, frame="forged", **PULL_ALL)
            yield "clock", write_clock(json.loads(frame)["clock"], 1e6 + clock)
            yield "status", write_status("finished", "ps")
            yield "members", b"[]"
            yield "frame", content[:-1] + b" "
            yield from poison(write_model(bytes(4 * 4785), 0))
        yield what, content  # once more
        if what in ("frame", "status"):
            yield from earlier

    _, earlier = train(tmp_path / "first", lambda what, content: [])
    assert {what for what, _ in earlier} == {"status", "scenario", "members", "clock", "frame", "model"}
    caplog.clear()
    devices, _ = train(tmp_path / "second", made_up)
    for device in devices:
        assert device.refused["frame", "unsigned"] >= 1
        assert device.refused["frame", "signature"] >= 1
        assert device.refused["frame", "replay"] >= len([what for what, _ in earlier if what == "frame"])
    assert all(record.exc_info is None for record in caplog.records)


def test_the_commands_sign_and_check(start: Start, broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """A device with the key of another PS takes no part, and says why; with the right one it does."""
    for name in ("ps", "other"):
        assert fedslot_main("mqtt", "key", str(tmp_path / f"{name}.pem")) == 0
    serve = ["serve", "quickstart", *OVERRIDES, "-o", "rounds=3", "--broker", broker.url, "--cell", "keys"]
    serve += ["--out", str(tmp_path / "out"), "--sign-key", str(tmp_path / "ps.pem"), *lengths(longer(TIMING))]
    device = ["device", "--ues", "0-5", "--broker", broker.url, "--cell", "keys", "--ps-key"]
    ps = command(start, tmp_path / "serve.log", *serve)
    wrong = command(start, tmp_path / "wrong.log", *device, str(tmp_path / "other.pub"), "--wait", "10")
    assert wrong.wait(WAIT) == 2
    said = (tmp_path / "wrong.log").read_text("utf-8")
    assert "were refused (signature: not signed with the key of the PS)" in said
    right = command(start, tmp_path / "right.log", *device, str(tmp_path / "ps.pub"))
    assert (ps.wait(WAIT), right.wait(WAIT)) == (0, 0), (tmp_path / "serve.log").read_text("utf-8")
    assert rows(tmp_path / "out") == 3


def fedslot_main(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "fedslot", *words], check=False, capture_output=True).returncode


# Devices that are too slow ------------------------------------------------------------------------


def test_a_slow_device_says_so(
    broker: Mosquitto, tmp_path: Path, longer: Longer, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = small(data__ues=2, frame__slots=2, frame__pull=2, push__contenders=0, rounds=3)
    timing = longer(Timing(slot=0.05, downlink=0.3, tolerance=0.1))

    def train(model: np.ndarray, round: int) -> Update:
        time.sleep(2 * timing.ends(2))
        return Update(model, 10)

    slow = [Device(ue, broker.url, train, cell="slow") for ue in range(2)]
    for device in slow:
        device.start(WAIT)
    with caplog.at_level(logging.WARNING):
        mqtt = make_server(scenario, broker.url, timing, out=tmp_path / "out", cell="slow")
        mqtt.run()
        until(lambda: all(device.over.is_set() for device in slow))
    for device in slow:
        device.stop()
        assert (device.turns, device.sent) == (3, 0)
    said = caplog.text
    for ue in range(2):
        assert f"ue{ue}: no update in round 0: too slow: its training had not ended" in said
        assert f"ue{ue}: no update in round 1: too slow: an earlier training had not ended" in said
    assert "most updates are missing: 6 of 6 that were expected did not come or were refused" in said
    assert mqtt.server.shortfall


def test_the_commands_end_with_a_code_of_their_own(start: Start, broker: Mosquitto, tmp_path: Path) -> None:
    """No device can train in a downlink slot of no length."""
    serve = ["serve", "quickstart", *OVERRIDES, "--broker", broker.url, "--cell", "short", "--out"]
    serve += [str(tmp_path / "out"), "--slot-seconds=0.0001", "--downlink-seconds=0"]
    ps = command(start, tmp_path / "serve.log", *serve)
    devices = command(start, tmp_path / "device.log", "device", "--ues", "0-5", "--broker", broker.url, "--cell=short")
    assert (ps.wait(WAIT), devices.wait(WAIT)) == (3, 3)
    assert "most updates are missing: " in (tmp_path / "serve.log").read_text("utf-8")
    said = (tmp_path / "device.log").read_text("utf-8")
    assert "too slow" in said
    assert "most updates are missing: 0 of " in said


def test_who_waits_for_whom(start: Start, broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """The PS says who is missing; SIGTERM ends both sides with a line and the usual code."""
    serve = ["serve", "quickstart", *OVERRIDES, "--broker", broker.url, "--cell=wait", "--wait", str(WAIT)]
    ps = command(start, tmp_path / "serve.log", *serve, *lengths(longer(TIMING)), "--out", str(tmp_path / "out"))
    device = command(start, tmp_path / "device.log", "device", "--ues=0,1,4", "--broker", broker.url, "--cell=wait")
    until(lambda: "waiting for 3 of 6 UEs: 2-3, 5" in (tmp_path / "serve.log").read_text("utf-8"))
    assert "ue4: connected to mqtt://" in (tmp_path / "device.log").read_text("utf-8")
    for process, log in ((device, "device.log"), (ps, "serve.log")):
        process.terminate()
        assert process.wait(WAIT) == 143
        assert (tmp_path / log).read_text("utf-8").splitlines()[-1].startswith("stopped; ")


@pytest.mark.long
def test_devices_in_a_fresh_environment(start: Start, broker: Mosquitto, tmp_path: Path) -> None:
    """They compile before they are here, not in a frame, so that the first frames are as good as the others."""
    pytest.importorskip("numba")
    words = ["data.ues=20", "frame.slots=8", "frame.pull=4", "push.contenders=4", "rounds=8"]
    options = [word for each in words for word in ("-o", each)]
    serve = ["serve", "quickstart", *options, "--broker", broker.url, "--cell=fresh", f"--wait={WAIT}"]
    ps = command(start, tmp_path / "serve.log", *serve, "--slot-seconds=0.2", "--out", str(tmp_path / "out"))
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    device = ["device", "--ues", "0-19", "--broker", broker.url, "--cell=fresh", f"--wait={WAIT}"]
    devices = command(start, tmp_path / "device.log", *device, environment=fresh)
    assert (ps.wait(WAIT), devices.wait(WAIT)) == (0, 0), (tmp_path / "device.log").read_text("utf-8")
    rounds = fedslot.load(tmp_path / "out").rounds
    assert rounds["wasted"].sum() <= 2  # of 48 pulls, on a busy machine
