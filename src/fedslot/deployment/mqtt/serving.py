"""The parameter server's side: announces frames, collects what devices send in their slots, and closes on time."""

from __future__ import annotations

import threading
import time
from collections.abc import Set as AbstractSet
from logging import getLogger

from fedslot.deployment.announcement import CLOCK as CLOCK_NAME
from fedslot.deployment.announcement import Announcement
from fedslot.deployment.faults import NO_NODE, Fault
from fedslot.deployment.frame import Frame
from fedslot.deployment.mqtt.broker import Broker, Link
from fedslot.deployment.mqtt.inbox import Inbox, MqttReply
from fedslot.deployment.mqtt.messages import (
    CLOCK,
    FINISHED,
    FRAME,
    MODEL,
    OFFLINE,
    ONLINE,
    PS,
    RUNNING,
    SCENARIO,
    STATUS,
    UPDATE,
    Topics,
    read_status,
    ue_of,
    version,
    write_clock,
    write_model,
    write_status,
)
from fedslot.deployment.screening import HEADER_BYTES, Refusal
from fedslot.deployment.server import ParameterServer
from fedslot.deployment.timing import Timing
from fedslot.support.errors import InputError, RefusedError

MOST_NODES = 8  # devices that may claim the same UE at once
LOOK_AGAIN = 0.02  # seconds
CLOCK_MESSAGES = 12  # before the first frame
logger = getLogger(__name__)


class Attendance:
    """Which devices are here and which UE each stands for, by their status messages."""

    def __init__(self, ues: int) -> None:
        self.ues = ues
        self._lock = threading.Lock()
        self._nodes: dict[str, int] = {}
        self._unreadable: set[str] = set()

    def note(self, name: str, message: bytes) -> None:
        """Take a status message. name: whose topic it came on."""
        ue = ue_of(name, self.ues)
        if ue is None:
            return
        try:
            state, node = read_status(message)
        except Refusal as refusal:
            if name not in self._unreadable:  # once, so that nobody can fill the log
                self._unreadable.add(name)
                logger.warning("a status of %s cannot be read (%s)", name, refusal.detail)
            return
        with self._lock:
            if state == ONLINE:
                if sum(other == ue for other in self._nodes.values()) < MOST_NODES:
                    self._nodes.setdefault(node, ue)
            elif self._nodes.get(node) == ue:
                del self._nodes[node]

    def clear(self) -> None:
        """Forget all, because the connection was lost; those that are here say so again."""
        with self._lock:
            self._nodes = {}

    @property
    def claims(self) -> list[tuple[str, int]]:
        """The devices that are here with the UEs that they claim."""
        with self._lock:
            return list(self._nodes.items())


class MqttServer:
    """Runs the rounds of a `ParameterServer` over MQTT.

    server: made with `unasked=True`. broker: where devices are. timing: lengths of the slots.
    cell: name by which PS and devices find one another on a broker that others use too.
    wait: seconds to wait for the broker, and for all devices before the first frame.
    """

    def __init__(
        self,
        server: ParameterServer,
        broker: Broker,
        timing: Timing,
        *,
        cell: str = "cell",
        wait: float = 60.0,
    ) -> None:
        if not server.unasked:
            raise InputError("unasked", False, "true over MQTT, where devices speak of their own accord")
        self.server, self.timing, self.wait = server, timing, wait
        ues, parameters = server.scenario.data.ues, server.model.size
        self._topics, self._inbox, self._attendance = Topics(cell), Inbox(ues, parameters), Attendance(ues)
        self._failure = ""
        self._greeted = 0  # the number of the connection on which the PS said that it is here
        self._model_sent = ""  # version of the model that the broker retains
        self._before: AbstractSet[int] = set()  # UEs that were here in the last frame
        self._link = Link(
            broker,
            # retained statuses may be of devices that died with the broker; those that are here answer `running`
            [(self._topics.of("+", UPDATE), False), (self._topics.of("+", STATUS), False)],
            self._message,
            on_lost=self._attendance.clear,
            on_failure=self._fail,
            will=(self._topics.of(PS, STATUS), write_status(OFFLINE, PS)),
            most_bytes=self._inbox.most_bytes + HEADER_BYTES,
        )

    def run(self) -> None:
        """Train to the end of the scenario, or until a callback of the server stops it."""
        server, last = self.server, OFFLINE
        self._link.open(self.wait)
        try:
            self._check_size()
            server.start()
            self._greet()
            self._gather(range(server.scenario.data.ues), self.wait, needed=True)
            while frame := server.announce():
                self._play(frame)
                self._refuse_failure()
            last = OFFLINE if server.stopped else FINISHED
        finally:
            server.finish()
            self._link.close((self._topics.of(PS, STATUS), write_status(last, PS)))

    def _play(self, frame: Frame) -> None:
        """Announce a frame and close it on time; one during which the broker was lost is announced again."""
        if not self._same_connection():
            while not self._link.wait_up(1.0) and not self._failure:
                continue
            self._greet()
            self._gather(self._before, self.wait)
        self._bind(frame.round)
        online = self._online()
        self._before = online.keys()
        closes = self._announce(frame) + self.timing.ends(frame.slots)
        while (left := closes - time.monotonic()) > 0 and self._same_connection() and not self._failure:
            if frame.foreseen and self._inbox.holds(frame.expected):
                break  # nobody else can send; one that is absent keeps the frame open, so that no rounds fly by
            time.sleep(min(left, LOOK_AGAIN))
        updates, faults = self._inbox.close()
        if self._same_connection():
            self._close(frame, online, updates, faults)
        else:
            logger.warning("round %d: the broker was lost; the frame is announced again", frame.round)

    def _same_connection(self) -> bool:
        """Return whether the broker was here all the time since the PS said that it is."""
        return self._link.up and self._link.connections == self._greeted

    def _announce(self, frame: Frame) -> float:
        """Send the announcement, then the model; return the time of the announcement."""
        server = self.server
        model = server.now.model.cpu().numpy()
        model_version = version(model)
        spent, received = server.now.slots_spent, server.received.tolist()
        announcement = Announcement.of(frame, server.scenario, model_version, self.timing, spent, received)
        self._inbox.open(announcement.frame, frame.round, self.timing, announcement.sent, server.roster.nodes)
        # the announcement comes first, because devices count from it and a model takes its time;
        # it is of no use later, so that it is sent once and not kept
        self._link.publish(self._topics.of(PS, FRAME), announcement.write(), qos=0)
        if model_version != self._model_sent:
            self._link.publish(self._topics.of(PS, MODEL), write_model(model, frame.round), retain=True)
            self._model_sent = model_version
        return announcement.sent

    def _close(
        self, frame: Frame, online: dict[int, str], updates: list[tuple[int, MqttReply]], faults: list[Fault]
    ) -> None:
        server, turns = self.server, frame.turns
        unasked = [ue for ue, _ in updates if ue not in turns]
        faults += [Fault(frame.round, ue, online.get(ue, NO_NODE), "slot", "it has no turn") for ue in unasked]
        server.faults.add(*faults)
        server.close(frame, online, [(ue, update) for ue, update in updates if ue in turns])

    def _greet(self) -> None:
        """Say that the PS is here, and what it trains."""
        self._greeted, self._model_sent = self._link.connections, ""
        self._link.publish(self._topics.of(PS, SCENARIO), self.server.scenario.to_yaml().encode(), retain=True)
        self._link.publish(self._topics.of(PS, STATUS), write_status(RUNNING, PS), retain=True)

    def _gather(self, ues: AbstractSet[int] | range, wait: float, needed: bool = False) -> None:
        """Wait until these UEs have a device, for `wait` seconds at most."""
        until = time.monotonic() + wait
        while True:
            self._bind(self.server.now.round)
            online = self._online()
            if set(ues) <= online.keys() or time.monotonic() >= until or self._failure:
                break
            time.sleep(LOOK_AGAIN)
        self._refuse_failure()
        logger.info("%d of %d UEs are here", len(online), self.server.scenario.data.ues)
        if needed and not online:
            command = f"fedslot device --ues 0-{self.server.scenario.data.ues - 1} --broker {self._link.broker.url}"
            raise RefusedError(f"no device came within {wait:g} s; start devices with: {command}")
        self._tell_time()

    def _tell_time(self) -> None:
        """Let devices know the PS's clock before slots depend on it."""
        for _ in range(CLOCK_MESSAGES):
            self._link.publish(self._topics.of(PS, CLOCK), write_clock(CLOCK_NAME, time.monotonic()), qos=0)
            time.sleep(LOOK_AGAIN)

    def _online(self) -> dict[int, str]:
        return self.server.roster.online({node for node, _ in self._attendance.claims})

    def _bind(self, round: int) -> None:
        claims = self._attendance.claims
        self.server.faults.add(*self.server.roster.bind(claims, {node for node, _ in claims}, round))

    def _check_size(self) -> None:
        needed, largest = 4 * self.server.model.size + 4 * HEADER_BYTES, self._link.largest
        if largest is not None and needed > largest:
            raise RefusedError(
                f"the model needs messages of {needed} bytes, but {self._link.broker.url} takes {largest} at most; "
                f"set max_packet_size {needed} or more in mosquitto.conf"
            )

    def _message(self, topic: str, content: bytes, retained: bool) -> None:
        arrived = time.monotonic()
        who, what = self._topics.parse(topic)
        if what == UPDATE:
            self._inbox.put(who, content, retained, arrived)
        elif who != PS:
            self._attendance.note(who, content)

    def _refuse_failure(self) -> None:
        """Refuse to go on after the broker refused something."""
        if self._failure:
            raise RefusedError(self._failure)

    def _fail(self, line: str) -> None:
        self._failure = self._failure or line
