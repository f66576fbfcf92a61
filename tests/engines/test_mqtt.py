"""The parameter server and its devices over a real broker: the simulator's answer, free devices, bad messages."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho.mqtt")

from hostile_bytes import COMPRESSION, HOSTILE, honest
from mqtt_cell import TIMING, WAIT, Mosquitto, as_simulated, devices_of, make_server, over_mqtt, running, small, until
from small_cell import CLIPPED

import fedslot
from fedslot import RefusedError
from fedslot.compression import Shapes
from fedslot.deployment.announcement import Announcement
from fedslot.deployment.mqtt import Broker, Device, Timing, Update, fetch_scenario, run_devices
from fedslot.deployment.mqtt.attendance import Attendance
from fedslot.deployment.mqtt.broker import Connection
from fedslot.deployment.mqtt.messages import Topics, pack, write_status

pytestmark = over_mqtt

Longer = Callable[[Timing], Timing]
FOLLOWED = {**COMPRESSION, "feedback": True}
ASYNCHRONOUS = {"mode": "asynchronous", "rounds": 10, "fleet__computing": {"mean_slots": 9}}
SHORT = Timing(slot=0.03, downlink=0.5, tolerance=0.6)
BUSY = {"silent", "late"}  # what a device may suffer on a busy machine


@pytest.fixture(scope="module")
def broker(
    start_shared: Callable[..., subprocess.Popen[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mosquitto]:
    broker = Mosquitto(start_shared, tmp_path_factory.mktemp("broker"))
    yield broker
    broker.kill()


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"push__probability": 0.8, "chain": CLIPPED}, 5.0),
        ({"push__probability": "auto", "push__arrivals": 0.5, "push__retries": 1, "strategy__warmup": 1}, 5.0),
        ({"push__channel": "crdsa", "frame__slots": 6}, 5.0),
        (
            {
                **{"strategy__name": "merit-push", "aggregation__name": "filtered", "fleet__noise": 0.5},
                "strategy__options": {"attribute": "norm"},
            },
            1.0,
        ),
        (
            {
                "compression": FOLLOWED,
                "broadcast_compression": {"name": "eden", "options": {"bits": 6}},
                "rounds": 8,
            },
            5.0,
        ),
        # frames in which the PS does not know who sends are kept open to their end
        ({**ASYNCHRONOUS, "push__probability": 0.8, "strategy__name": "fedavg"}, 1.0),
        ({**ASYNCHRONOUS, "strategy__name": "greedy-shap", "staleness": "soft"}, 1.0),
        (
            {
                **{**ASYNCHRONOUS, "rounds": 8, "fleet__computing": {"mean_slots": 3, "redraw": True}},
                **{"compression": FOLLOWED, "broadcast_compression": {"name": "eden", "options": {"bits": 6}}},
                **{"strategy__name": "merit-push", "aggregation__name": "filtered", "staleness__most": 2},
            },
            1.0,
        ),
        ({"strategy__name": "merit-push", "aggregation__name": "filtered", "fleet__noise": 0.5}, 1.0),
    ],
    ids=str,
)
def test_seeded_devices_give_what_the_simulator_gives(
    changes: dict[str, object], tolerance: float, broker: Mosquitto, tmp_path: Path, longer: Longer
) -> None:
    scenario, timing = small(**changes), longer(replace(TIMING, tolerance=tolerance))
    with devices_of(scenario, broker.url):
        mqtt = make_server(scenario, broker.url, timing, out=tmp_path / "out")
        mqtt.run()
    assert mqtt.server.faults.all == []
    as_simulated(tmp_path / "out", scenario)
    assert (tmp_path / "out" / "summary.json").is_file()


@pytest.mark.parametrize("channel", ["collision", "irsa"])
def test_free_devices_push_of_their_own_accord(channel: str, broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """They decide by themselves who has an update and draw slots from their own entropy; half of the slots are open."""
    compressed = {"compression": FOLLOWED} if channel == "irsa" else {}
    scenario = small(
        strategy__warmup=0,
        data__ues=8,
        frame__slots=8,
        push__contenders=4,
        push__channel=channel,
        rounds=4,
        **compressed,
    )
    timing = longer(Timing(slot=0.05, downlink=0.5, tolerance=0.5))
    with devices_of(scenario, broker.url) as devices:
        mqtt = make_server(scenario, broker.url, timing, out=tmp_path / "out", seeded=False)
        mqtt.run()
        sent = sum(device.sent for device in devices)
        until(lambda: all(device.over.is_set() for device in devices))
    rounds = fedslot.load(tmp_path / "out").rounds
    faults = mqtt.server.faults.all
    assert {fault.reason for fault in faults} <= BUSY
    assert rounds["pulled"].sum() + rounds["wasted"].sum() == 8
    assert sent == rounds["pulled"].sum() + rounds["contenders"].sum() + sum(fault.reason == "late" for fault in faults)
    assert 0 < rounds["contenders"].sum() <= 4 * 6
    assert rounds["seconds"].min() > timing.closes(8)  # nobody knows who will push: frames are kept open to their end


@pytest.mark.parametrize("compression", [None, {"name": "eden", "options": {"bits": 8}}], ids=["plain", "compressed"])
def test_a_device_with_a_training_of_its_own(
    compression: dict[str, object] | None, broker: Mosquitto, tmp_path: Path, longer: Longer
) -> None:
    """It moves the model by a constant, in a thread of its own; the global model moves by the weighted mean."""
    scenario = small(
        data__ues=2,
        frame__slots=2,
        frame__pull=2,
        push__contenders=0,
        rounds=2,
        fleet__noise=0.0,
        compression=compression,
        broadcast_compression=compression,
    )
    cell = "own" if compression is None else "own-compressed"
    threads = set()

    def device(ue: int, samples: int) -> Device:
        def train(model: np.ndarray, round: int) -> Update:
            threads.add(threading.current_thread().name)
            return Update(model + np.float32(0.01 * (ue + 1)), samples, {"round": round})

        return Device(ue, broker.url, train, cell=cell)

    mqtt = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out", cell=cell)
    with running(mqtt) as raised:
        both = [threading.Thread(target=device(ue, samples).run) for ue, samples in ((0, 30), (1, 10))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(WAIT)
    assert raised == []
    moved = mqtt.server.now.model - mqtt.server.model.initial
    wanted = np.full(len(moved), 2 * (0.75 * 0.01 + 0.25 * 0.02))
    assert np.linalg.norm(moved.numpy() - wanted) < (0.02 if compression else 1e-3) * np.linalg.norm(wanted)
    assert threads == {"train"}
    assert mqtt.server.faults.all == []


def test_no_frame_waits_for_a_device_that_trains(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """UE 2 trains for several frames; its updates are of older versions, and no fault. UE 3 fails, and says so."""
    timing = longer(Timing(slot=0.1, downlink=0.3, tolerance=0.4))
    slow, cell = 3 * timing.ends(4), "asynchronous"
    scenario = small(
        mode="asynchronous", data__ues=4, push__contenders=1, rounds=16, strategy__name="fedavg", fleet__noise=0.0
    )

    def device(ue: int) -> Device:
        def train(model: np.ndarray, round: int) -> Update:
            if ue == 3:
                raise ValueError("no samples")
            if ue == 2:
                time.sleep(slow)
            return Update(model + np.float32(0.001), 10)

        return Device(ue, broker.url, train, cell=cell)

    mqtt = make_server(scenario, broker.url, timing, out=tmp_path / "out", cell=cell, seeded=False)
    devices = [device(ue) for ue in range(4)]
    with running(mqtt) as raised:
        run_devices(devices, WAIT)
    assert raised == []
    result = fedslot.load(tmp_path / "out")
    assert result.frames is not None
    received = result.frames[result.frames["event"].isin(["pulled", "pushed"])]
    late = received.loc[received["ue"] == 2, "staleness"]
    assert len(late) >= 1
    assert late.min() >= 2
    assert received.loc[received["ue"] < 2, "staleness"].median() <= 2
    assert result.rounds["seconds"].median() < slow / 2
    assert {(fault.ue, fault.reason) for fault in mqtt.server.faults.all if fault.reason != "late"} == {(3, "error")}
    known = mqtt.server.now.forecast  # the PS knows the time of UE 2, in slots
    assert known.need[2] * timing.slot == pytest.approx(slow, rel=0.5)
    assert known.need[:2].max() < known.need[2] / 2
    moved = (mqtt.server.now.model - mqtt.server.model.initial).numpy()
    assert np.isfinite(moved).all()
    assert moved.max() > 0.002


class Meter:
    """Counts the bytes of all messages of a cell, by the last part of their topics."""

    def __init__(self, url: str, cell: str) -> None:
        self.bytes, self.messages = Counter[str](), Counter[str]()
        self.link = Connection(Broker(url), [(f"fedslot/{cell}/#", False)], self._hear)
        self.link.open(WAIT)

    def _hear(self, topic: str, content: bytes, retained: bool) -> None:
        kind = topic.rpartition("/")[2]
        self.bytes[kind] += len(content)
        self.messages[kind] += 1


EIGHT_BITS = {"name": "quantise", "options": {"bits": 8}}


@pytest.mark.parametrize(
    ("name", "fields", "update", "model"),
    [
        ("full", {}, 4 * 4785, 4 * 4785),
        ("updates", {"compression": COMPRESSION}, 1221, 4 * 4785),
        ("both", {"compression": COMPRESSION, "broadcast_compression": EIGHT_BITS}, 1221, 4785 + 24),
    ],
)
def test_bytes_on_the_wire(
    name: str, fields: dict[str, object], update: int, model: int, broker: Mosquitto, tmp_path: Path, longer: Longer
) -> None:
    """Of 4785 parameters with 2 bits and six scales, 1221 bytes; beside it, a message has a header."""
    scenario = small(rounds=3, frame__slots=6, frame__pull=6, push__contenders=0, **fields)
    meter = Meter(broker.url, name)
    with devices_of(scenario, broker.url, cell=name):
        mqtt = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out", cell=name)
        mqtt.run()
    until(lambda: meter.messages["update"] == 18 and meter.messages["model"] >= 3)
    meter.link.close()
    rounds = fedslot.load(tmp_path / "out").rounds
    assert mqtt.server.faults.all == []
    assert rounds["bits"].tolist() == [8 * 6 * update] * 3
    for kind, content, count in (("update", update, 18), ("model", model, 3)):
        header = meter.bytes[kind] / count - content
        assert 0 < header < 320, (kind, header)


class Rogue:
    """A device of UE 1 that says something else in every frame: a change of an honest update's header and numbers.

    A change returns options of the message, in place of `pack(header, numbers)` a `content`; None is silence.
    """

    def __init__(self, url: str, topics: Topics, says: Iterable[Change | None]) -> None:
        self.says, self.topics = iter(says), topics
        wanted = [(topics.of("ps", what), True) for what in ("frame", "status")]
        self.link = Connection(Broker(url), wanted, self._hear, on_up=self.greet)

    def greet(self) -> None:
        self.link.publish(self.topics.of("ue1", "status"), write_status("online", "rogue"), retain=True)

    def _hear(self, topic: str, content: bytes, retained: bool) -> None:
        if topic.endswith("status"):
            return self.greet()
        heard, change = Announcement.read(content), next(self.says)
        header = {"frame": heard.frame, "round": heard.round, "node": "rogue", "metrics": {"num-examples": 50}}
        header["slots"] = [heard.pull.index(1) + 1]
        numbers = np.full(PARAMETERS, 0.01, dtype=np.float32)
        if change is not None:
            options = change(header, numbers) or {}
            message = {"content": pack(header, numbers.tobytes()), **options}
            self.link.publish(self.topics.of("ue1", "update"), **message)


PARAMETERS = 64 * 50 + 50 + 50 * 25 + 25 + 25 * 10 + 10
Change = Callable[[dict[str, Any], np.ndarray], Any]
SAYINGS: list[tuple[Change | None, str]] = [
    (lambda header, numbers: None, ""),  # an honest update
    (lambda header, numbers: header.update(node="other"), "taken"),
    (lambda header, numbers: header.update(error="out of memory"), "error"),
    (lambda header, numbers: numbers.fill(np.nan), "finite"),
    (lambda header, numbers: {"content": pack(header, numbers[:-1].tobytes())}, "shape"),
    (lambda header, numbers: {"content": b"\x80\x04nonsense"}, "malformed"),
    (lambda header, numbers: {"content": pack(header, bytes(4 * 10**6))}, "silent"),  # the broker drops it
    (lambda header, numbers: {"retain": True}, "retained"),
    (None, "silent"),
]


def test_a_bad_message_costs_its_own_update_only(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """UE 1 is pulled in every frame; the other UEs are received every time. `test_inbox.py` has more bad messages."""
    scenario = small(data__ues=3, frame__slots=3, frame__pull=3, push__contenders=0, rounds=len(SAYINGS))
    rogue = Rogue(broker.url, Topics("rogue"), [change for change, _ in SAYINGS])
    rogue.link.open(WAIT)
    with devices_of(scenario, broker.url, [0, 2], cell="rogue"):
        mqtt = make_server(scenario, broker.url, longer(SHORT), out=tmp_path / "out", cell="rogue")
        mqtt.run()
    rogue.link.close()
    assert mqtt.server.model.size == PARAMETERS
    received = fedslot.load(tmp_path / "out").frames.query("event == 'pulled'")
    faults = mqtt.server.faults.all
    others = [fault.reason for fault in faults if fault.ue != 1]
    assert set(others) <= BUSY
    for round, (_, reason) in enumerate(SAYINGS):
        reasons = {fault.reason for fault in faults if (fault.round, fault.ue) == (round, 1)}
        assert reason in reasons or not reason, (round, reason, reasons)
    assert received.loc[received["ue"] == 1, "round"].tolist() == [0]  # the honest one
    assert len(received) - 1 == 2 * len(SAYINGS) - len(others)
    assert np.isfinite(mqtt.server.now.model.numpy()).all()


class Hostile(Rogue):
    """A device of UE 1 that sends the hostile bytes of all tests in place of compressed updates, one in each frame."""

    def __init__(self, url: str, topics: Topics, shapes: Shapes) -> None:
        self.shapes = shapes
        super().__init__(url, topics, [self._instead_of(change) for change, _ in HOSTILE.values()])

    def _instead_of(self, change: Callable[[bytes, Shapes], bytes]) -> Change:
        def say(header: dict[str, Any], numbers: np.ndarray) -> dict[str, bytes]:
            message = honest(self.shapes, 0, header["round"], 1)
            return {"content": pack(header, change(message, self.shapes))}

        return say


def test_hostile_bytes_in_place_of_a_compressed_update(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """UE 1 is pulled in every frame, and refused in every one; the model is that of a cell without it."""
    scenario = small(
        data__ues=3, frame__slots=3, frame__pull=3, push__contenders=0, rounds=len(HOSTILE), compression=COMPRESSION
    )
    mqtt = make_server(scenario, broker.url, longer(SHORT), out=tmp_path / "out", cell="hostile")
    rogue = Hostile(broker.url, Topics("hostile"), mqtt.server.model.tensor_shapes)
    rogue.link.open(WAIT)
    with devices_of(scenario, broker.url, [0, 2], cell="hostile"):
        mqtt.run()
    rogue.link.close()
    faults = mqtt.server.faults.all
    assert {fault.reason for fault in faults if fault.ue != 1} <= BUSY
    reasons = {fault.round: fault.reason for fault in faults if fault.ue == 1}
    assert list(reasons.values()) == [reason for _, reason in HOSTILE.values()]
    received = fedslot.load(tmp_path / "out").frames.query("event == 'pulled'")
    assert 1 not in set(received["ue"])
    assert np.isfinite(mqtt.server.now.model.numpy()).all()


def test_a_device_is_here_until_it_says_otherwise_on_its_own_topic() -> None:
    here = Attendance(ues=2)
    for name, state, node in [
        ("ue0", "online", "a"),
        ("ue1", "online", "b"),
        ("ue1", "online", "a"),  # a node is one UE only
        ("ue1", "offline", "a"),  # said by another
        ("ue2", "online", "c"),  # not a UE
        ("ue2", "offline", "b"),
        ("ue0", "offline", "c"),
    ]:
        here.note(name, write_status(state, node))
    assert here.claims == [("a", 0), ("b", 1)]
    here.note("ue0", write_status("offline", "a"))
    assert here.claims == [("b", 1)]


@pytest.mark.parametrize("left", ["online", "offline"])
def test_statuses_that_dead_devices_left(left: str, broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """A broker may retain `online` of a device that died with it, and `offline` of one that was replaced."""
    scenario = small(data__ues=2, frame__slots=2, frame__pull=2, push__contenders=0, rounds=2)
    cell, link = f"left-{left}", Connection(Broker(broker.url), [], lambda *_: None)
    topics = Topics(cell)
    link.open(WAIT)
    mqtt = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out", cell=cell)
    with devices_of(scenario, broker.url, [0], cell=cell):
        for ue in ("ue0", "ue1"):
            link.publish(topics.of(ue, "status"), write_status(left, "ghost"), retain=True)
        link.close((topics.of("ghost", "status"), b""))  # once this is delivered, so are those before it
        with running(mqtt) as raised:
            until(lambda: hasattr(mqtt.server, "now"))  # it hears statuses
            with devices_of(scenario, broker.url, [1], cell=cell) as (second,):
                assert second.over.wait(WAIT)
    assert raised == []
    assert mqtt.server.faults.all == []
    assert fedslot.load(tmp_path / "out").rounds["pulled"].tolist() == [2, 2]


def test_a_model_that_the_broker_does_not_take_comes_in_chunks(
    start: Callable[..., subprocess.Popen[Any]], tmp_path: Path, longer: Longer
) -> None:
    """Model and updates have 19 kB; the result is the simulator's."""
    tight = Mosquitto(start, tmp_path / "broker", "allow_anonymous true", "max_packet_size 9000")
    scenario = small(rounds=3)
    with devices_of(scenario, tight.url, [0, 1, 2]) as first:
        mqtt = make_server(scenario, tight.url, longer(TIMING), out=tmp_path / "out")
        with running(mqtt) as raised:
            until(lambda: hasattr(mqtt.server, "now"))
            with devices_of(scenario, tight.url, [3, 4, 5]) as second:
                until(lambda: all(device.over.is_set() for device in first + second) or raised)
    assert raised == []
    assert mqtt.server.faults.all == []
    as_simulated(tmp_path / "out", scenario)


def test_a_broker_that_takes_nothing(start: Callable[..., subprocess.Popen[Any]], tmp_path: Path) -> None:
    tight = Mosquitto(start, tmp_path / "broker", "allow_anonymous true", "max_packet_size 3000")
    with pytest.raises(
        RefusedError, match=r"needs messages of \d+ bytes, but .* takes 3000 at most; set max_packet_size"
    ):
        make_server(small(), tight.url).run()


def test_nobody_to_talk_to(broker: Mosquitto, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"no device came within 0.1 s; start devices with: fedslot device --ues 0-5"
    ):
        make_server(small(), broker.url, cell="empty", wait=0.1, out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
    with pytest.raises(RefusedError, match=r"no PS came to mqtt://.* within 0.1 s"):
        fetch_scenario(Broker(broker.url), "empty-too", 0.1)
    with pytest.raises(RefusedError, match=r"cannot be reached .*; is a broker running there"):
        make_server(small(), "mqtt://127.0.0.1:9", wait=0.0).run()
