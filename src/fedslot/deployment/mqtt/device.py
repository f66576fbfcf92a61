"""A device's side: hear an announcement, decide whether to send, train in a thread of its own, send in a slot."""

from __future__ import annotations

import itertools
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.deployment.announcement import Announcement, Backlog
from fedslot.deployment.frame import Turn
from fedslot.deployment.mqtt import messages
from fedslot.deployment.mqtt.broker import Broker, Connection
from fedslot.deployment.screening import MOST_CHARACTERS, WEIGHT, Refusal, Update
from fedslot.deployment.timing import ClockOffset
from fedslot.support.errors import RefusedError

READERS: dict[str, Callable[[bytes], object]] = {
    messages.STATUS: messages.read_status,
    messages.CLOCK: messages.read_clock,
    messages.FRAME: Announcement.read,
    messages.MODEL: messages.unpack,
}
logger = getLogger(__name__)

Train = Callable[[NDArray[np.float32], int], Update]
"""Returns the update of a UE, trained from the global model (P,) in a round."""
Ready = Callable[[int], bool]
"""Tells whether a UE has an update to push in a round."""


class Workers:
    """The thread in which one or more devices train, the most urgent update first."""

    def __init__(self) -> None:
        self._tasks = queue.PriorityQueue[tuple[float, int, Callable[[], None] | None]]()
        self._count = itertools.count()
        threading.Thread(target=self._work, daemon=True, name="train").start()

    def add(self, deadline: float, task: Callable[[], None]) -> None:
        """Add a task. deadline: by any clock that all tasks share; the earliest comes first."""
        self._tasks.put((deadline, next(self._count), task))

    def end(self) -> None:
        """Begin no other task."""
        self._tasks.put((-math.inf, -1, None))

    def _work(self) -> None:
        while (task := self._tasks.get()[2]) is not None:
            try:
                task()
            except Exception:
                logger.exception("unexpected")


@dataclass(frozen=True)
class Assignment:
    """A UE's part in a frame. sent: when the announcement was sent, by this device's `time.monotonic`."""

    announced: Announcement
    turn: Turn
    sent: float

    @property
    def now(self) -> float:
        """Seconds since the announcement."""
        return time.monotonic() - self.sent

    @property
    def first(self) -> int:
        """The first slot in which the UE may send."""
        return self.turn.slot or self.turn.first

    @property
    def last(self) -> int:
        """The last slot in which the UE may send."""
        return self.turn.slot or self.turn.first + self.turn.slots - 1


class Device:
    """A device that stands for a UE, connected to a broker.

        Device(7, "mqtt://192.0.2.10", train).run()

    ue: the UE, from 0. broker: the broker's address, or `Broker` for TLS.
    train: called as `train(model, round)` with the global model (P,); returns an `Update`, the local model with the
        number of training samples. It runs in a thread of its own, and may take longer than a frame.
    cell: the cell's name. own: the UE's own `noise` and `samples`, by which strategies may choose who pushes.
    ready: called as `ready(round)`, tells at once whether the UE has an update to push. None: by chance, so that as
        many UEs push as the scenario says. Not called in seeded frames, where the PS decides it.
    scenario: the `scenario_key` for which `train` is made; frames of another scenario are refused. None: any.
    workers: the thread that trains, to be shared by many devices in one process.
    """

    def __init__(
        self,
        ue: int,
        broker: str | Broker,
        train: Train,
        *,
        cell: str = "cell",
        own: Mapping[str, float] | None = None,
        ready: Ready | None = None,
        scenario: str | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.ue, self.train, self.own, self.ready, self.scenario = ue, train, dict(own or {}), ready, scenario
        self.sent = 0  # number of updates
        self.failure = ""
        self.over = threading.Event()  # the training is over, or the device failed
        self._workers, self._shared = workers or Workers(), workers is not None
        self._name, self._node = messages.ue_name(ue), secrets.token_hex(8)
        self._backlog, self._clock = Backlog(ue), ClockOffset()
        self._model: tuple[object, memoryview] = (None, memoryview(b""))
        self._assignment: Assignment | None = None  # of the frame that was announced last
        self._waiting: Assignment | None = None  # until the model comes
        self._running = False  # whether a PS was here since this device is
        topics = messages.Topics(cell)
        self._status, self._update = topics.of(self._name, messages.STATUS), topics.of(self._name, messages.UPDATE)
        self._last = self._status, messages.write_status(messages.OFFLINE, self._node)
        self._link = Connection(
            broker if isinstance(broker, Broker) else Broker(broker),
            [(topics.of(messages.PS, what), what in (messages.STATUS, messages.MODEL)) for what in READERS],
            self._message,
            on_up=self._greet,
            on_failure=self.fail,
            will=self._last,
        )

    def start(self, wait: float = 60.0) -> None:
        """Connect and take part from now on. wait: seconds to wait for a broker that does not listen yet."""
        self._link.open(wait)

    def run(self, wait: float = 60.0) -> None:
        """Take part until the training is over."""
        run_devices([self], wait)

    def stop(self) -> None:
        """Take part no more."""
        self._assignment = None
        self._link.close(self._last)
        if not self._shared:
            self._workers.end()

    def fail(self, line: str) -> None:
        """Take part no more, for a reason that the user can mend."""
        self.failure = self.failure or line
        self.over.set()

    def _greet(self) -> None:
        self._link.publish(self._status, messages.write_status(messages.ONLINE, self._node), retain=True)

    def _message(self, topic: str, content: bytes, retained: bool) -> None:
        arrived, what = time.monotonic(), topic.rpartition("/")[2]
        try:
            message: Any = READERS[what](content)
        except (Refusal, ValueError) as error:
            logger.warning("%s: %s cannot be read (%s)", self._name, topic, error)
            return
        if what == messages.FRAME and not retained:
            self._hear(message, arrived)
        elif what == messages.CLOCK and not retained:
            name, sent = message
            self._clock.sent(name, sent, arrived)
        elif what == messages.MODEL:
            header, numbers = message
            self._model = header.get("model"), numbers
            self._train_if_possible()
        elif what == messages.STATUS:
            state, _ = message
            if state == messages.FINISHED and self._running:  # or it is of an earlier training than ours
                self.over.set()
            if state == messages.RUNNING:
                self._running = True
                self._greet()  # this PS may not have heard of us

    def _hear(self, announced: Announcement, arrived: float) -> None:
        """Decide whether to send in a frame, before any training."""
        self._assignment, self._waiting, self._running = None, None, True
        sent = self._clock.sent(announced.clock, announced.sent, arrived)
        if self.scenario is not None and announced.scenario != self.scenario:
            return self.fail("the PS trains another scenario than this device; start the device again")
        turn = announced.turn(self.ue)
        is_free = announced.backlogged is None
        has_update = not is_free or (self.ready(announced.round) if self.ready else self._backlog(announced))
        if turn is None or not (turn.slot or has_update) or (turn := turn.settle(self.own)) is None:
            return
        self._assignment = self._waiting = Assignment(announced, turn, sent)
        self._train_if_possible()

    def _train_if_possible(self) -> None:
        assignment, (model, numbers) = self._waiting, self._model
        if assignment is not None and assignment.announced.model == model:
            self._waiting = None
            deadline = assignment.sent + assignment.announced.timing.opens(assignment.first)
            self._workers.add(deadline, lambda: self._work(assignment, numbers))

    def _work(self, assignment: Assignment, numbers: memoryview) -> None:
        """Train, and send in the slot that was granted or that is drawn now. Called by the thread that trains."""
        announced, timing = assignment.announced, assignment.announced.timing
        if assignment is not self._assignment or assignment.now > timing.closes(assignment.last):
            return logger.warning("%s: no time to train in round %d", self._name, announced.round)
        header: dict[str, Any] = {"frame": announced.frame, "round": announced.round, "node": self._node}
        own = self.own
        try:
            update, start = self.train(messages.read_model(numbers), announced.round), messages.read_model(numbers)
            model = np.asarray(update.model, dtype=np.float32)
            own = {**own, "norm": float(np.linalg.norm(model - start)), **update.metrics}
            finite = {name: float(value) for name, value in update.metrics.items() if math.isfinite(value)}
            header["metrics"] = {**finite, WEIGHT: int(update.examples)}
        except Exception as error:  # of the user's own training: the PS shall know
            logger.exception("%s: training failed in round %d", self._name, announced.round)
            model, header["error"] = np.empty(0, np.float32), f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]
        if not assignment.turn.eligible(own):
            return None
        slots = assignment.turn.draw(own, late=timing.begun(assignment.now, assignment.first))
        if not slots or assignment.now > timing.closes(slots[0]):
            return logger.warning("%s: not ready for its slot in round %d", self._name, announced.round)
        message = messages.pack({**header, "slots": slots}, model)
        timer = threading.Timer(timing.opens(slots[0]) - assignment.now, self._send, (assignment, message, slots[0]))
        timer.daemon = True
        timer.start()

    def _send(self, assignment: Assignment, message: bytes, slot: int) -> None:
        """Send an update in its slot, or not at all. Called by a thread of its own."""
        timing = assignment.announced.timing
        left = timing.closes(slot) - assignment.now
        if assignment is self._assignment and left > 0:
            self._backlog.sent()
            self.sent += self._link.publish(self._update, message, expires=math.ceil(left + timing.tolerance))


def run_devices(devices: Sequence[Device], wait: float = 60.0, poll: float = 0.2) -> None:
    """Run devices in one process until the training is over; the first failure ends them all."""
    started: list[Device] = []
    try:
        for device in devices:
            device.start(wait)
            started.append(device)
        while not any(device.failure for device in devices) and not all(device.over.wait(poll) for device in devices):
            continue
    finally:
        for device in started:
            device.stop()
    for device in devices:
        if device.failure:
            raise RefusedError(device.failure)
