"""The PS's inbox: one update per UE and frame, in its slot; all else is a fault, and takes nobody else's place."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedslot
from fedslot.deployment.mqtt.inbox import Inbox
from fedslot.deployment.mqtt.messages import (
    PROTOCOL,
    pack,
    read_clock,
    read_status,
    unpack,
    unpack_model,
    write_clock,
    write_model,
    write_status,
)
from fedslot.deployment.screening import Refusal
from fedslot.deployment.timing import Timing

TIMING = Timing(slot=1.0, downlink=10.0, tolerance=0.25)
NODES = {ue: f"node{ue}" for ue in range(4)}
START = 1000.0


def message(ue: int = 1, **changes: Any) -> bytes:
    header = {"frame": "now", "round": 3, "node": f"node{ue}", "slots": [2], "metrics": {"num-examples": 5}}
    return pack({**header, **changes}, np.arange(6, dtype="<f4").tobytes())


@pytest.fixture
def inbox() -> Inbox:
    inbox = Inbox(ues=4, update_bytes=24)
    inbox.open("before", 2, TIMING, START - 100, NODES)
    inbox.close()
    inbox.open("now", 3, TIMING, START, NODES)
    return inbox


def put(inbox: Inbox, content: bytes, name: str = "ue1", retained: bool = False, after: float = 11.5) -> None:
    inbox.put(name, content, retained, START + after)


def test_an_update_in_its_slot(inbox: Inbox) -> None:
    put(inbox, message())
    assert inbox.holds([1])
    assert not inbox.holds([1, 2])
    ((ue, reply),), faults = inbox.close()
    assert (ue, reply.slots(), faults) == (1, (3, [2]), [])
    numbers, metrics = reply.content()
    assert np.frombuffer(numbers, "<f4").tolist() == list(range(6))
    assert metrics == {"num-examples": 5}


@given(after=st.floats(0, 30), slot=st.integers(1, 6))
def test_the_time_of_arrival_must_fit_the_slot(after: float, slot: int) -> None:
    inbox = Inbox(ues=4, update_bytes=24)
    inbox.open("now", 3, TIMING, START, NODES)
    put(inbox, message(slots=[slot]), after=after)
    ((_, reply),), _ = inbox.close()
    opens = 10.0 + slot - 1
    if abs(after - (opens - 0.25)) < 1e-6 or abs(after - (opens + 1.25)) < 1e-6:
        return  # a limit, up to rounding
    if opens - 0.25 < after < opens + 1.25:
        assert reply.slots() == (3, [slot])
    else:
        with pytest.raises(Refusal) as refused:
            reply.slots()
        assert refused.value.reason == ("early" if after < opens else "late")


@pytest.mark.parametrize(("header", "reason"), [({"error": "out of memory"}, "error"), ({}, "label")])
def test_a_reply_without_slots_or_metrics(header: dict[str, str], reason: str, inbox: Inbox) -> None:
    put(inbox, pack({"frame": "now", "round": 3, "node": "node1", **header}, b""))
    ((_, reply),), _ = inbox.close()
    with pytest.raises(Refusal, match=reason):
        reply.slots()
    with pytest.raises(Refusal, match="records"):
        reply.content()


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "retained": ({"content": message(), "retained": True}, "retained"),
    "of a closed frame": ({"content": message(frame="before")}, "late"),
    "of another server's frame": ({"content": message(frame="other")}, "stale"),
    "of no frame": ({"content": message(frame=None)}, "stale"),
    "from another device": ({"content": message(node="other")}, "taken"),
    "from no UE": ({"content": message(), "name": "ue4"}, "claim"),
    "from the PS": ({"content": message(), "name": "ps"}, "claim"),
    "from a UE in disguise": ({"content": message(), "name": "ue01"}, "claim"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_of_this_frame_takes_no_place(case: str, inbox: Inbox) -> None:
    arguments, reason = OTHERS[case]
    for _ in range(1000):  # nobody fills the disk
        put(inbox, **arguments)
    put(inbox, message())
    ((ue, reply),), faults = inbox.close()
    assert (ue, reply.slots()) == (1, (3, [2]))
    assert [fault.reason for fault in faults] == [reason]
    assert faults[0].round == (2 if reason == "late" else 3)


def test_the_same_once_more_is_counted_once_and_something_else_is_a_fault(inbox: Inbox) -> None:
    for _ in range(3):
        put(inbox, message())
    replies, faults = inbox.close()
    assert (len(replies), faults) == (1, [])
    inbox.open("next", 4, TIMING, START, NODES)
    put(inbox, message(frame="next"))
    put(inbox, message(frame="next", slots=[3]))
    ((_, reply),), faults = inbox.close()
    assert reply.slots() == (3, [2])
    assert [(fault.ue, fault.reason) for fault in faults] == [(1, "duplicate")]


BAD = {
    "empty": b"",
    "no header": b"x" * 100,
    "a header longer than the message": b"FSL1\xff\x00\x00\x00{}",
    "a header of gigabytes": b"FSL1\xff\xff\xff\xff{}",
    "no JSON": b"FSL1\x02\x00\x00\x00{]",
    "no object": b"FSL1\x02\x00\x00\x00[]",
    "not even text": b"FSL1\x02\x00\x00\x00\xff\xfe",
    "nested": b"FSL1\xa0\x86\x01\x00" + b"[" * 100_000,
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_costs_its_own_update(case: str, inbox: Inbox) -> None:
    put(inbox, BAD[case])
    put(inbox, message(2), name="ue2")
    replies = dict(inbox.close()[0])
    assert replies[2].slots() == (3, [2])
    with pytest.raises(Refusal) as refused:
        replies[1].slots()
    assert refused.value.reason == "malformed"


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(content: bytes) -> None:
    inbox = Inbox(ues=4, update_bytes=24)
    put(inbox, content)
    inbox.open("now", 3, TIMING, START, NODES)
    put(inbox, content)
    put(inbox, b"FSL1" + len(content).to_bytes(4, "little") + content)
    replies, _ = inbox.close()
    for _, reply in replies:
        with pytest.raises(Refusal):
            reply.slots()
    for read in (unpack, read_status, read_clock):
        try:
            read(content)
        except Refusal:
            continue


def test_numbers_of_a_huge_message_are_dropped(inbox: Inbox) -> None:
    put(inbox, message() + bytes(10**6))
    ((_, reply),), _ = inbox.close()
    assert reply.size() > 10**6
    assert reply.content()[0] == b""


def test_nothing_is_kept_between_frames(inbox: Inbox) -> None:
    inbox.close()
    put(inbox, message())
    put(inbox, b"x", name="ue2")
    assert not inbox.holds([1])
    inbox.open("next", 4, TIMING, START, NODES)
    replies, faults = inbox.close()
    assert replies == []
    assert [(fault.ue, fault.reason, fault.round) for fault in faults] == [(1, "late", 3), (2, "malformed", 3)]


def test_models_and_statuses_are_read_as_written() -> None:
    version, content = unpack_model(write_model(b"any bytes", round=4))
    assert (version, bytes(content)) == (hashlib.sha256(b"any bytes").hexdigest(), b"any bytes")
    assert read_status(write_status("online", "abc")) == ("online", "abc", PROTOCOL, fedslot.__version__)
    assert read_status(b'{"state": "online", "node": "abc"}') == ("online", "abc", 1, "")
    assert read_clock(write_clock("abc", 12.5)) == ("abc", 12.5)


@pytest.mark.parametrize("sent", ["NaN", "Infinity", "1" + "0" * 400, '"inf"', "null", "[1]"])
def test_a_clock_tells_a_time(sent: str) -> None:
    with pytest.raises(Refusal):
        read_clock(f'{{"clock": "abc", "sent": {sent}}}'.encode())
