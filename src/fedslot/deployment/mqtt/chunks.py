"""Messages that are larger than the broker takes, in chunks with checks.

    FSC1, number of the chunk, number of chunks, length of the message (64 bits), its SHA-256, a part of the message

Numbers are unsigned and little endian, of 32 bits where nothing else is said. The chunks of a message on TOPIC are
messages on TOPIC/0, TOPIC/1 and so on, so that a broker can retain each of them. A receiver keeps the chunks that it
has over a loss of the connection, and takes the message once its length and its hash are right.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from fedslot.deployment.screening import Refusal

MAGIC = b"FSC1"
HEADER = struct.Struct("<4sIIQ32s")
PACKET = 512  # bytes of a packet beside a chunk, at most: topic and properties
LEAST = 1024  # bytes of a chunk
LEVELS = 5  # of the topic of a chunk, fedslot/CELL/WHO/WHAT/NUMBER
MOST_PARTIAL = 2  # messages of a topic of which some chunks are missing


def split(message: bytes, largest: int) -> Iterator[bytes]:
    """Yield the chunks of a message for a broker that takes packets of `largest` bytes."""
    size = max(LEAST, largest - PACKET - HEADER.size)
    digest, count = hashlib.sha256(message).digest(), max(1, -(-len(message) // size))
    for number in range(count):
        header = HEADER.pack(MAGIC, number, count, len(message), digest)
        yield header + message[number * size : (number + 1) * size]


def is_chunk(topic: str) -> bool:
    """Return whether a topic is that of a chunk."""
    return topic.count("/") == LEVELS - 1


@dataclass
class Partial:
    """A message of which some chunks came."""

    length: int
    count: int
    parts: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Assembler:
    """Puts chunks together. most_bytes: of a message. topics: number of topics whose chunks are kept at a time."""

    def __init__(self, most_bytes: int, topics: int = 1) -> None:
        self.most_bytes, self.topics = most_bytes, topics
        self._partial: OrderedDict[str, OrderedDict[bytes, Partial]] = OrderedDict()

    def add(self, topic: str, chunk: bytes) -> tuple[str, bytes] | None:
        """Return topic and content of the message that a chunk completes; None if others are missing.

        Raise `Refusal` if it is no chunk of a message that is small enough.
        """
        try:
            magic, number, count, length, digest = HEADER.unpack_from(chunk)
        except struct.error as error:
            raise Refusal("malformed", str(error)) from None
        part, whole = chunk[HEADER.size :], topic.rpartition("/")[0]
        if magic != MAGIC or number >= count or count > max(1, length) or not part:
            raise Refusal("malformed", "no chunk")
        if length > self.most_bytes:
            raise Refusal("size", f"{length} bytes")
        partial = self._of(whole, digest, length, count)
        if number not in partial.parts:
            partial.size += len(part)
            if partial.size > length or (partial.length, partial.count) != (length, count):
                del self._partial[whole][digest]
                raise Refusal("malformed", "chunks that do not fit together")
            partial.parts[number] = part
        if len(partial.parts) < count:
            return None
        del self._partial[whole][digest]
        message = b"".join(partial.parts[n] for n in range(count))
        if len(message) != length or hashlib.sha256(message).digest() != digest:
            raise Refusal("hash", "chunks of another message")
        return whole, message

    def _of(self, topic: str, digest: bytes, length: int, count: int) -> Partial:
        """Return the message of a chunk, and forget the oldest ones where there are too many."""
        messages = self._partial.setdefault(topic, OrderedDict())
        self._partial.move_to_end(topic)
        partial = messages.setdefault(digest, Partial(length, count))
        messages.move_to_end(digest)
        while len(messages) > MOST_PARTIAL:
            messages.popitem(last=False)
        while len(self._partial) > self.topics:
            self._partial.popitem(last=False)
        return partial
