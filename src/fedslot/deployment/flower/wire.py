"""Encoded models and updates in Flower's messages, and what a node carries between them. No PyTorch is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedslot.compression import Floats
from fedslot.deployment.encoding import PLAIN, Carried, Encoding
from fedslot.deployment.flower.messages import LABEL, UPDATE
from fedslot.deployment.frame import Turn

WIRE = "fedslot.wire"  # key of the record in messages with a turn, and in a node's state
ENCODING, NAMES, MODEL, RECEIVED = "encoding", "names", "model", "received"  # its keys in a message
VALUE, ROUND, NEXT, NEXT_ROUND = "value", "round", "next", "next-round"  # and in the state of a node


def announce(encoding: Encoding, names: Sequence[str], broadcast: bytes, received: int) -> ConfigRecord:
    """Return the record that tells a node how to read and write.

    names: of the model's arrays. broadcast: the model as bytes. received: the round of the node's last received update.
    """
    record = ConfigRecord({RECEIVED: received})
    if encoding != PLAIN:
        record[ENCODING], record[NAMES] = json.dumps(asdict(encoding)), list(names)
    if encoding.models is not None:
        record[MODEL] = broadcast
    return record


class Wire:
    """A node's side: reads the model of a message with a turn, and encodes the reply. state: the node's own records."""

    def __init__(self, message: Message, turn: Turn, state: RecordDict) -> None:
        record = message.content.config_records.get(WIRE, ConfigRecord())
        self.record, self.message, self.turn, self.state = record, message, turn, state
        self.encoding = Encoding(**json.loads(str(record[ENCODING]))) if ENCODING in record else PLAIN
        self.encoding.check()
        self.error = _read_error(state)
        self.error.settle(turn.round, int(record.get(RECEIVED, -1)))  # type: ignore[arg-type]

    def hear(self) -> None:
        """Put the model into the message, where it is compressed."""
        self.start = np.empty(0, np.float32)
        if self.encoding == PLAIN:
            return
        (key, arrays), *_ = self.message.content.array_records.items()
        if self.encoding.models is not None:
            self.start = self.encoding.read_model(bytes(self.record[MODEL]), self.turn.round)  # type: ignore[arg-type]
            arrays = self.message.content[key] = self._arrays(self.start)
        self.start = self._flat(arrays)

    def say(self, reply: Message) -> None:
        """Replace the arrays of a reply by the encoded update."""
        if self.encoding.updates is None or len(reply.content.array_records) != 1:
            return  # of another number of records the PS says what is wrong
        [(key, arrays)] = reply.content.array_records.items()
        update, left = self.encoding.write_update(
            self._flat(arrays), self.start, self.turn.round, self.turn.ue, self.error.value
        )
        self.error.advance(self.turn.round, left)
        self.state[WIRE] = _write_error(self.error)
        del reply.content[key]
        reply.content.config_records[LABEL][UPDATE] = update

    @property
    def _names(self) -> list[str]:
        return [str(name) for name in self.record[NAMES]]  # type: ignore[union-attr]

    def _arrays(self, flat: Floats) -> ArrayRecord:
        shapes = self.encoding.shapes_of_tensors
        parts = np.split(flat, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        named = zip(self._names, parts, shapes, strict=True)
        return ArrayRecord({name: Array(part.reshape(shape)) for name, part, shape in named})

    def _flat(self, arrays: ArrayRecord) -> Floats:
        return np.concatenate([arrays[name].numpy().ravel() for name in self._names]).astype(np.float32)


def _read_error(state: RecordDict) -> Carried[Floats]:
    """Return the error memory of a node."""
    error, record = Carried(np.empty(0, np.float32)), state.config_records.get(WIRE)
    if record is not None:
        error.value, error.round = _floats(record[VALUE]), int(record[ROUND])  # type: ignore[arg-type]
        error.next = int(record[NEXT_ROUND]), _floats(record[NEXT])  # type: ignore[arg-type]
    return error


def _write_error(error: Carried[Floats]) -> ConfigRecord:
    round, value = error.next or (-1, error.first)
    return ConfigRecord({VALUE: error.value.tobytes(), ROUND: error.round, NEXT: value.tobytes(), NEXT_ROUND: round})


def _floats(numbers: object) -> Floats:
    assert isinstance(numbers, bytes)
    return np.frombuffer(numbers, np.float32)
