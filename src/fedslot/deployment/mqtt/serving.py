"""The parameter server's side: announces frames, collects what devices send in their slots, and closes on time."""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from fedslot.deployment.announcement import CLOCK, Announcement
from fedslot.deployment.faults import NO_NODE, Fault
from fedslot.deployment.frame import Frame
from fedslot.deployment.mqtt import messages
from fedslot.deployment.mqtt.attendance import Attendance
from fedslot.deployment.mqtt.broker import Broker, Connection
from fedslot.deployment.mqtt.inbox import Inbox
from fedslot.deployment.mqtt.messages import PS, Topics
from fedslot.deployment.mqtt.signing import Signer, write_members
from fedslot.deployment.presence import say_ues
from fedslot.deployment.screening import HEADER_BYTES
from fedslot.deployment.server import ParameterServer
from fedslot.deployment.timing import Timing
from fedslot.support.errors import InputError, RefusedError

if TYPE_CHECKING:
    from torch import Tensor

LOOK_AGAIN = 0.02  # seconds
SAY_AGAIN = 5.0  # seconds after which the PS says again for whom it waits
BYTES_OF_A_UE = 64  # in an announcement, at most
CLOCK_MESSAGES = 12  # before the first frame
logger = getLogger(__name__)


class MqttServer:
    """Runs the rounds of a `ParameterServer` over MQTT.

    server: made with `unasked=True`. broker: where devices are. timing: lengths of the slots.
    cell: name by which PS and devices find one another on a broker that others use too.
    wait: seconds to wait for the broker, and for all devices before the first frame.
    sign_key: file of the private key with which the PS signs what it says; None: it does not.
    """

    def __init__(
        self,
        server: ParameterServer,
        broker: Broker,
        timing: Timing,
        *,
        cell: str = "cell",
        wait: float = 60.0,
        sign_key: str | Path | None = None,
    ) -> None:
        if not server.unasked:
            raise InputError("unasked", False, "true over MQTT, where devices speak of their own accord")
        self.server, self.timing, self.wait = server, timing, wait
        server.timing = timing
        self._topics, self._inbox = Topics(cell), Inbox(self.ues, server.update_bytes)
        self._signer, self._named = Signer(cell, sign_key), set[str]()  # devices that know the session
        self._attendance, self._failure = Attendance(self.ues), ""
        self._greeted = 0  # the number of the connection on which the PS said that it is here
        self._model_sent = ""  # version of the model that the broker retains
        self._scenario_sent = server.scenario
        self._before: AbstractSet[int] = set()  # UEs that were here in the last frame
        self._link = Connection(
            broker,
            # retained statuses may be of devices that died with the broker; those that are here answer `running`
            [(self._topics.of("+", messages.UPDATE), False), (self._topics.of("+", messages.STATUS), False)],
            self._message,
            on_lost=self._attendance.clear,
            on_failure=self._fail,
            name=PS,
            will=self._status(messages.OFFLINE),
            most_bytes=self._inbox.most_bytes + HEADER_BYTES,
            chunked=[self._topics.of("+", messages.UPDATE)],
        )

    @property
    def ues(self) -> int:
        """Number of UEs, which may grow."""
        return self.server.scenario.data.ues

    def run(self, initial: Tensor | None = None, origin: str = "") -> None:
        """Train to the end of the scenario, or until a callback of the server stops it.

        initial, origin: as in `ParameterServer.start`.
        """
        server, last = self.server, messages.OFFLINE
        self._link.open(self.wait)
        try:
            self._check_size()
            server.start(initial, origin)
            self._greet()
            self._gather(range(self.ues))
            if not self._online():
                command = f"fedslot device --ues 0-{self.ues - 1} --broker {self._link.broker.url}"
                raise RefusedError(f"no device came within {self.wait:g} s; start devices with: {command}")
            while frame := self._next():
                self._play(frame)
                self._refuse_failure()
            last = messages.OFFLINE if server.stopped else messages.FINISHED
        finally:
            server.finish()
            self._link.close(self._status(last))

    def _next(self) -> Frame | None:
        """Return the next frame, which pulls only UEs that are here."""
        if not self._same_connection():
            while not self._link.up.wait(1.0) and not self._failure:
                self._note_presence()
            self._greet()
            self._gather(self._before)
        self._bind()
        self._name_devices()
        self._before = self._online().keys()
        self._note_presence()
        frame = self.server.announce(self._before)
        if self.server.scenario is not self._scenario_sent:  # it was changed at the end of the last frame
            self._send_scenario()
        return frame

    def _play(self, frame: Frame) -> None:
        """Announce a frame and close it on time; one during which the broker was lost is announced again."""
        server, online = self.server, self._online()
        timing = self.timing.after(frame.grant.wait / server.ps.clock.radio.uplink_length)
        closes = self._announce(frame, timing) + timing.ends(frame.slots)
        while (left := closes - time.monotonic()) > 0 and self._same_connection() and not self._failure:
            if frame.foreseen and self._inbox.holds(frame.expected):
                break  # nobody else can send; one that is absent keeps the frame open, so that no rounds fly by
            time.sleep(min(left, LOOK_AGAIN))
        replies, faults = self._inbox.close()
        if not self._same_connection():
            logger.warning("round %d: the broker was lost; the frame is announced again", frame.round)
            return
        unasked = [ue for ue, _ in replies if ue not in frame.turns]
        faults += [Fault(frame.round, ue, online.get(ue, NO_NODE), "slot", "it has no turn") for ue in unasked]
        server.faults.add(*faults)
        server.close(frame, online, [(ue, reply) for ue, reply in replies if ue in frame.turns])

    def _same_connection(self) -> bool:
        """Return whether the broker was here all the time since the PS said that it is."""
        return self._link.up.is_set() and self._link.connections == self._greeted

    def _announce(self, frame: Frame, timing: Timing) -> float:
        """Send the announcement, then the model; return the time of the announcement."""
        server = self.server
        version, spent = messages.version(server.broadcast), server.now.slots_spent
        received, waiting = server.received.tolist(), int(server.now.waiting.sum())
        announcement = Announcement.of(
            frame, server.scenario, version, timing, spent, received, waiting, server.encoding, server.pace
        )
        self._inbox.open(announcement.frame, frame.round, timing, announcement.sent, server.roster.nodes)
        # the announcement comes first, because devices count from it and a model takes its time;
        # it is of no use later, so that it is sent once and not kept
        self._publish(messages.FRAME, announcement.write(), qos=0)
        if version != self._model_sent:
            model_topic = self._topics.of(PS, messages.MODEL)
            self._link.publish(model_topic, messages.write_model(server.broadcast, frame.round), retain=True)
            self._model_sent = version
        return announcement.sent

    def _publish(self, what: str, content: bytes, *, qos: int = 1, retain: bool = False) -> None:
        self._link.publish(self._topics.of(PS, what), self._signer.seal(what, content), qos=qos, retain=retain)

    def _status(self, state: str) -> tuple[str, bytes]:
        content = self._signer.seal(messages.STATUS, messages.write_status(state, PS))
        return self._topics.of(PS, messages.STATUS), content

    def _name_devices(self) -> None:
        """Name the devices that are here, if one of them has not been named: they take part in this session only."""
        nodes = {node for node, _ in self._attendance.claims}
        if self._signer.signs and not nodes <= self._named:
            self._publish(messages.MEMBERS, write_members(sorted(nodes)))
            self._named = nodes

    def _greet(self) -> None:
        """Say that the PS is here, and what it trains."""
        self._greeted, self._model_sent, self._named = self._link.connections, "", set()
        self._send_scenario()

    def _send_scenario(self) -> None:
        """Say what the PS trains, and call devices that may not have counted before."""
        self._scenario_sent = self.server.scenario
        self._inbox.ues = self._attendance.ues = self._link.assembler.topics = self.ues
        self._publish(messages.SCENARIO, self._scenario_sent.to_yaml().encode(), retain=True)
        self._link.publish(*self._status(messages.RUNNING), retain=True)

    def _gather(self, ues: AbstractSet[int] | range) -> None:
        """Wait until these UEs have a device, and let devices know the PS's clock before slots depend on it."""
        began = said = time.monotonic()
        self._bind()
        while (missing := set(ues) - self._online().keys()) and not self._failure:
            now = time.monotonic()
            self._note_presence()
            if not self._link.up.is_set():
                began = now  # nobody can come until the broker is back
            elif not self._same_connection():
                self._greet()
            if now >= began + self.wait:
                break
            if now >= said + SAY_AGAIN:
                said = now
                logger.info("waiting for %d of %d UEs: %s", len(missing), len(ues), say_ues(missing))
            time.sleep(LOOK_AGAIN)
            self._bind()
        self._refuse_failure()
        self._name_devices()
        self._note_presence()
        logger.info("%d of %d UEs are here", len(self._online()), self.ues)
        for _ in range(CLOCK_MESSAGES):
            self._publish(messages.CLOCK, messages.write_clock(CLOCK, time.monotonic()), qos=0)
            time.sleep(LOOK_AGAIN)

    def _note_presence(self) -> None:
        self.server.note_presence(self._online().keys(), self._link.up.is_set())

    def _online(self) -> dict[int, str]:
        return self.server.roster.online({node for node, _ in self._attendance.claims})

    def _bind(self) -> None:
        claims = self._attendance.claims
        faults = self.server.roster.bind(claims, {node for node, _ in claims}, self.server.now.round)
        self.server.faults.add(*faults)

    def _check_size(self) -> None:
        """Refuse a broker that does not even take announcements; models and updates may come in chunks."""
        needed = len(self.server.scenario.to_yaml()) + 4 * HEADER_BYTES + BYTES_OF_A_UE * self.ues
        largest = self._link.largest
        if largest is not None and needed > largest:
            raise RefusedError(
                f"the PS needs messages of {needed} bytes, but {self._link.broker.url} takes {largest} at most; "
                f"set max_packet_size {needed} or more in mosquitto.conf"
            )

    def _message(self, topic: str, content: bytes, retained: bool) -> None:
        arrived = time.monotonic()
        who, what = self._topics.parse(topic)
        if what == messages.UPDATE:
            self._inbox.put(who, content, retained, arrived)
        elif who != PS:
            self._attendance.note(who, content)

    def _refuse_failure(self) -> None:
        """Refuse to go on after the broker refused something."""
        if self._failure:
            raise RefusedError(self._failure)

    def _fail(self, line: str) -> None:
        self._failure = self._failure or line
