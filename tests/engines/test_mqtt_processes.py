"""Deployment over MQTT when processes are killed, and behind certificates: nothing is lost, and nobody gets in."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("paho.mqtt")

from loopback import free_port, listens, rows
from mqtt_cell import (
    OVERRIDES,
    PROGRAM,
    TIMING,
    WAIT,
    Mosquitto,
    as_simulated,
    command,
    devices_of,
    lengths,
    make_server,
    over_mqtt,
    running,
    small,
    until,
)

import fedslot
from fedslot import Callback, RefusedError
from fedslot.deployment.mqtt import Broker, Device, Timing, Update, run_devices, scenario_devices
from fedslot.deployment.mqtt.broker import Connection
from fedslot.deployment.mqtt.messages import Topics, pack, write_status
from fedslot.deployment.mqtt.setup import write_setup

pytestmark = over_mqtt
Start = Callable[..., subprocess.Popen[Any]]
Longer = Callable[[Timing], Timing]


@pytest.mark.parametrize(
    ("rounds", "fields", "tolerance"),
    [(5, {}, 5.0), (9, {"mode": "asynchronous", "fleet.computing": {"mean_slots": 6}}, 1.0)],
    ids=["synchronous", "asynchronous"],
)
def test_the_server_is_killed_and_continues(
    rounds: int, fields: dict[str, object], tolerance: float, start: Start, tmp_path: Path, longer: Longer
) -> None:
    """By the commands: the devices outlive the first server, go on with the second, and end with it."""
    broker, out, log = Mosquitto(start, tmp_path / "broker"), tmp_path / "out", tmp_path / "serve.log"
    own = [word for key, value in fields.items() for word in ("-o", f"{key}={value}".replace("'", ""))]
    serve = ["serve", "quickstart", *OVERRIDES, *own, "-o", f"rounds={rounds}", "--broker", broker.url]
    serve += ["--out", str(out), *lengths(longer(replace(TIMING, tolerance=tolerance)))]
    first = command(start, log, *serve)
    devices = command(start, tmp_path / "devices.log", "device", "--ues", "0-3,4,5", "--broker", broker.url)
    until(lambda: rows(out) >= rounds // 2 or first.poll() is not None)
    first.kill()
    first.wait()
    assert rounds // 2 <= rows(out) < rounds, log.read_text("utf-8")
    again = command(start, log, *serve, "--resume")
    for process, file in ((again, log), (devices, tmp_path / "devices.log")):
        until(lambda process=process: process.poll() is not None)
        assert process.returncode == 0, file.read_text("utf-8")
    assert f"after {rounds} rounds" in log.read_text("utf-8")
    assert "6 UEs: the training is over" in (tmp_path / "devices.log").read_text("utf-8")
    as_simulated(out, small(rounds=rounds, **fields))
    if fields:
        assert fedslot.load(out).rounds["staleness"].iloc[rounds // 2 :].max() >= 1


def test_the_broker_is_killed_in_mid_frame(
    start: Start, tmp_path: Path, longer: Longer, caplog: pytest.LogCaptureFixture
) -> None:
    broker, out = Mosquitto(start, tmp_path / "broker"), tmp_path / "out"
    scenario, timing = small(rounds=5), longer(TIMING)
    with devices_of(scenario, broker.url):
        mqtt = make_server(scenario, broker.url, timing, out=out)
        with running(mqtt) as raised:
            until(lambda: rows(out) >= 2)
            time.sleep(timing.downlink / 2)  # somewhere in the next frame
            broker.kill()
            time.sleep(timing.downlink)  # the server may be at work on a frame that was closed before
            before = rows(out)
            time.sleep(0.5)
            assert rows(out) == before  # no frame is wasted while nobody can be heard
            broker.start()
        assert raised == []
    as_simulated(out, scenario)
    assert {fault.reason for fault in mqtt.server.faults.all} <= {"late", "stale"}  # sent again for the lost frame
    for who in ("ps", *(f"ue{ue}" for ue in range(6))):
        assert caplog.text.count(f"{who}: the connection to {broker.url} is lost") == 1
        assert caplog.text.count(f"{who}: connected again to {broker.url}") == 1


DEVICE = """
import sys
from fedslot.deployment.mqtt import Device, Update
device = Device(2, sys.argv[1], lambda model, round: Update(model, 50))
assert "torch" not in sys.modules
device.run()
"""


class Enough(Callback):
    """Stops a training once it is told to."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def on_round(self, round: object, frame: object) -> bool:
        return self.told.is_set()


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_a_device_is_killed_and_comes_back(mode: str, start: Start, tmp_path: Path, longer: Longer) -> None:
    """It is pulled no more, the others go on, and it takes its place again."""
    broker, out = Mosquitto(start, tmp_path / "broker"), tmp_path / "out"
    scenario = small(data__ues=3, frame__slots=3, frame__pull=3, push__contenders=0, rounds=1000, mode=mode)
    timing, enough = longer(Timing(slot=0.1, downlink=0.5, tolerance=1.0)), Enough()
    mqtt = make_server(scenario, broker.url, timing, out=out, callbacks=[enough], seeded=mode == "synchronous")

    def device() -> subprocess.Popen[Any]:
        return start(sys.executable, "-c", DEVICE, broker.url)

    def received() -> int:
        return int(fedslot.load(out).rounds["pulled"].iloc[-1])

    with devices_of(scenario, broker.url, [0, 1]), running(mqtt) as raised:
        first = device()
        until(lambda: rows(out) >= 1 and received() == 3)
        first.kill()
        until(lambda: 2 not in mqtt.server.presence.here)
        killed = rows(out) + 1  # in the frame that is on the air, it was pulled
        until(lambda: rows(out) > killed + 3)
        back = rows(out)
        device()
        until(lambda: received() == 3)
        enough.told.set()
    assert raised == []
    assert not (out / "summary.json").exists()  # it can be continued
    faults = pd.read_csv(out / "faults.csv")
    assert set(faults.loc[faults["reason"] == "silent", "ue"]) <= {2}
    assert len(faults) <= 2  # it was pulled when it died, but not again before it was back
    rounds, frames = fedslot.load(out).rounds, fedslot.load(out).frames
    assert frames is not None
    assert 2 not in set(frames.loc[frames["round"].between(killed, back - 1), "ue"])
    if mode == "synchronous":  # otherwise a frame need not pull anybody
        assert set(rounds.loc[killed:, "pulled"]) == {2, 3}
        assert rounds.loc[killed:, "wasted"].sum() == 0


# Certificates -------------------------------------------------------------------------------------


class Secured:
    """A broker that knows devices by their certificates, as `fedslot mqtt setup` writes it."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for name in ("cell", "foreign"):
            write_setup(folder / name, ["127.0.0.1"], ues=2, port=self.port, most_bytes=2_000_000, days=1)
        with (folder / "log").open("wb") as log:
            start(PROGRAM, "-c", str(folder / "cell" / "broker" / "mosquitto.conf"), stdout=log, stderr=log)
        until(lambda: listens(self.port))

    def broker(self, name: str, home: str = "cell") -> Broker:
        own = self.folder / home / name
        return Broker(f"mqtts://127.0.0.1:{self.port}", self.ca, own / f"{name}.pem", own / f"{name}-key.pem")

    @property
    def ca(self) -> Path:
        return self.folder / "cell" / "ca.pem"


def update(model: np.ndarray, round: int) -> Update:
    return Update(model, 10)


# paho-mqtt leaves the socket of a failed handshake to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_certificates_and_access_control(start: Start, folder: Path, tmp_path: Path, longer: Longer) -> None:
    secured, topics = Secured(start, folder), Topics("cell")
    scenario = small(data__ues=2, frame__slots=2, frame__pull=2, push__contenders=0, rounds=4)

    with pytest.raises(RefusedError, match="certificate"):  # signed by another authority
        Device(1, secured.broker("ue1", "foreign"), update).start(0)
    with pytest.raises(RefusedError, match="certificate"):  # none at all
        Device(1, Broker(secured.broker("ue1").url, secured.ca), update).start(0)
    with pytest.raises(RefusedError, match=r"TLS failed \(.*certificate"):  # a broker that we do not know
        Device(1, Broker(secured.broker("ue1").url), update).start(0)
    with pytest.raises(RefusedError, match=r"the broker refused fedslot/cell/ue0/status .*Not authorized"):
        Device(0, secured.broker("ue1"), update).run(0)  # ue1 as UE 0

    # UE 1 plants poison wherever it can: in the PS's place, in another's, and on its own topic
    refused: list[str] = []
    heard: list[str] = []
    spy = Connection(
        secured.broker("ue1"), [("#", True)], lambda topic, *_: heard.append(topic), on_failure=refused.append
    )
    spy.open(WAIT)
    poison = pack(
        {"frame": "x", "round": 0, "node": "x", "slots": [1], "metrics": {}}, np.full(9, 1e9, "<f4").tobytes()
    )
    for who, what in [("ps", "model"), ("ps", "frame"), ("ps", "status"), ("ue0", "update"), ("ue0", "status")]:
        spy.publish(topics.of(who, what), poison, retain=True)
    until(lambda: len(refused) == 5)
    assert all("Not authorized" in line for line in refused)
    spy.publish(topics.of("ue1", "update"), poison, retain=True)
    spy.publish(topics.of("ue1", "status"), write_status("online", "x" * 5000), retain=True)
    spy.publish(topics.of("ps", "status"), poison, retain=True)
    until(lambda: len(refused) == 6)  # the broker takes messages in order, so the two before have arrived

    mqtt = make_server(scenario, secured.broker("ps"), longer(TIMING), out=tmp_path / "out")
    with running(mqtt) as raised:
        spy.close()
        paths = {name: folder / "cell/ue{ue}" / f"ue{{ue}}{end}.pem" for name, end in (("cert", ""), ("key", "-key"))}
        fleet = Broker(secured.broker("ps").url, secured.ca, **paths)
        run_devices(scenario_devices(scenario, [0, 1], fleet), WAIT)
    assert raised == []
    assert heard == []  # neither others' updates nor statuses
    assert mqtt.server.faults.all == []
    as_simulated(tmp_path / "out", scenario)


def test_a_name_is_used_by_one_at_a_time(start: Start, folder: Path) -> None:
    secured = Secured(start, folder)
    first, second = (Device(1, secured.broker("ue1"), update) for _ in range(2))
    first.start(WAIT)
    second.start(WAIT)
    until(lambda: first.failure or second.failure)  # they displace each other until one gives up
    assert "is another client here under the same name?" in first.failure + second.failure
    assert not (first.failure and second.failure)
    first.stop()
    second.stop()
