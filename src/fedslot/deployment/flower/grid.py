"""Grids around another grid: one closes each round at its deadline, one shows only some nodes."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from logging import getLogger
from typing import TYPE_CHECKING

import httpx  # by which Flower's grid speaks to the SuperLink: it raises httpx.HTTPError when that cannot be reached
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fedslot.support.errors import InputError

if TYPE_CHECKING:  # private, but the types of Grid's own methods
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

POLL = 0.5  # seconds between looks at what has come in
FORGET = 120.0  # seconds after which an unanswered message is forgotten, or two deadlines, if that is longer
UNREADABLE = 0  # code of the error in place of a reply that could not be read
logger = getLogger("flwr")

Answer = tuple[Message, Message]
"""A message and the reply to it."""


class GridAround(Grid):
    """Passes every call on to another grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)


class SomeNodes(GridAround):
    """A grid that shows only some nodes."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        super().__init__(grid)
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes


class DeadlineGrid(GridAround):
    """A grid whose `send_and_receive` returns when all have answered or after `seconds`, whichever is first.

    Every reply is fetched in its own thread, so that a slow, huge or unreadable one delays no other. Answers to
    messages of earlier rounds are not returned with those of this round; they are in `others` until the next.
    Messages that nobody answers are forgotten after a while.
    """

    def __init__(self, grid: Grid, seconds: float, poll: float = POLL) -> None:
        if not 0 < seconds < math.inf:
            raise InputError("deadline", seconds, "a number of seconds above 0")
        super().__init__(grid)
        self.seconds, self.poll = seconds, poll
        self.open: dict[str, Message] = {}  # messages without an answer, by id
        self.others: list[Answer] = []
        self._fetching: set[str] = set()
        self._fetched: queue.SimpleQueue[tuple[str, list[Message]]] = queue.SimpleQueue()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages, and return the replies that come before the deadline or the timeout."""
        closes = time.monotonic() + min(self.seconds, math.inf if timeout is None else timeout)
        sent = self.send(messages)
        answers = self.collect(sent, closes)
        self.others = [answer for answer in answers if answer[0].metadata.message_id not in sent]
        return [reply for question, reply in answers if question.metadata.message_id in sent]

    def send(self, messages: Iterable[Message]) -> set[str]:
        """Send messages without waiting, and return their ids."""
        sent = list(messages)
        if sent:
            self._grid.push_messages(sent)
        new = {message.metadata.message_id: message for message in sent}
        oldest = time.time() - max(FORGET, 2 * self.seconds)
        self.open = {name: asked for name, asked in self.open.items() if asked.metadata.created_at > oldest} | new
        return set(new)

    def collect(self, wanted: AbstractSet[str], closes: float) -> list[Answer]:
        """Return all answers that come until every wanted one is there or the clock shows `closes`."""
        answers: list[Answer] = []
        while wanted & self.open.keys() and time.monotonic() < closes:
            for name in self.open.keys() - self._fetching:
                self._fetching.add(name)
                # not a pool's thread: the end of the program would wait for it
                threading.Thread(target=self._fetch, args=(self.open[name],), daemon=True).start()
            again = min(time.monotonic() + self.poll, closes)
            while wanted & self.open.keys() and (left := again - time.monotonic()) > 0:
                try:
                    name, replies = self._fetched.get(timeout=left)
                except queue.Empty:
                    break
                self._fetching.discard(name)
                if replies and (question := self.open.pop(name, None)):
                    answers += [(question, reply) for reply in replies]
        return answers

    def _fetch(self, message: Message) -> None:
        """Fetch the replies to a message: those of the node that was asked, and errors."""
        asked, replies = message.metadata, list[Message]()
        try:
            for reply in self._grid.pull_messages([asked.message_id]):
                answers_it = reply.metadata.reply_to_message_id == asked.message_id
                if answers_it and (reply.has_error() or reply.metadata.src_node_id == asked.dst_node_id):
                    replies.append(reply)
        except httpx.HTTPError as error:  # the SuperLink cannot be reached; the reply may be fine: try again later
            logger.warning("fedslot: %s", error)
        except Exception as error:
            replies = [Message(Error(UNREADABLE, f"unreadable ({type(error).__name__})"), reply_to=message)]
        self._fetched.put((asked.message_id, replies))
