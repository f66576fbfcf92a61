"""A grid that closes each round at its deadline, whatever the devices do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from logging import WARNING

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.run import Run

from fedslot.errors import InputError

POLL = 0.5  # seconds between looks at what has come in
UNREADABLE = 0  # code of the error in place of a reply that could not be read


class DeadlineGrid(Grid):
    """Wraps a grid: `send_and_receive` returns when all have answered or after `seconds`, whichever is first.

    Every reply is fetched by itself, so that one that is slow, huge or unreadable holds no other back. A reply that
    comes after its round was closed is dropped; `late` lists the messages that were answered so.
    """

    def __init__(self, grid: Grid, seconds: float, poll: float = POLL) -> None:
        if not 0 < seconds < math.inf:
            raise InputError("deadline", seconds, "a number of seconds above 0")
        self._grid, self.seconds, self.poll = grid, seconds, poll
        self._overdue: dict[str, Message] = {}
        self.late: list[Message] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send, and collect what is answered before the deadline (or the timeout, if that is earlier)."""
        closes = time.monotonic() + min(self.seconds, math.inf if timeout is None else timeout)
        sent = list(messages)
        self._grid.push_messages(sent)
        open_ = {message.metadata.message_id: message for message in sent}
        asked = {**self._overdue, **open_}
        replies: list[Message] = []
        fetching: dict[Future[list[Message]], str] = {}
        pool = ThreadPoolExecutor(max(1, len(asked)), "fetch")
        while open_.keys() & asked.keys() and time.monotonic() < closes:
            for name in asked.keys() - set(fetching.values()):
                fetching[pool.submit(self._fetch, asked[name])] = name
            again = min(time.monotonic() + self.poll, closes)
            done, _ = wait(fetching, timeout=again - time.monotonic())
            for future in done:
                name = fetching.pop(future)
                found = future.result()
                if name in open_:
                    replies += found
                elif any(reply.has_content() for reply in found):
                    self.late.append(asked[name])
                if found:
                    del asked[name]
            if open_.keys() & asked.keys():
                time.sleep(max(0.0, again - time.monotonic()))
        pool.shutdown(wait=False, cancel_futures=True)
        self._overdue = asked
        return replies

    def _fetch(self, message: Message) -> list[Message]:
        """The replies to a message, if there are any yet: those of the node that was asked, or errors."""
        try:
            found = list(self._grid.pull_messages([message.metadata.message_id]))
        except httpx.HTTPError as error:  # the link to the SuperLink, not the reply: look again
            log(WARNING, "fedslot: %s", error)
            return []
        except Exception as error:
            return [Message(Error(UNREADABLE, f"unreadable ({type(error).__name__})"), reply_to=message)]
        asked = message.metadata
        return [
            reply
            for reply in found
            if reply.metadata.reply_to_message_id == asked.message_id
            and (reply.has_error() or reply.metadata.src_node_id == asked.dst_node_id)
        ]

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
