"""The parameter server and its devices over a real broker: the simulator's answer, free devices, bad messages."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("paho.mqtt")

from mqtt_cell import TIMING, WAIT, Mosquitto, devices_of, make_server, over_mqtt, running, small, until

import fedslot
from fedslot import RefusedError
from fedslot.deployment.announcement import Announcement
from fedslot.deployment.mqtt import Broker, Device, Timing, Update, fetch_scenario
from fedslot.deployment.mqtt.broker import Link
from fedslot.deployment.mqtt.messages import Topics, pack, write_status
from fedslot.deployment.mqtt.serving import Attendance

pytestmark = over_mqtt

Longer = Callable[[Timing], Timing]
SHORT = Timing(slot=0.03, downlink=0.5, tolerance=0.6)
BUSY = {"silent", "late"}  # what a device may suffer on a busy machine
EXACT = ["slots", "pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum", "slots_spent"]


@pytest.fixture(scope="module")
def broker(
    start_shared: Callable[..., subprocess.Popen[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mosquitto]:
    made = Mosquitto(start_shared, tmp_path_factory.mktemp("broker"))
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"push__probability": 0.8}, 5.0),
        ({"push__channel": "crdsa", "frame__slots": 6}, 5.0),
        ({"strategy__name": "mqtt_cell:Newcomers"}, 5.0),  # by values, which are infinite before the first reception
        # UEs choose themselves whether they push, so that every frame is kept open to its end
        ({"strategy__name": "merit-push", "aggregation__name": "filtered", "fleet__noise": 0.5}, 1.0),
    ],
    ids=str,
)
def test_seeded_devices_give_what_the_simulator_gives(
    changes: dict[str, object], tolerance: float, broker: Mosquitto, tmp_path: Path, longer: Longer
) -> None:
    scenario, timing = small(**changes), longer(replace(TIMING, tolerance=tolerance))
    with devices_of(scenario, broker.url):
        made = make_server(scenario, broker.url, timing, out=tmp_path / "out")
        made.run()
    simulated, deployed = fedslot.run(scenario), fedslot.load(tmp_path / "out")
    assert made.server.faults.all == []
    pd.testing.assert_frame_equal(deployed.rounds[EXACT], simulated.rounds[EXACT])
    events = ["round", "slot", "event", "ue"]
    pd.testing.assert_frame_equal(deployed.frames[events], simulated.frames[events])
    losses = ["test_loss", "val_loss"]
    np.testing.assert_allclose(deployed.rounds[losses], simulated.rounds[losses], rtol=1e-3)
    np.testing.assert_allclose(deployed.model, simulated.model, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "out" / "summary.json").is_file()


@pytest.mark.parametrize("channel", ["collision", "irsa"])
def test_free_devices_push_of_their_own_accord(channel: str, broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """They decide by themselves who has an update and draw slots from their own entropy; half of the slots are open."""
    scenario = small(
        strategy__warmup=0, data__ues=8, frame__slots=8, push__contenders=4, push__channel=channel, rounds=4
    )
    timing = longer(Timing(slot=0.05, downlink=0.5, tolerance=0.5))
    with devices_of(scenario, broker.url) as devices:
        made = make_server(scenario, broker.url, timing, out=tmp_path / "out", seeded=False)
        made.run()
        sent = sum(device.sent for device in devices)
        until(lambda: all(device.over.is_set() for device in devices))
    rounds = fedslot.load(tmp_path / "out").rounds
    faults = made.server.faults.all
    assert {fault.reason for fault in faults} <= BUSY
    assert rounds["pulled"].sum() + rounds["wasted"].sum() == 8
    assert sent == rounds["pulled"].sum() + rounds["contenders"].sum() + sum(fault.reason == "late" for fault in faults)
    assert 0 < rounds["contenders"].sum() <= 4 * 6
    assert rounds["seconds"].min() > timing.closes(8)  # nobody knows who will push: frames are kept open to their end


def test_a_device_with_a_training_of_its_own(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """It moves the model by a constant, in a thread of its own; the global model moves by the weighted mean."""
    scenario = small(data__ues=2, frame__slots=2, frame__pull=2, push__contenders=0, rounds=2, fleet__noise=0.0)
    threads = set()

    def device(ue: int, samples: int) -> Device:
        def train(model: np.ndarray, round: int) -> Update:
            threads.add(threading.current_thread().name)
            return Update(model + np.float32(0.01 * (ue + 1)), samples, {"round": round})

        return Device(ue, broker.url, train, cell="own")

    made = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out", cell="own")
    with running(made) as raised:
        both = [threading.Thread(target=device(ue, samples).run) for ue, samples in ((0, 30), (1, 10))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(WAIT)
    assert raised == []
    moved = made.server.now.model - made.server.model.initial
    np.testing.assert_allclose(moved.numpy(), 2 * (0.75 * 0.01 + 0.25 * 0.02), rtol=1e-3)
    assert threads == {"train"}
    assert made.server.faults.all == []


class Rogue:
    """A device of UE 1 that says whatever a test wants, in every frame something else."""

    def __init__(self, url: str, topics: Topics, says: Sequence[Callable[[Rogue, Announcement], None]]) -> None:
        self.says, self.topics, self.model = iter(says), topics, b""
        wanted = [(topics.of("ps", what), True) for what in ("frame", "model", "status")]
        self.link = Link(Broker(url), wanted, self._hear, on_up=self.greet)

    def greet(self) -> None:
        self.link.publish(self.topics.of("ue1", "status"), write_status("online", "rogue"), retain=True)

    def _hear(self, topic: str, content: bytes, retained: bool) -> None:
        _, what = self.topics.parse(topic)
        if what == "model":
            self.model = content
        elif what == "status":
            self.greet()
        elif what == "frame":
            next(self.says)(self, Announcement.read(content))

    def say(self, content: bytes, ue: str = "ue1", **options: Any) -> None:
        self.link.publish(self.topics.of(ue, "update"), content, **options)


def saying(change: Callable[[dict[str, Any], np.ndarray], Any] | None = None, **options: Any) -> Any:
    """Say what an honest device would, after a change of the header or of the numbers."""

    def say(rogue: Rogue, heard: Announcement) -> None:
        header = {
            "frame": heard.frame,
            "round": heard.round,
            "node": "rogue",
            "slots": [heard.pull.index(1) + 1],
            "metrics": {"num-examples": 50},
        }
        numbers = np.full(PARAMETERS, 0.01, dtype=np.float32)
        changed = change(header, numbers) if change else None
        rogue.say(changed if isinstance(changed, bytes) else pack(header, numbers), **options)

    return say


def silence(rogue: Rogue, heard: Announcement) -> None:
    pass


PARAMETERS = 64 * 50 + 50 + 50 * 25 + 25 + 25 * 10 + 10
EARLIER: list[str] = []
SAYINGS: list[tuple[Any, str]] = [
    (saying(lambda header, numbers: EARLIER.append(header["frame"])), ""),  # an honest update
    (saying(lambda header, numbers: header.update(frame=EARLIER[0])), "late"),
    (saying(lambda header, numbers: header.update(frame="made up")), "stale"),
    (saying(lambda header, numbers: header.update(round=77)), "round"),
    (saying(lambda header, numbers: header.update(slots=[3])), "slot"),
    (saying(lambda header, numbers: header.pop("slots")), "label"),
    (saying(lambda header, numbers: header.update(node="other")), "taken"),
    (saying(lambda header, numbers: header.update(error="out of memory")), "error"),
    (saying(lambda header, numbers: header.pop("metrics")), "records"),
    (saying(lambda header, numbers: header.update(metrics={"num-examples": -1})), "examples"),
    (saying(lambda header, numbers: numbers.fill(np.nan)), "finite"),
    (saying(lambda header, numbers: numbers.fill(1e9)), "norm"),
    (saying(lambda header, numbers: pack(header, numbers[:-1])), "shape"),
    (saying(lambda header, numbers: b"\x80\x04nonsense"), "malformed"),
    (saying(lambda header, numbers: pack(header, np.zeros(10**6, np.float32))), "silent"),  # the broker drops it
    (saying(retain=True), "retained"),
    (silence, "silent"),
]


def test_a_bad_message_costs_its_own_update_only(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """UE 1 is pulled in every frame and says all that can be wrong; the other UEs are received every time."""
    scenario = small(data__ues=3, frame__slots=3, frame__pull=3, push__contenders=0, rounds=len(SAYINGS))
    EARLIER.clear()
    rogue = Rogue(broker.url, Topics("rogue"), [say for say, _ in SAYINGS])
    rogue.link.open(WAIT)
    with devices_of(scenario, broker.url, [0, 2], cell="rogue"):
        made = make_server(scenario, broker.url, longer(SHORT), out=tmp_path / "out", cell="rogue")
        made.run()
    rogue.link.close()
    assert made.server.model.size == PARAMETERS
    result, faults = fedslot.load(tmp_path / "out"), pd.read_csv(tmp_path / "out" / "faults.csv")
    rounds, received = result.rounds, result.frames.query("event == 'pulled'")
    assert set(faults.loc[faults["ue"] != 1, "reason"]) <= BUSY
    for round, (_, reason) in enumerate(SAYINGS):
        found = set(faults.loc[(faults["round"] == round) & (faults["ue"] == 1), "reason"])
        if reason == "late":  # noted in the round that it belongs to
            assert reason in set(faults.loc[faults["round"] == 0, "reason"])
        else:
            assert not reason or reason in found, (round, reason, found)
    assert received.loc[received["ue"] == 1, "round"].tolist() == [0]  # the honest one
    assert len(received) - 1 == 2 * len(SAYINGS) - (faults["ue"] != 1).sum()
    assert np.isfinite(rounds["test_loss"]).all()
    assert rounds["test_accuracy"].iloc[-1] > rounds["test_accuracy"].iloc[0]


def test_two_devices_for_one_ue(broker: Mosquitto, tmp_path: Path, longer: Longer) -> None:
    """The first one gets it. The second is turned away, and takes over when the first is gone."""
    scenario = small(data__ues=2, frame__slots=2, frame__pull=2, push__contenders=0, rounds=4)
    timing = longer(TIMING)
    with devices_of(scenario, broker.url, [0, 1], cell="twins") as (_, first):
        made = make_server(scenario, broker.url, timing, out=tmp_path / "out", cell="twins", wait=1.0)
        with devices_of(scenario, broker.url, [1], cell="twins") as (second,), running(made) as raised:
            until(lambda: made.server.now.round >= 2 if hasattr(made.server, "now") else False)
            first.stop() if first.sent else second.stop()
    assert raised == []
    assert fedslot.load(tmp_path / "out").rounds["pulled"].tail(1).tolist() == [2]
    assert "taken" in {fault.reason for fault in made.server.faults.all}
    assert first.sent
    assert second.sent


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
    cell, link = f"left-{left}", Link(Broker(broker.url), [], lambda *_: None)
    topics = Topics(cell)
    link.open(WAIT)
    made = make_server(scenario, broker.url, longer(TIMING), out=tmp_path / "out", cell=cell)
    with devices_of(scenario, broker.url, [0], cell=cell):
        for ue in ("ue0", "ue1"):
            link.publish(topics.of(ue, "status"), write_status(left, "ghost"), retain=True)
        link.close((topics.of("ghost", "status"), b""))  # once this is delivered, so are those before it
        with running(made) as raised:
            until(lambda: hasattr(made.server, "now"))  # it hears statuses
            with devices_of(scenario, broker.url, [1], cell=cell) as (second,):
                assert second.over.wait(WAIT)
    assert raised == []
    assert made.server.faults.all == []
    assert fedslot.load(tmp_path / "out").rounds["pulled"].tolist() == [2, 2]


def test_a_model_that_the_broker_does_not_take(start: Callable[..., subprocess.Popen[Any]], tmp_path: Path) -> None:
    tight = Mosquitto(start, tmp_path / "broker", "allow_anonymous true", "max_packet_size 9000")
    with pytest.raises(
        RefusedError, match=r"needs messages of \d+ bytes, but .* takes 9000 at most; set max_packet_size"
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
    one = {"data.ues": 1, "frame.slots": 1, "frame.pull": 1, "push.contenders": 0, "rounds": 1}
    with devices_of(small(**one), broker.url, cell="other") as (device,):
        with running(make_server(small(**one, seed=1), broker.url, SHORT, cell="other")):
            assert device.over.wait(WAIT)
        assert device.failure == "the PS trains another scenario than this device; start the device again"
