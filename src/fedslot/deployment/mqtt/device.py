"""A device's side: hear an announcement, decide whether to send, train in a thread of its own, send in a slot."""

from __future__ import annotations

import itertools
import math
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.deployment.announcement import MOST_BYTES, Announcement, Backlog
from fedslot.deployment.encoding import Carried
from fedslot.deployment.frame import Turn
from fedslot.deployment.mqtt import messages
from fedslot.deployment.mqtt.broker import Broker, Connection
from fedslot.deployment.mqtt.signing import Verifier
from fedslot.deployment.pace import ComputingSlots, OwnWork, Pace
from fedslot.deployment.screening import (
    METRICS_BYTES,
    MOST_CHARACTERS,
    SECONDS,
    VERSION,
    WEIGHT,
    Refusal,
    Update,
)
from fedslot.deployment.timing import ClockOffset
from fedslot.support.errors import RefusedError

READERS: dict[str, Callable[[bytes], object]] = {
    messages.STATUS: messages.read_status,
    messages.CLOCK: messages.read_clock,
    messages.FRAME: Announcement.read,
    messages.MEMBERS: bytes,  # the verifier has read it
}
RETAINED = (messages.STATUS, messages.MODEL)
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


@dataclass
class Assignment:
    """A UE's part in a frame.

    sent: when the announcement was sent, by this device's `time.monotonic`.
    late: push slots that begin before the UE is ready, by the clock of the scenario; None: by the device's own.
    unsent: why the update was not sent yet; "" once it is, and while none is due.
    offered: whether the UE has chosen an update that it held.
    """

    announced: Announcement
    turn: Turn
    sent: float
    late: int | None
    unsent: str = "the model did not come in time"
    offered: bool = False

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


@dataclass(frozen=True)
class Learned:
    """What a training has yielded.

    version: the round from whose broadcast it began. start, model: (P,) the models before and after it.
    failed: why there is none; "" if there is. metrics: for the PS. own: what a condition for pushing may go by.
    took: seconds.
    """

    version: int
    start: NDArray[np.float32]
    model: NDArray[np.float32]
    failed: str
    metrics: Mapping[str, float]
    own: Mapping[str, float]
    took: float


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
    parameters: number of parameters of the models that `train` takes; others are refused. None: any.
    ps_key: file of the PS's public key; the device then takes nothing that the PS did not sign. None: anything.
    carried: a state that `train` carries from one received update to the next, if it has one.
    computing: in asynchronous seeded frames, the slots that a training takes from a version; None: it takes no time.
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
        parameters: int | None = None,
        ps_key: str | Path | None = None,
        carried: Carried[Any] | None = None,
        computing: ComputingSlots | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.ue, self.train, self.own, self.ready, self.scenario = ue, train, dict(own or {}), ready, scenario
        self.parameters = parameters
        self.sent, self.turns = 0, 0  # number of updates, and of frames in which the UE was to send one
        self.refused = Counter[tuple[str, str]]()  # messages that were refused, by their kind and the reason
        self.failure = ""
        self.over = threading.Event()  # the training is over, or the device failed
        self.outdated = False  # whether the PS trains another scenario than this device
        self._workers, self._shared = workers or Workers(), workers is not None
        self._name, self._node = messages.ue_name(ue), secrets.token_hex(8)
        self._backlog, self._clock = Backlog(ue), ClockOffset()
        self._verifier = Verifier(cell, ps_key, self._node)
        self._version, self._models = "", dict[str, memoryview]()  # announced last; that one and the newest other
        self._error = Carried(np.empty(0, np.float32))  # that compression left in the last received update
        self._carried = carried
        self._lock = threading.Lock()  # of the three below
        self._own = OwnWork(ue, computing)
        self._learned = dict[int, Learned]()  # by the version, what the device holds, or will hold
        self._beginning: Announcement | None = None  # of the model from which it shall train, until that comes
        self._timer: threading.Timer | None = None
        self._assignment: Assignment | None = None  # of the frame that was announced last
        self._waiting: Assignment | None = None  # until the model comes
        self._running = False  # whether a PS was here since this device is
        topics = messages.Topics(cell)
        self._status, self._update = topics.of(self._name, messages.STATUS), topics.of(self._name, messages.UPDATE)
        self._last = self._status, messages.write_status(messages.OFFLINE, self._node)
        self._link = Connection(
            broker if isinstance(broker, Broker) else Broker(broker),
            [(topics.of(messages.PS, what), what in RETAINED) for what in (*READERS, messages.MODEL)],
            self._message,
            on_up=self._greet,
            on_failure=self.fail,
            name=self._name,
            will=self._last,
            most_bytes=None if parameters is None else 4 * parameters + METRICS_BYTES + MOST_BYTES,
            chunked=[topics.of(messages.PS, messages.MODEL)],
        )

    def start(self, wait: float = 60.0) -> None:
        """Connect and take part from now on. wait: seconds to wait for a broker that does not listen yet."""
        self._link.open(wait)

    def run(self, wait: float = 60.0, *, stay: bool = False) -> None:
        """Take part until the training is over. stay: and in those after it, until the process is ended."""
        run_devices([self], wait, until=(lambda device: False) if stay else Device.is_over)

    def is_over(self) -> bool:
        """Return whether the training is over, or the device failed."""
        return self.over.is_set()

    def is_done(self) -> bool:
        """Return whether this device, made for its scenario, has no more part: the training is over or another one."""
        return self.over.is_set() or self.outdated

    def stop(self) -> None:
        """Take part no more."""
        self._end_turn()
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
            self._take(what, content, retained, arrived)
        except Refusal as refusal:
            self._refuse(what, refusal)

    def _refuse(self, what: str, refusal: Refusal) -> None:
        """Count a message that is refused, and say so."""
        self.refused[what, refusal.reason] += 1
        count = self.refused[what, refusal.reason]
        if str(count).strip("0") == "1":  # the first, the tenth, the hundredth, so that nobody can fill the log
            again = f", {count} times" if count > 1 else ""
            logger.warning("%s: %s refused%s (%s)", self._name, what, again, refusal)

    def _take(self, what: str, content: bytes, retained: bool, arrived: float) -> None:
        if what == messages.MODEL:
            version, model = messages.unpack_model(content)
            # whoever sends others does not push out the one that is announced
            self._models = {version: model} | {v: m for v, m in self._models.items() if v == self._version}
            return self._train_if_possible()
        content, stale = self._verifier.open(what, content)
        try:
            message: Any = READERS[what](content)
        except ValueError as error:
            raise Refusal("malformed", str(error)) from None
        if what == messages.STATUS:
            message.check("the PS", "device")
        if what == messages.STATUS and message.state == messages.RUNNING:
            self._running = True
            self._greet()  # this PS may not have heard of us
        elif what == messages.STATUS and (stale or not self._running):
            return  # of an earlier training than ours
        elif what != messages.STATUS and retained:
            raise Refusal("retained", "the PS says it only to those that are here")
        elif stale:
            raise Refusal("replay", stale)
        elif what == messages.STATUS and message.state == messages.FINISHED:
            self._end_turn()
            self.over.set()
        elif what == messages.CLOCK:
            name, sent = message
            self._clock.sent(name, sent, arrived)
        elif what == messages.FRAME:
            self._hear(message, arrived)

    def _hear(self, announced: Announcement, arrived: float) -> None:
        """Decide whether to send in a frame, before any training."""
        if self.scenario is not None and announced.scenario != self.scenario:
            self.outdated = True
            raise Refusal("scenario", "the PS trains another one than this device; if it does, start the device again")
        self._end_turn()
        self._running, self._version = True, announced.model
        received = announced.last_received(self.ue)
        self._error.settle(announced.round, received)
        if announced.pace is None and self._carried is not None:
            self._carried.settle(announced.round, received)
        sent = self._clock.sent(announced.clock, announced.sent, arrived)
        turn = announced.turn(self.ue)
        is_free = announced.backlogged is None
        has_update = not is_free or (self.ready(announced.round) if self.ready else self._backlog(announced))
        turn = turn.settle(self.own) if turn is not None and (turn.slot or has_update) else None
        if announced.pace is not None:
            return self._go_on(announced, announced.pace, turn, sent, received)
        if turn is None:
            return
        late = None if is_free else 0
        self._assignment = self._waiting = Assignment(announced, turn, sent, late)
        self.turns += 1
        self._train_if_possible()

    def _go_on(self, announced: Announcement, pace: Pace, turn: Turn | None, sent: float, received: int) -> None:
        """Begin to train where no frame waits for it, and send what the UE holds, or will hold by its slot."""
        with self._lock:
            if self._beginning is not None:  # its model did not come
                self._own.drop(self._beginning.round)
            version = self._own.received(received)
            if self._carried is not None and version is not None:
                self._carried.settle(announced.round, version)
            begins = self._own.hear(pace, announced.round, time.monotonic())
            self._beginning = announced if begins else None
            fresh = announced.round if begins else None  # another training may have had this version, too
            kept = (version for version in self._learned if version != fresh and self._own.needs(version))
            self._learned = {version: self._learned[version] for version in kept}
            late = None if turn is None or pace.start is None else self._own.late(turn, pace)
            if turn is not None and (pace.start is None or late is not None):
                self._assignment = Assignment(announced, turn, sent, late, unsent="")
        self._train_if_possible()
        self._offer()

    def _end_turn(self) -> None:
        """Forget the frame; if the UE was to send in it and did not, say why."""
        last, self._assignment, self._waiting = self._assignment, None, None
        if self._timer is not None:
            self._timer.cancel()
        if last is not None and last.unsent:
            logger.warning("%s: no update in round %d: %s", self._name, last.announced.round, last.unsent)

    def _train_if_possible(self) -> None:
        """Begin to train once the model is here."""
        assignment, beginning = self._waiting, self._beginning
        announced = beginning if assignment is None else assignment.announced
        content = None if announced is None else self._models.get(announced.model)
        if content is None:
            return
        if assignment is not None:
            self._waiting, assignment.unsent = None, "too slow: an earlier training had not ended"
            deadline = assignment.sent + assignment.announced.timing.opens(assignment.first)
            self._workers.add(deadline, partial(self._work, assignment, content))
        elif beginning is not None:
            self._beginning, began = None, time.monotonic()
            self._workers.add(began, partial(self._work_on, beginning, content, began))

    def _work(self, assignment: Assignment, content: memoryview) -> None:
        """Train, and send in the slot that was granted or that is drawn now. Called by the thread that trains."""
        if assignment is not self._assignment or assignment.now > assignment.announced.timing.closes(assignment.last):
            return
        assignment.unsent = "too slow: its training had not ended"
        learned = self._learn(assignment.announced, content, time.monotonic())
        if learned is None:
            assignment.unsent = "its model was refused"
        else:
            self._prepare(assignment, learned)

    def _work_on(self, announced: Announcement, content: memoryview, began: float) -> None:
        """Train for whatever frame comes after that. Called by the thread that trains."""
        if not self._needs(announced):
            return
        learned, version = self._learn(announced, content, began), announced.round
        with self._lock:
            if not self._needs(announced):
                return
            if learned is None:
                self._own.drop(version)
            else:
                self._own.done(version, time.monotonic())
                self._learned[version] = learned
        self._offer()

    def _needs(self, announced: Announcement) -> bool:
        """Tell whether the training that began with an announcement still counts."""
        pace = announced.pace
        return pace is not None and pace.training == self._own.training and self._own.needs(announced.round)

    def _offer(self) -> None:
        """Send what the UE holds, if it has a slot in this frame and has not sent yet."""
        with self._lock:
            assignment = self._assignment
            if assignment is None or assignment.offered or assignment.announced.pace is None:
                return
            learned = self._learned.get(self._own.version)
            if learned is None:
                return
            assignment.offered = True
            self._own.sends(learned.version)
        self._prepare(assignment, learned)

    def _learn(self, announced: Announcement, content: memoryview, began: float) -> Learned | None:
        """Train from the model of an announcement; None if that is refused. began: since when it takes time."""
        version = announced.round
        try:
            start = announced.encoding.read_model(content, version, self.parameters)
        except Refusal as refusal:
            self._refuse(messages.MODEL, refusal)
            return None
        try:
            update = self.train(start.copy(), version)
            model = np.asarray(update.model, dtype=np.float32)
            own = {"norm": float(np.linalg.norm(model - start)), **update.metrics}
            took = time.monotonic() - began
            measured = {"norm": own["norm"], SECONDS: took, **update.metrics}
            metrics: dict[str, float] = {name: float(value) for name, value in measured.items() if math.isfinite(value)}
            metrics[WEIGHT] = int(update.examples)
        except Exception as failure:
            return Learned(version, start, start, self._say(failure, version), {}, {}, time.monotonic() - began)
        if announced.pace is not None:
            metrics[VERSION] = version
        return Learned(version, start, model, "", metrics, own, took)

    def _say(self, failure: Exception, version: int) -> str:
        """Return what the PS shall know of an error in the user's own training, and log it."""
        logger.exception("%s: training failed in round %d", self._name, version)
        return f"{type(failure).__name__}: {failure}"[:MOST_CHARACTERS]

    def _prepare(self, assignment: Assignment, learned: Learned) -> None:
        """Choose the slot, now that the UE is ready, and send in it."""
        announced, timing, own = assignment.announced, assignment.announced.timing, {**self.own, **learned.own}
        header: dict[str, Any] = {"frame": announced.frame, "round": announced.round, "node": self._node}
        numbers, error, failed = b"", self._error.value, learned.failed
        if not failed:
            try:
                key = learned.version, self.ue
                numbers, error = announced.encoding.write_update(learned.model, learned.start, *key, error)
                header["metrics"] = learned.metrics
            except Exception as failure:
                failed = self._say(failure, learned.version)
        if failed:
            header["error"] = failed
        if not assignment.turn.eligible(own):
            assignment.unsent = ""
            return
        late = timing.begun(assignment.now, assignment.first) if assignment.late is None else assignment.late
        slots = assignment.turn.draw(own, late)
        if not slots or assignment.now > timing.closes(slots[0]):
            if announced.pace is None:  # otherwise it is held for another frame
                assignment.unsent = (
                    f"too slow: it was trained {assignment.now:.2f} s after the announcement, in {learned.took:.2f} s"
                )
            return
        self.turns += announced.pace is not None
        assignment.unsent = "its slot had not come"
        self._error.advance(announced.round, error)
        message = messages.pack({**header, "slots": slots}, numbers)
        timer = threading.Timer(timing.opens(slots[0]) - assignment.now, self._send, (assignment, message, slots[0]))
        timer.daemon, self._timer = True, timer
        timer.start()

    def _send(self, assignment: Assignment, message: bytes, slot: int) -> None:
        """Send an update in its slot, or not at all. Called by a thread of its own."""
        timing = assignment.announced.timing
        left = timing.closes(slot) - assignment.now
        if assignment is not self._assignment or left <= 0:
            return
        self._backlog.sent()
        if self._link.publish(self._update, message, expires=math.ceil(left + timing.tolerance)):
            self.sent, assignment.unsent = self.sent + 1, ""
        else:
            assignment.unsent = "the connection is lost"


def run_devices(
    devices: Sequence[Device],
    wait: float = 60.0,
    poll: float = 0.2,
    *,
    until: Callable[[Device], bool] = Device.is_over,
) -> None:
    """Run devices in one process until the training is over; the first failure ends them all.

    until: tells of a device whether it need not take part any more.
    """
    started: list[Device] = []
    try:
        for device in devices:
            device.start(wait)
            started.append(device)
        while not any(device.failure for device in devices) and not all(until(device) for device in devices):
            time.sleep(poll)
    finally:
        for device in started:
            device.stop()
    for device in devices:
        if device.failure:
            raise RefusedError(device.failure)
