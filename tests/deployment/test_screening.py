"""Messages of devices are not trusted: every kind of bad slots and bad arrays has its reason."""

from __future__ import annotations

import io
import math
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedslot import InputError
from fedslot.deployment.frame import Turn
from fedslot.deployment.screening import (
    Limits,
    Refusal,
    Update,
    check_move,
    check_size,
    check_slots,
    most_bytes,
    read_model,
    read_update,
)

SHAPES = {"weight": (3, 4), "bias": (3,)}
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
HUGE_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000000000000), }"


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


def update(weight: bytes = npy(WEIGHT), examples: object = 5, **more: bytes) -> Update:
    arrays = {"bias": npy(np.ones(3, dtype=np.float32)), "weight": weight, **more}
    metrics = {"examples": examples, "loss": 0.5, "nan": np.nan, "list": [1.0]}
    return read_update(read_model(arrays, SHAPES), metrics, "examples")


@pytest.mark.parametrize("weight", [WEIGHT, np.asfortranarray(WEIGHT)], ids=["C order", "Fortran order"])
def test_a_sound_update_is_read(weight: np.ndarray) -> None:
    found = update(npy(weight))
    assert found.model.tolist() == [*range(12), 1, 1, 1]
    assert (found.examples, found.metrics) == (5, {"loss": 0.5})


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (npy(WEIGHT[:-1]), "shape"),
        (npy(WEIGHT.T), "shape"),
        (npy(WEIGHT.astype(np.float64)), "dtype"),
        (npy(WEIGHT.astype(">f4")), "dtype"),
        (npy(WEIGHT.view(np.int32)), "dtype"),
        (npy(np.array([{"run": "me"}], dtype=object)), "dtype"),  # a pickle
        (npy(WEIGHT * np.nan), "finite"),
        (npy(WEIGHT - np.float32(np.inf)), "finite"),
        (b"garbage", "array"),
        (b"", "array"),
        (npy(WEIGHT)[:-4], "array"),
        (npy(WEIGHT) + b"0000", "array"),
        (b"\x93NUMPY\x01\x00" + len(HUGE_HEADER).to_bytes(2, "little") + HUGE_HEADER, "shape"),
    ],
)
def test_bad_arrays_are_refused(weight: bytes, reason: str) -> None:
    with pytest.raises(Refusal) as refused:
        update(weight)
    assert refused.value.reason == reason


@pytest.mark.parametrize(("numbers", "read"), [(15, True), (14, False), (16, False)])
def test_bare_numbers_are_counted(numbers: int, read: bool) -> None:
    model = np.arange(numbers, dtype="<f4")
    with nullcontext() if read else pytest.raises(Refusal, match="shape"):
        assert read_model(model.tobytes(), SHAPES).tolist() == model.tolist()


@given(data=st.binary() | st.builds(lambda head, tail: npy(WEIGHT)[:head] + tail, st.integers(0, 180), st.binary()))
@example(b"\x93NUMPY\x01\x00\x06\x00\x00\x00\x00'''")  # a string in the header that does not end
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(Refusal):
        assert update(data).model.shape == (15,)


@pytest.mark.parametrize("arrays", [{}, {"weight": npy(WEIGHT)}, {"x": b""}])
def test_other_arrays_than_the_models_are_refused(arrays: dict[str, bytes]) -> None:
    with pytest.raises(Refusal, match="keys"):
        read_model(arrays, SHAPES)
    with pytest.raises(Refusal, match="keys"):
        update(extra=b"")


@pytest.mark.parametrize("examples", [0, -7, 0.5, float("nan"), [1, 2], None, True, "5", 2**40 + 1])
def test_bad_numbers_of_samples_are_refused(examples: object) -> None:
    with pytest.raises(Refusal, match="examples"):
        update(examples=examples)


@pytest.mark.parametrize("examples", [1, 2**40])
def test_the_least_and_the_most_samples_are_allowed(examples: int) -> None:
    assert update(examples=examples).examples == examples


def test_sizes_are_limited() -> None:
    """15 numbers of 4 bytes, 1 KiB for the header of each of two arrays, and 64 KiB for metrics."""
    most = 15 * 4 + 2 * 1024 + 65536
    check_size(most, most_bytes(SHAPES))
    with pytest.raises(Refusal, match="size"):
        check_size(most + 1, most_bytes(SHAPES))


@pytest.mark.parametrize(
    ("round", "slots", "reason"),
    [
        (-1, [2], "round"),
        (7, [2], "round"),
        ("1", [2], "round"),
        (True, [2], "round"),
        (None, [2], "round"),
        (1, [1], "slot"),
        (1, [2, 3], "slot"),
        (1, [99], "slot"),
        (1, [2.0], "slot"),
        (1, [True], "slot"),
        (1, 2, "slot"),
        (1, None, "slot"),
        (1, [2] * 100_000, "slot"),
    ],
)
def test_bad_slots_are_refused(round: object, slots: object, reason: str) -> None:
    turn = Turn(round=1, ue=1, slot=2)
    assert check_slots(turn, 1, [2]) == [2]
    with pytest.raises(Refusal) as refused:
        check_slots(turn, round, slots)
    assert refused.value.reason == reason


@pytest.mark.parametrize(("factor", "allowed"), [(0.99, True), (1.01, False), (3.4e38, False)])
def test_moves_are_limited(factor: float, allowed: bool) -> None:
    moved = Update(np.full(4, factor, dtype=np.float32), 1, {})
    with nullcontext() if allowed else pytest.raises(Refusal, match="norm"):
        check_move(moved, np.zeros(4, dtype=np.float32), longest=2.0)


def test_a_devices_words_are_shortened() -> None:
    refusal = Refusal("error", "out of\nmemory\x1b[31m" + "x" * 10_000)
    assert refusal.detail.startswith("out of memory?[31mx")
    assert len(refusal.detail) == 200


def test_limits_are_checked() -> None:
    with pytest.raises(InputError, match=r"limits\.norm"):
        Limits(norm=0.5)
    with pytest.raises(InputError, match=r"limits\.examples: inf is not"):
        Limits(examples=math.inf)
