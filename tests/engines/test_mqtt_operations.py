"""A cell that is operated: changed while it runs, watched, extended, rid of a device, and trained a second time."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho.mqtt")

from loopback import free_port, listens, rows
from mqtt_cell import (
    OVERRIDES,
    PROGRAM,
    TIMING,
    WAIT,
    Mosquitto,
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
from fedslot import RefusedError
from fedslot.cli import main
from fedslot.deployment.changes import write_request
from fedslot.deployment.mqtt import Broker, Device, Timing, Update, messages
from fedslot.deployment.mqtt.broker import Connection
from fedslot.deployment.mqtt.messages import Status, Topics, ue_name

pytestmark = over_mqtt
Start = Callable[..., subprocess.Popen[Any]]
Longer = Callable[[Timing], Timing]


def lines(log: Path) -> list[dict[str, Any]]:
    """The lines of a log of JSON, each of which must have time, level and message."""
    read = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in read)
    return read


def test_a_cell_by_its_commands(start: Start, tmp_path: Path, longer: Longer) -> None:
    """Devices stay for a second training, which begins with the model of the first, and join a cell that grows."""
    pytest.importorskip("prometheus_client")
    broker, port = Mosquitto(start, tmp_path / "broker"), free_port()
    timing = longer(replace(TIMING, tolerance=1.0))
    where = ["--broker", broker.url]
    first = ["serve", "quickstart", *OVERRIDES, "-o", "rounds=3", "-o", "training.epochs=5", *where, *lengths(timing)]
    first += ["--out", str(tmp_path / "first"), "--log", "json", "--metrics", str(port)]
    device = ["device", "--ues", "0-5", *where, "--stay", "--log", "json"]
    ps = command(start, tmp_path / "first.log", *first)
    devices = command(start, tmp_path / "devices.log", *device)
    assert ps.wait(WAIT) == 0, (tmp_path / "first.log").read_text("utf-8")
    said = lines(tmp_path / "first.log")
    assert [line["round"] for line in said if "is closed" in line["message"]] == [0, 1, 2]
    assert "test accuracy" in said[-1]["message"]

    out = tmp_path / "second"
    second = [
        *first[:-6],
        "-o",
        "rounds=5",
        "--out",
        str(out),
        "--metrics",
        str(port),
        "--from",
        str(tmp_path / "first"),
    ]
    ps = command(start, tmp_path / "second.log", *second)
    until(lambda: rows(out) >= 1 or ps.poll() is not None)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        assert json.load(answer)["present"] == 6
    assert main(["change", str(out), "data.ues=7", "frame.pull=3"]) == 0
    until(lambda: (out / "changes.csv").is_file() or ps.poll() is not None)  # before it, there is no UE 6
    joined = command(start, tmp_path / "joined.log", "device", "--ue", "6", *where, "--wait", str(WAIT), "--stay")
    assert ps.wait(WAIT) == 0, (tmp_path / "second.log").read_text("utf-8")
    began, ended = fedslot.load(tmp_path / "first"), fedslot.load(out)
    assert ended.rounds["test_loss"].iloc[0] < began.rounds["test_loss"].iloc[0] - 0.1
    assert ended.rounds["round"].tolist() == list(range(5))
    assert "data.ues,7" in (out / "changes.csv").read_text("utf-8")
    assert devices.poll() is None
    for process in (devices, joined):
        process.terminate()
        assert process.wait(WAIT) == 143
    messages_of_devices = [line["message"] for line in lines(tmp_path / "devices.log")]
    assert messages_of_devices[-1] == "stopped"
    assert sum("the training is over" in line for line in messages_of_devices) == 2
    assert "another scenario is trained now" in " ".join(messages_of_devices)


def test_a_cell_that_grows_and_a_device_of_its_own_training_that_stays(
    start: Start, tmp_path: Path, longer: Longer
) -> None:
    """UEs with a training of their own go on when the cell grows, and in the training after it, without a restart."""
    broker = Mosquitto(start, tmp_path / "broker")
    wanted = small(data__ues=2, frame__slots=3, frame__pull=2, push__contenders=0, rounds=5, strategy__warmup=0)

    def train(model: np.ndarray, round: int) -> Update:
        return Update(model + np.float32(0.01), 10)

    both = [Device(ue, broker.url, train) for ue in range(3)]
    for device in both[:2]:
        device.start(WAIT)
    for name in ("one", "two"):
        mqtt = make_server(wanted, broker.url, longer(replace(TIMING, downlink=0.5)), out=tmp_path / name)
        with running(mqtt) as raised:
            until(lambda name=name: rows(tmp_path / name) >= 1)
            write_request(tmp_path / name, {"data.ues": 3, "frame.pull": 3})
            if name == "one":
                both[2].start(WAIT)
        assert raised == []
        frames = fedslot.load(tmp_path / name).frames
        assert set(frames.loc[frames["event"] == "pulled", "ue"]) == {0, 1, 2}
        assert {fault.reason for fault in mqtt.server.faults.all} <= {"silent", "claim"}
    for device in both:
        device.stop()
        assert device.sent >= 3  # in both trainings


PULL_BOTH = {"data__ues": 2, "frame__slots": 2, "frame__pull": 2, "push__contenders": 0}


class Foreign:
    """A device whose messages have another meaning."""

    def __init__(self, url: str, ue: int) -> None:
        topic = Topics().of(ue_name(ue), "status")
        said = json.dumps(Status("online", "new", messages.PROTOCOL + 1, "9.9")._asdict()).encode()
        self.link = Connection(
            Broker(url), [(Topics().of("ps", "status"), True)], lambda *_: self.link.publish(topic, said)
        )


def test_versions_that_do_not_fit(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker, wanted = Mosquitto(start, tmp_path / "broker"), small(rounds=2, **PULL_BOTH)
    newer = Foreign(broker.url, 1)
    newer.link.open(WAIT)
    with devices_of(wanted, broker.url, [0]):
        mqtt = make_server(wanted, broker.url, TIMING, wait=1.0)
        mqtt.run()
    newer.link.close()
    line = f"ue1 speaks protocol {messages.PROTOCOL + 1} (fedslot 9.9), this PS {messages.PROTOCOL} (fedslot"
    assert caplog.text.count(line) == 1
    assert "upgrade the older one" in caplog.text

    caplog.clear()
    topics, ps = Topics(), Connection(Broker(broker.url), [], lambda *_: None)
    ps.open(WAIT)
    device = Device(0, broker.url, lambda model, round: Update(model, 1))
    device.start(WAIT)
    said = json.dumps(Status("running", "ps", messages.PROTOCOL + 1, "9.9")._asdict()).encode()
    ps.publish(topics.of("ps", "status"), said, retain=True)
    until(lambda: device.refused["status", "version"])
    assert "the PS speaks protocol" in caplog.text
    device.stop()
    with pytest.raises(RefusedError, match="the PS speaks protocol"):
        fedslot.deployment.mqtt.fetch_scenario(Broker(broker.url), "cell", 1.0)
    ps.close()


# paho-mqtt leaves the socket of a failed handshake to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_device_is_revoked_and_replaced(start: Start, folder: Path, tmp_path: Path) -> None:
    home, port = folder / "cell", free_port()
    setup = ["mqtt", "setup", str(home), "--host", "127.0.0.1", "--port", str(port), "--ues"]
    assert main([*setup, "2"]) == 0

    def broker() -> subprocess.Popen[Any]:
        with (tmp_path / "broker.log").open("ab") as log:
            process = start(PROGRAM, "-c", str(home / "broker" / "mosquitto.conf"), stdout=log, stderr=log)
        until(lambda: listens(port))
        return process

    def connects(files: Path, ue: int) -> None:
        own = files / f"ue{ue}.pem", files / f"ue{ue}-key.pem"
        device = Device(ue, Broker(f"mqtts://127.0.0.1:{port}", home / "ca.pem", *own), lambda m, r: Update(m, 1))
        device.start(WAIT)
        device.stop()

    stolen = tmp_path / "stolen"
    (home / "ue1").rename(stolen)
    (home / "ue1").symlink_to(stolen)
    first = broker()
    connects(stolen, 1)
    copies = {file.name: file.read_bytes() for file in stolen.iterdir()}
    assert main(["mqtt", "revoke", str(home), "--ue", "1"]) == 0
    assert main(["mqtt", "revoke", str(home), "--ue", "1"]) == 2  # there is none any more
    (home / "ue1").unlink()
    for name, content in copies.items():
        (stolen / name).write_bytes(content)
    first.terminate()
    first.wait()
    second = broker()
    with pytest.raises(RefusedError, match="certificate"):
        connects(stolen, 1)
    connects(home / "ue0", 0)
    assert main([*setup, "3"]) == 0  # a new certificate for UE 1, and a new UE; the list of revoked ones stays
    second.terminate()
    second.wait()
    broker()
    for ue in (1, 2):
        connects(home / ue_name(ue), ue)
    with pytest.raises(RefusedError, match="certificate"):
        connects(stolen, 1)


def test_the_broker_comes_late_and_goes_while_the_ps_waits(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for devices does not give up because the broker was away."""
    broker, wanted = Mosquitto(start, tmp_path / "broker"), small(rounds=2)
    mqtt = make_server(wanted, broker.url, TIMING, wait=3.0, out=tmp_path / "out")
    with running(mqtt) as raised:
        until(lambda: hasattr(mqtt.server, "now"))
        broker.kill()
        until(lambda: not mqtt.server.presence.connected and (tmp_path / "out" / "presence.json").exists())
        until(lambda: json.loads((tmp_path / "out" / "presence.json").read_text())["connected"] is False)
        broker.start()
        with devices_of(wanted, broker.url) as devices:
            until(lambda: all(device.over.is_set() for device in devices) or raised)
    assert raised == []
    assert rows(tmp_path / "out") == 2


def test_bad_options_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve = ["serve", "quickstart", "--broker", "mqtt://127.0.0.1:9", "--wait", "0", "--out", str(tmp_path / "out")]
    for words, line in (
        (["--from", str(tmp_path)], "the folder of a run whose network has these"),
        (["--metrics", "none"], "PORT, or HOST:PORT"),
        (["--log", "xml"], "'xml' is not one of 'text', 'json'"),
    ):
        assert main([*serve, *words]) == 2
        assert line in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
