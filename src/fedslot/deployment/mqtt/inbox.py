"""The updates that come to the PS, each attributed to its UE, its frame and its slot; nothing else passes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedslot.deployment.faults import NO_NODE, Fault
from fedslot.deployment.mqtt.messages import ue_of, unpack
from fedslot.deployment.screening import HEADER_BYTES, METRICS_BYTES, Refusal
from fedslot.deployment.timing import Timing

REMEMBERED = 64  # frames whose late updates are known as late


@dataclass(frozen=True)
class MqttReply:
    """A device's message as `fedslot.deployment.reception.Reply`, checked against the time of its arrival.

    header: of the message, or why it could not be read. update: its undecoded parameters.
    length, digest: bytes of the whole message, and their hash. arrived: seconds after the announcement.
    """

    header: dict[str, Any] | Refusal
    update: bytes
    length: int
    digest: int
    arrived: float
    timing: Timing

    def slots(self) -> tuple[object, object]:
        if isinstance(self.header, Refusal):
            raise self.header
        if "error" in self.header:
            raise Refusal("error", str(self.header["error"]))
        if "slots" not in self.header:
            raise Refusal("label", "the update names no slots")
        slots = self.header["slots"]
        if isinstance(slots, list) and slots and type(slots[0]) is int and 1 <= slots[0] <= 1 << 30:
            self._check_time(slots[0])
        return self.header.get("round"), slots

    def size(self) -> int:
        return self.length

    def content(self) -> tuple[bytes, Mapping[str, object]]:
        metrics = self.header.get("metrics") if isinstance(self.header, dict) else None
        if not isinstance(metrics, dict):
            raise Refusal("records", "no metrics")
        return self.update, metrics

    def _check_time(self, slot: int) -> None:
        opens, closes, tolerance = self.timing.opens(slot), self.timing.closes(slot), self.timing.tolerance
        if self.arrived > closes + tolerance:
            raise Refusal("late", f"{self.arrived - closes:.3f} s after slot {slot}")
        if self.arrived < opens - tolerance:
            raise Refusal("early", f"{opens - self.arrived:.3f} s before slot {slot}")


class Inbox:
    """Collects one update per UE for the frame that is open. Every method may be called from any thread.

    ues: number of UEs. update_bytes: the most bytes of an update without its header.
    """

    def __init__(self, ues: int, update_bytes: int) -> None:
        self.ues = ues
        self.most_bytes = update_bytes + METRICS_BYTES + HEADER_BYTES
        self._lock = threading.Lock()
        self._frame: str | None = None
        self._rounds: dict[str, int] = {}  # by frame: the one that is open and some before it
        self._nodes: Mapping[int, str] = {}
        self._replies: dict[int, MqttReply] = {}
        self._faults: dict[tuple[int, str], Fault] = {}

    def open(self, frame: str, round: int, timing: Timing, announced: float, nodes: Mapping[int, str]) -> None:
        """Begin a frame. announced: when, by the clock of `put`. nodes: the device of each UE; others are ignored."""
        with self._lock:
            self._frame, self._timing, self._announced, self._nodes = frame, timing, announced, dict(nodes)
            self._rounds[frame] = round
            if len(self._rounds) > REMEMBERED:
                del self._rounds[next(iter(self._rounds))]

    def close(self) -> tuple[list[tuple[int, MqttReply]], list[Fault]]:
        """End the frame; return its updates by UE, and the faults since the last call."""
        with self._lock:
            replies, faults = list(self._replies.items()), list(self._faults.values())
            self._frame, self._replies, self._faults = None, {}, {}
            return replies, faults

    def holds(self, ues: Iterable[int]) -> bool:
        """Return whether each of these UEs has sent something in the frame that is open."""
        with self._lock:
            return self._replies.keys() >= set(ues)

    def put(self, name: str, message: bytes, retained: bool, now: float) -> None:
        """Take a message that came at a time `now`. name: whose topic it came on."""
        with self._lock:
            ue = ue_of(name, self.ues)
            if ue is None:
                self._fault(-1, "claim", f"{name!r} is not a UE from ue0 to ue{self.ues - 1}")
            elif retained:  # the broker would send it again and again
                self._fault(ue, "retained")
            else:
                self._put(ue, message, now)

    def _put(self, ue: int, message: bytes, now: float) -> None:
        header: dict[str, Any] | Refusal
        try:
            header, update = unpack(message)
        except Refusal as refusal:
            header, update = refusal, memoryview(b"")
        if isinstance(header, dict):
            frame = header.get("frame")
            round = self._rounds.get(frame) if isinstance(frame, str) else None
            if round is None:
                return self._fault(ue, "stale", "of no frame of this server")
            if frame != self._frame:
                return self._fault(ue, "late", "its frame is closed", round)
            if header.get("node") != self._nodes.get(ue):
                return self._fault(ue, "taken", f"not from node {self._nodes.get(ue, NO_NODE)}")
        elif self._frame is None:
            return self._fault(ue, header.reason, header.detail)
        digest, length = hash(message), len(message)
        if ue not in self._replies:
            content = bytes(update) if length <= self.most_bytes else b""
            arrived = now - self._announced
            self._replies[ue] = MqttReply(header, content, length, digest, arrived, self._timing)
        elif digest != self._replies[ue].digest:  # the same once more is a retransmission, which MQTT allows
            self._fault(ue, "duplicate")

    def _fault(self, ue: int, reason: str, detail: str = "", round: int | None = None) -> None:
        """Note the first fault of each kind, so that nobody can fill the disk."""
        if round is None:
            round = next(reversed(self._rounds.values()), 0)
        detail = Refusal(reason, detail).detail
        self._faults.setdefault((ue, reason), Fault(round, ue, self._nodes.get(ue, NO_NODE), reason, detail))
