"""What compression does to the updates of a UE, and what its error memory holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedslot.compression import Codec, Compression, Floats, Key, Shapes
from fedslot.compression.quantise import Quantise
from fedslot.support.errors import RefusedError
from fedslot.updates import Chain, Sender

SHAPES: Shapes = [(30, 20), (30,)]


def _sender(round: int) -> Sender:
    return Sender(ue=3, round=round, seed=7, noise=0.0, samples=10)


def test_what_is_sent_is_what_the_ps_decodes() -> None:
    codec, start, model = Quantise(bits=3), torch.zeros(630), torch.linspace(-1, 2, 630)
    update, memory = Chain([], [], Compression(codec, "quantise", SHAPES)).send(start, model, _sender(4), None)
    message = codec.encode(model.numpy(), SHAPES, Key(7, 4, 3))
    assert torch.equal(update.model, torch.from_numpy(codec.decode(message, SHAPES, Key(7, 4, 3))))
    assert (update.bits, len(memory)) == (8 * len(message), 0)


def test_error_feedback_loses_nothing_in_the_long_run() -> None:
    """The sum of what was decoded and the memory is the sum of all changes."""
    compression = Compression(Quantise(bits=3, rounding="nearest"), "quantise", SHAPES, feedback=True)
    chain, start, rng = Chain([], [], compression), torch.zeros(630), np.random.default_rng(0)
    state, changes, decoded = None, torch.zeros(630), torch.zeros(630)
    for round in range(20):
        change = torch.from_numpy(rng.standard_normal(630).astype(np.float32))
        update, state = chain.send(start, change.clone(), _sender(round), state)
        changes += change
        decoded += update.model
    assert torch.allclose(decoded + state, changes, atol=1e-4)
    assert float((decoded - changes).norm()) < float(changes.norm())


class Wrong(Codec):
    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        return bytes(9)

    def decode(self, message: bytes, shapes: Shapes, key: Key) -> Floats:
        return np.zeros(3, np.float32)

    def most_bytes(self, shapes: Shapes) -> int:
        return 8


class Short(Wrong):
    def encode(self, change: Floats, shapes: Shapes, key: Key) -> bytes:
        return bytes(8)


@pytest.mark.parametrize(("codec", "line"), [(Wrong(), "at most 8 bytes"), (Short(), r"decode to an array \(630,\)")])
def test_a_scheme_of_ones_own_is_checked(codec: Codec, line: str) -> None:
    with pytest.raises(RefusedError, match=line):
        Compression(codec, "own", SHAPES).transmit(np.ones(630, np.float32), Key(7, 0, 3))
