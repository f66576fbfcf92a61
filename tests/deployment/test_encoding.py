"""How updates and models are written: round trips, what is refused, and states that wait for a receipt."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot import InputError, Scenario
from fedslot.compression import Key
from fedslot.deployment.encoding import PLAIN, Carried, Encoding, own_schemes, read_message, read_scheme
from fedslot.deployment.screening import Refusal
from fedslot.parts.kinds import CODECS
from fedslot.scenario import CompressionPart

SHAPES = [(30, 20), (30,), ()]
SIZE = 631
NONE = np.empty(0, np.float32)


def encoding(**fields: object) -> Encoding:
    return Encoding.of(Scenario.load("quickstart", {"seed": 7, "data.ues": 30, **fields}), SHAPES)


def model(seed: int, scale: float = 1.0) -> Any:
    return np.random.default_rng(seed).normal(0, scale, SIZE).astype(np.float32)


@pytest.mark.parametrize("name", CODECS)
def test_the_ps_reads_what_a_device_writes(name: str) -> None:
    """Only with the key of this UE and round, where the scheme draws random numbers."""
    announced, start, local = encoding(compression=name), model(0), model(1)
    message, error = announced.write_update(local, start, round=3, ue=5, error=NONE)
    assert announced.updates is not None
    decoded = read_message(announced.updates, message, Key(7, 3, 5))
    codec = CODECS.make(name, {})
    assert message == codec.encode(local - start, SHAPES, Key(7, 3, 5))
    assert np.array_equal(decoded, codec.decode(message, SHAPES, Key(7, 3, 5)))
    assert len(error) == 0


def test_without_compression_numbers_have_32_bits() -> None:
    assert encoding() == PLAIN
    local = model(1)
    message, _ = PLAIN.write_update(local, model(0), 0, 0, NONE)
    assert message == local.astype("<f4").tobytes()
    assert np.array_equal(PLAIN.read_model(message, 0), local)


def test_a_compressed_model_is_the_same_for_all_and_differs_by_round() -> None:
    announced = encoding(broadcast_compression={"name": "eden", "options": {"bits": 8}})
    assert announced.models is not None
    message, heard = announced.models.transmit(model(0), Key(7, 2, 30))
    assert np.array_equal(announced.read_model(message, 2, SIZE), heard)
    assert np.linalg.norm(heard - model(0)) < 0.05 * np.linalg.norm(model(0))
    assert not np.array_equal(announced.read_model(message, 3, SIZE), heard)


@pytest.mark.parametrize(
    ("content", "compressed", "reason"),
    [
        (b"123", False, "shape"),
        (bytes(4 * SIZE - 4), False, "shape"),
        (b"\xff" * 4 * SIZE, False, "finite"),
        (b"", True, "encoding"),
        (bytes(10_000), True, "size"),
        (b"\xff" * 600, True, "encoding"),
    ],
)
def test_models_that_are_none_are_refused(content: bytes, compressed: bool, reason: str) -> None:
    announced = encoding(broadcast_compression={"name": "quantise", "options": {"bits": 8}}) if compressed else PLAIN
    with pytest.raises(Refusal) as refused:
        announced.read_model(content, 0, SIZE)
    assert refused.value.reason == reason


def test_a_model_of_another_size_is_refused() -> None:
    announced = encoding(broadcast_compression="sign")
    assert announced.models is not None
    message, _ = announced.models.transmit(model(0), Key(7, 0, 30))
    assert len(announced.read_model(message, 0)) == SIZE
    with pytest.raises(Refusal, match=r"shape: .* of 631 parameters, not of 600"):
        announced.read_model(message, 0, 600)


@given(name=st.sampled_from(list(CODECS)), content=st.binary(max_size=3000))
def test_no_bytes_do_harm(name: str, content: bytes) -> None:
    announced = encoding(compression=name, broadcast_compression=name)
    assert announced.updates is not None
    with suppress(Refusal):
        assert np.isfinite(read_message(announced.updates, content, Key(7, 0, 0))).all()
    with suppress(Refusal):
        assert np.isfinite(announced.read_model(content, 0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_not_sent(bad: float) -> None:
    local = model(1)
    local[5] = bad
    with pytest.raises(ValueError, match="not finite"):
        encoding(compression="eden").write_update(local, model(0), 0, 0, NONE)


def test_a_model_of_another_size_is_not_sent() -> None:
    with pytest.raises(InputError, match=r"600 parameters.*it must be 631, as was announced"):
        encoding(compression="eden").write_update(model(1)[:600], model(0), 0, 0, NONE)


def test_error_feedback_is_that_of_the_simulator() -> None:
    """The next change has what compression left of the one before; a memory of another size is dropped."""
    announced = encoding(compression={"name": "sign", "feedback": True})
    start, local = model(0), model(1)
    message, error = announced.write_update(local, start, 0, 5, error=np.ones(4, np.float32))
    decoded = CODECS.make("sign", {}).decode(message, SHAPES, Key(7, 0, 5))
    assert np.array_equal(error, local - start - decoded)
    again, _ = announced.write_update(start, start, 1, 5, error)
    assert again == CODECS.make("sign", {}).encode(error, SHAPES, Key(7, 1, 5))


# What is announced --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"update": '["os:system", {}]'},
        {"update": '["top-k", {"values": "os:system"}]'},
        {"update": '["top-k", {"values": {"name": "os:system"}}]'},
        {"model": '["rand-k", {"values": {"name": "top-k", "options": {"values": "os:system"}}}]'},
        {"update": '["quantise", {"bits": 99}]'},
        {"update": '["quantise", {"bits": 2, "more": 1}]'},
        {"update": '["quantise"]'},
        {"update": "null"},
        {"update": "{"},
        {"update": '[["quantise"], {}]'},
        {"update": "[" * 4 + '"top-k", {}' + "]" * 4},
        {"shapes": [[-1, 5]]},
        {"shapes": [[10**12]]},
        {"shapes": [[10**6, 10**6]]},
        {"shapes": [[2] * 100]},
        {"seed": "x"},
        {"seed": "9" * 100},
        {"ues": -1},
    ],
    ids=str,
)
def test_announced_encodings_that_cannot_be_used_are_refused(change: dict[str, Any]) -> None:
    announced = encoding(compression="quantise", broadcast_compression="quantise")
    with pytest.raises(ValueError):
        replace(announced, **change).check()


def test_schemes_inside_one_another_are_limited() -> None:
    written: Any = "sign"
    for _ in range(50):
        written = {"name": "top-k", "options": {"values": written}}
    with pytest.raises(InputError, match="schemes inside one another"):
        read_scheme(json.dumps([written["name"], written["options"]]))


def test_schemes_of_ones_own_are_found_wherever_they_are_named() -> None:
    """Every option of a built-in scheme that names another one is looked at."""
    for name in CODECS:
        for option, hint in get_type_hints(CODECS.find(name).__init__).items():  # type: ignore[misc]
            assert ("CompressionPart" in str(hint)) is (option == "values"), (name, option)
    inner = {"name": "top-k", "options": {"values": "mine:Mine"}}
    assert own_schemes(CompressionPart(name="rand-k", options={"values": inner})) == ["mine:Mine"]
    assert own_schemes(CompressionPart(name="rand-k", options={"values": "eden"})) == []


# States -------------------------------------------------------------------------------------------


@given(received=st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_state_advances_with_received_updates_alone(received: list[bool]) -> None:
    state = Carried(0)
    for round, each in enumerate(received):
        state.advance(round, state.value + 1)
        state.settle(round + 1, received=round if each else -1)
    assert state.value == sum(received)


def test_a_device_that_missed_the_receipt_keeps_the_state_before() -> None:
    state = Carried("first")
    state.advance(3, "third")
    state.settle(5, received=4)  # somebody told of another frame
    state.settle(6, received=3)
    assert state.value == "first"


def test_states_begin_anew_with_the_training() -> None:
    state = Carried("first")
    state.advance(3, "third")
    state.settle(4, received=3)
    assert state.value == "third"
    state.settle(0, received=-1)
    assert state.value == "first"
