"""Metrics and health over HTTP, as Prometheus and a load balancer would read them."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families
from small_cell import scenario

import fedslot
from fedslot import InputError
from fedslot.deployment import metrics as module
from fedslot.deployment.faults import Fault, FaultLog
from fedslot.deployment.metrics import Listener, Metrics
from fedslot.deployment.presence import Presence


@pytest.fixture
def server() -> Any:
    faults = FaultLog()
    faults.add(Fault(0, 1, "a", "late"), Fault(0, 2, "b", "late"), Fault(1, 2, "b", "norm"))
    now = SimpleNamespace(round=3)
    return SimpleNamespace(
        scenario=scenario(rounds=3), presence=Presence(6, frozenset({1, 2}), True), faults=faults, now=now
    )


@pytest.fixture
def listener(server: Any) -> Iterator[Listener]:
    with Metrics().serving(server, "0") as listener:
        yield listener


def get(listener: Listener, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(listener: Listener) -> dict[str, float]:
    """Return what Prometheus would read: numbers by name, with the value of a label, if any."""
    status, text = get(listener, "/metrics")
    assert status == 200
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_counted_is_what_the_rounds_say(server: Any) -> None:
    """The rounds are those of a simulated run, which calls the same callbacks."""
    metrics = Metrics()
    with metrics.serving(server, "127.0.0.1:0") as listener:
        rounds = fedslot.run(scenario(rounds=3), callbacks=[metrics]).rounds
        read = numbers(listener)
    assert read["fedslot_rounds_total"] == read["fedslot_round"] == read["fedslot_rounds_wanted"] == 3
    assert read["fedslot_updates_total pulled"] == rounds["pulled"].sum()
    assert read["fedslot_updates_total pushed"] == rounds["push_received"].sum()
    assert read["fedslot_collided_total"] == rounds["collided"].sum()
    assert read["fedslot_test_accuracy"] == rounds["test_accuracy"].iloc[-1]
    assert read["fedslot_slots_spent"] == rounds["slots_spent"].iloc[-1]
    assert read["fedslot_round_seconds_count"] == 3
    assert read["fedslot_round_seconds_sum"] == pytest.approx(rounds["seconds"].sum())
    assert (read["fedslot_ues"], read["fedslot_ues_present"], read["fedslot_broker_connected"]) == (6, 2, 1)
    assert (read["fedslot_faults_total late"], read["fedslot_faults_total norm"]) == (2, 1)
    assert read[f"fedslot_info {fedslot.__version__}"] == 1


def test_health_follows_what_happens(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    with metrics.serving(server, "0") as listener:

        def health() -> tuple[int, str]:
            status, text = get(listener, "/health")
            return status, json.loads(text)["state"]

        assert health() == (200, "training")
        server.presence = Presence(6, frozenset(), True)
        assert health() == (503, "no devices")
        server.presence = Presence(6, frozenset({1}), False)
        assert health() == (503, "broker lost")
        server.presence = Presence(6, frozenset({1}), True)
        monkeypatch.setattr(module, "LEAST_QUIET", 0.0)
        assert health() == (503, "quiet")
        metrics.on_end(None)
        assert health() == (200, "over")
        facts = json.loads(get(listener, "/health")[1])
    assert (facts["round"], facts["rounds"], facts["ues"], facts["present"]) == (3, 3, 6, 1)


def test_other_pages_and_methods(listener: Listener) -> None:
    assert get(listener, "/")[0] == get(listener, "/metrics/../etc/passwd")[0] == 404
    assert numbers(listener)["fedslot_rounds_total"] == 0


def test_a_request_that_is_none_does_not_block_others(listener: Listener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port)) as mute:
        mute.sendall(b"GET /metr")
        assert get(listener, "/health")[0] == 200


@pytest.mark.parametrize("address", ["", "http", "70000", "a:b", "127.0.0.1", "-1"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(InputError, match=r"metrics: .* PORT, or HOST:PORT"):
        Metrics().serving(SimpleNamespace(), address)


def test_a_port_that_is_taken(listener: Listener) -> None:
    with pytest.raises(InputError, match="an address that is free here"):
        Metrics().serving(SimpleNamespace(), str(listener.port))


def test_the_loopback_is_the_default(listener: Listener) -> None:
    assert listener._http.server_address[0] == "127.0.0.1"


def test_presence_in_words() -> None:
    assert Presence(3, frozenset({0, 1, 2}), True).words == ""
    assert Presence(9, frozenset({0, 4}), True).words == "offline: 1-3, 5-8"
    assert Presence(3, frozenset({0}), False).words == "the broker is lost"


def test_presence_is_read_as_written() -> None:
    here = Presence(6, frozenset({0, 5}), True)
    assert Presence.read(here.to_json()) == here
    assert here.away == [1, 2, 3, 4]
    for text in ("", "[]", "{}", '{"ues": 3, "here": 7, "connected": true}'):
        with pytest.raises(ValueError):
            Presence.read(text)
