"""Chunks of large messages: in any order, once or twice, mixed with others and with nonsense."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.deployment.mqtt.chunks import HEADER, LEAST, MAGIC, MOST_PARTIAL, Assembler, is_chunk, split
from fedslot.deployment.screening import Refusal

TOPIC = "fedslot/cell/ue1/update"


def message(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@given(st.integers(0, 20_000), st.integers(100, 9000), st.randoms(use_true_random=False))
def test_chunks_in_any_order_are_the_message(size: int, largest: int, order: random.Random) -> None:
    whole = message(size)
    chunks = list(enumerate(split(whole, largest)))
    assert all(len(chunk) <= max(largest, LEAST + HEADER.size) for _, chunk in chunks)
    chunks += order.sample(chunks, len(chunks) // 2)  # as retransmissions
    order.shuffle(chunks)
    assembler, complete = Assembler(20_000), []
    for number, chunk in chunks:
        try:
            if done := assembler.add(f"{TOPIC}/{number}", chunk):
                complete.append(done)
        except Refusal:
            assert size == 0  # an empty message has no part
    assert complete[:1] == ([(TOPIC, whole)] if size else [])


def test_topics() -> None:
    assert is_chunk(f"{TOPIC}/7")
    assert not is_chunk(TOPIC)


def test_messages_of_several_senders_do_not_mix() -> None:
    assembler, found = Assembler(9000, topics=2), {}
    pairs = [(f"fedslot/cell/ue{ue}/update", message(5000, ue)) for ue in range(2)]
    for chunks in zip(*(split(content, 2000) for _, content in pairs), strict=True):
        for (topic, _), chunk in zip(pairs, chunks, strict=True):
            if done := assembler.add(f"{topic}/0", chunk):
                found[done[0]] = done[1]
    assert found == dict(pairs)


def test_a_message_goes_on_after_others_were_begun() -> None:
    """As after a lost connection, and beside the retained chunks of an older message with more of them."""
    assembler = Assembler(9000)
    new, old = message(5000, 1), message(8000, 2)
    first, *rest = split(new, 2000)
    assert assembler.add(f"{TOPIC}/0", first) is None
    *_, stale = split(old, 2000)
    assert assembler.add(f"{TOPIC}/9", stale) is None
    assert [done for chunk in rest if (done := assembler.add(f"{TOPIC}/1", chunk))] == [(TOPIC, new)]


def test_memory_is_bounded() -> None:
    assembler = Assembler(10_000, topics=3)
    for seed in range(50):
        first, *_ = split(message(9000, seed), 2000)
        assembler.add(f"fedslot/cell/ue{seed % 10}/update/0", first)
    assert len(assembler._partial) == 3
    assert all(len(messages) <= MOST_PARTIAL for messages in assembler._partial.values())


def test_bad_chunks_are_refused() -> None:
    good = list(split(message(5000), 2000))
    digest = good[0][-32:]
    bad = [
        b"",
        b"FSC1",
        b"FSL1" + good[0][4:],
        HEADER.pack(MAGIC, 3, 3, 100, digest) + b"x",  # the fourth of three
        HEADER.pack(MAGIC, 0, 101, 100, digest) + b"x",  # more chunks than bytes
        HEADER.pack(MAGIC, 0, 1, 1 << 60, digest) + b"x",
        HEADER.pack(MAGIC, 0, 1, 3, digest) + b"xxxx",  # longer than it says
        HEADER.pack(MAGIC, 0, 1, 4, digest) + b"xxxx",  # another hash
        HEADER.pack(MAGIC, 0, 2, 4, digest),
    ]
    for chunk in bad:
        assembler = Assembler(10_000)
        with pytest.raises(Refusal):
            assembler.add(f"{TOPIC}/0", chunk)
        assert [done for part in good if (done := assembler.add(f"{TOPIC}/0", part))] == [(TOPIC, message(5000))]


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_kept(content: bytes) -> None:
    assembler = Assembler(1000)
    for chunk in (content, MAGIC + content):
        try:
            assembler.add(f"{TOPIC}/0", chunk)
        except Refusal:
            continue
